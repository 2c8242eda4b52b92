"""Captures: simulated packets as pcap files, and packets that somebody recorded as statistics of windows."""
