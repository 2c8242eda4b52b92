"""Which layout for which odds: what failures cost, what rounds cost, and advice."""
