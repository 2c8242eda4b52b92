"""The paper's own tables and figures, beside the numbers that it printed."""
