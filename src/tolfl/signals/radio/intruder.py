"""A pair of Bluetooth devices in a Wi-Fi network: short packets that hop over 79 channels, 1600 times a second."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from tolfl.signals.bluetooth import br_frequency_hz, br_packet, hops
from tolfl.signals.radio.air import AirSettings, Emission, place_emitter
from tolfl.signals.streams import Use, stream

BLUETOOTH = "bluetooth"  #: the label of all that is sent here
SLOT_S = 625e-6
_TICKS = 2  #: of the clock, in a slot
_FIRST_CLOCKS = 2**24  #: at which the pair may be when it starts to talk: the hops of hours
_CHANNEL_HZ = 1e6
_PAYLOAD_BYTES, _PACKET_BITS = 27, 366  #: of a full DH1
_ADDRESS = 0x001B_DC9E_8B33
_NAMES = ("00:1b:dc:9e:8b:33", "00:1b:dc:9e:8b:34")  #: of the central device, whose address it is, and of the other
_FIRST_NODE = 1000  #: of the places: beyond every node of a region
_FIRST_NUMBER = 2**31  #: of the emissions: beyond every Wi-Fi frame


def intruder_emissions(air: AirSettings, from_s: float, until_s: float, seed: int, region: int) -> Iterator[Emission]:
    """Yield the packets of the pair that lie in the receiver's band, in the order of their starts.

    One device sends in the even slots, the other answers in the odd ones. Nobody listens first: a packet may lie on top
    of a Wi-Fi frame. What lies outside of the band, or across its edge, is not heard.
    """
    pair = [
        place_emitter(air, name, region, _FIRST_NODE + node, air.bluetooth_dbm, is_router=False)
        for node, name in enumerate(_NAMES)
    ]
    first = int(stream(seed, Use.BLUETOOTH, region=region).integers(_FIRST_CLOCKS)) * 2 * _TICKS
    clocks = first + _TICKS * np.arange(math.ceil((until_s - from_s) / SLOT_S))
    for slot, channel in enumerate(hops(clocks, _ADDRESS).tolist()):
        offset_hz = br_frequency_hz(channel) - air.carrier_hz
        if abs(offset_hz) + _CHANNEL_HZ / 2 > air.rate_hz / 2:
            continue
        rng = stream(seed, Use.AIR, region=region, node=_FIRST_NUMBER + slot)
        if rng.uniform() >= air.bluetooth_load:
            continue
        payload = rng.bytes(_PAYLOAD_BYTES)
        yield Emission(
            start_s=from_s + slot * SLOT_S,
            duration_s=_PACKET_BITS * 1e-6,
            emitter=pair[slot % 2],
            label=BLUETOOTH,
            comment=f"Bluetooth DH1, channel {channel}, {_PAYLOAD_BYTES} bytes",
            bandwidth_hz=_CHANNEL_HZ,
            waveform=partial(br_packet, payload, _ADDRESS, int(clocks[slot]), rate_hz=air.rate_hz),
            number=_FIRST_NUMBER + slot,
            offset_hz=offset_hz,
            destination=_NAMES[1 - slot % 2],
        )
