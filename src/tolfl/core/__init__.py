"""Nouns everybody shares: contributions, topology, failure plans, run specs and records, metrics, seeding, errors."""
