"""Wireless traffic and IQ waveforms: the Comms-ML generator, free of MATLAB."""

from tolfl.core.spec import ChannelSettings, CommsMLSettings
from tolfl.signals.comms_ml_generator import KINDS, CommsMLSamples, comms_ml
from tolfl.signals.packets import STATISTICS, WindowGrid, Windows, window_statistics, windows_of
from tolfl.signals.published_configs import ConfiguredSamples, read_sampling_config, read_sim_config, sample_configs
from tolfl.signals.regions import Region, RegionNode, default_regions, published_regions, simulate
from tolfl.signals.traffic import Bursty, Hawkes, PeriodicHawkes

__all__ = [
    "KINDS",
    "STATISTICS",
    "Bursty",
    "ChannelSettings",
    "CommsMLSamples",
    "CommsMLSettings",
    "ConfiguredSamples",
    "Hawkes",
    "PeriodicHawkes",
    "Region",
    "RegionNode",
    "WindowGrid",
    "Windows",
    "comms_ml",
    "default_regions",
    "published_regions",
    "read_sampling_config",
    "read_sim_config",
    "sample_configs",
    "simulate",
    "window_statistics",
    "windows_of",
]
