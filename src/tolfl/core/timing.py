"""How long it takes to notice a death, and how fast links and devices are: presets with their trade-offs."""

from __future__ import annotations

from typing import Literal

import msgspec

from tolfl.core.errors import UnknownNameError


class Timing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When silence becomes a death. Shorter: a failure stalls a round for less; longer: fewer healthy devices lost."""

    heartbeat_s: float  #: between two signs of life; shorter costs messages, longer delays every detection
    crash_detection_s: float  #: from a broken connection to a death; covers the refused reconnect that proves it
    silence_detection_s: float  #: from the last sign of life to a death; must exceed the longest pause of a busy device

    @classmethod
    def localhost(cls) -> Timing:
        """Return times for processes of one machine."""
        return cls(heartbeat_s=0.1, crash_detection_s=0.2, silence_detection_s=1.0)

    @classmethod
    def lan(cls) -> Timing:
        """Return times for machines on a wired network."""
        return cls(heartbeat_s=0.25, crash_detection_s=0.5, silence_detection_s=2.0)

    @classmethod
    def wireless(cls) -> Timing:
        """Return times for lossy, slow links, where a false alarm costs more than a second of waiting."""
        return cls(heartbeat_s=1.0, crash_detection_s=2.0, silence_detection_s=6.0)

    @classmethod
    def preset(cls, name: str) -> Timing:
        """Return a preset by its name."""
        presets = {"localhost": cls.localhost, "lan": cls.lan, "wireless": cls.wireless}
        if name not in presets:
            raise UnknownNameError("timing preset", name, list(presets))
        return presets[name]()


class Links(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The simulated network and devices. Virtual time only: none of it changes a model without a deadline."""

    latency_s: float = 0.005  #: from the last byte sent to the first event at the receiver
    bandwidth_bps: float = 20e6  #: of every device's link
    uplink: Literal["serial", "parallel"] = "serial"  #: serial: a receiver takes one transfer at a time
    seconds_per_sample: float = 1e-4  #: local training time per sample and epoch at speed 1
    speed_spread: float = 0.0  #: device speeds are drawn from 1 / (1 + U(0, speed_spread)); 0: all alike
