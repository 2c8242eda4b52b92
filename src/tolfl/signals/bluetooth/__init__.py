"""Bluetooth at baseband: whole basic-rate and low-energy packets, where they hop, and short glimpses of them."""

from tolfl.signals.bluetooth.basic_rate import br_packet
from tolfl.signals.bluetooth.gfsk import BIT_RATE_HZ, MODULATION_INDEX
from tolfl.signals.bluetooth.hopping import br_frequency_hz, hop, hops, le_frequency_hz
from tolfl.signals.bluetooth.interference import emissions
from tolfl.signals.bluetooth.low_energy import advertisement, le_packet

__all__ = [
    "BIT_RATE_HZ",
    "MODULATION_INDEX",
    "advertisement",
    "br_frequency_hz",
    "br_packet",
    "emissions",
    "hop",
    "hops",
    "le_frequency_hz",
    "le_packet",
]
