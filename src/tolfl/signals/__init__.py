"""Wireless traffic and IQ waveforms: the Comms-ML generator, free of MATLAB."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

#: Where each name is: reading a capture must not wait for the generator.
_MODULES = {
    "core.spec": ("ChannelSettings", "CommsMLSettings"),
    "signals.comms_ml_generator": ("KINDS", "CommsMLSamples", "comms_ml"),
    "signals.packets": ("STATISTICS", "WindowGrid", "Windows", "window_statistics", "windows_of"),
    "signals.published_configs": ("ConfiguredSamples", "read_sampling_config", "read_sim_config", "sample_configs"),
    "signals.regions": ("Region", "RegionNode", "default_regions", "published_regions", "simulate"),
    "signals.traffic": ("Bursty", "Hawkes", "PeriodicHawkes"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import a name when it is first asked for."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'tolfl.signals' has no attribute {name!r}")
    return getattr(import_module(f"tolfl.{_MODULE_OF[name]}"), name)
