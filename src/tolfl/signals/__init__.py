"""Wireless traffic, captures and radio recordings: the Comms-ML generator (free of MATLAB), readers, features."""
