"""What all rooms share: contributions, topology, failure plans, run specs and records, metrics, seeding, errors."""
