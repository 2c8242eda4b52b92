"""The paper's tables and figures; sweeps: spec, runs, rows, report."""
