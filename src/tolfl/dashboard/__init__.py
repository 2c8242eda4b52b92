"""The live page: it reads run records and nothing else."""
