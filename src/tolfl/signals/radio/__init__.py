"""What a receiver in a region hears: emissions through their channels, fingerprints, an intruder."""
