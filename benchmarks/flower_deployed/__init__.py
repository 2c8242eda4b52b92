"""Deployed Flower beside a deployed fleet: real processes on both sides, and what is left of them after a kill."""
