"""The benchmark against Flower's simulation engine; it has an environment of its own (`make bench-flower`)."""
