"""Federated averaging as a Flower app."""
