"""Wireless traffic, pcap and IQ waveforms: the Comms-ML generator, free of MATLAB."""
