"""The report of a run: its result, its curves, its fleet before and after, and what every failure cost."""
