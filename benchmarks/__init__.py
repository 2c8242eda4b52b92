"""Benchmarks: every claim of speed is a ratio against a named rival, measured in one run."""
