"""Wireless traffic and IQ waveforms: the Comms-ML generator, free of MATLAB."""

from tolfl.core.spec import ChannelSettings, CommsMLSettings
from tolfl.signals.comms_ml import KINDS, CommsMLSamples, comms_ml
from tolfl.signals.config_samples import ConfiguredSamples, sample_configs
from tolfl.signals.configs import ConfigFileError, read_sampling_config, read_sim_config
from tolfl.signals.network import Node, Region, simulate
from tolfl.signals.packets import Packets
from tolfl.signals.regions import default_regions, published_regions
from tolfl.signals.statistics import STATISTICS, window_statistics
from tolfl.signals.traffic import Bursty, Hawkes, PeriodicHawkes
from tolfl.signals.windows import WindowGrid, Windows, windows_of

__all__ = [
    "KINDS",
    "STATISTICS",
    "Bursty",
    "ChannelSettings",
    "CommsMLSamples",
    "CommsMLSettings",
    "ConfigFileError",
    "ConfiguredSamples",
    "Hawkes",
    "Node",
    "Packets",
    "PeriodicHawkes",
    "Region",
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
