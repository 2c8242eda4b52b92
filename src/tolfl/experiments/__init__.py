"""Experiments: schemes side by side, the paper's tables and figures, sweeps."""
