"""Packets of Bluetooth Low Energy, 1 Mb/s: preamble, access address, data unit and check (vol. 6 part B, 2.1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import SpecError
from tolfl.signals.bluetooth.codes import bits_of, low_energy_check, whitened
from tolfl.signals.bluetooth.gfsk import Bits, check_index, gfsk
from tolfl.signals.bluetooth.hopping import le_frequency_hz

ADVERTISING_ADDRESS = 0x8E89BED6
ADVERTISING_CHECK = 0x555555
MODULATION_INDEX = 0.5
_LEAST_INDEX, _MOST_INDEX = 0.45, 0.55
_NON_CONNECTABLE = 0b0010
_RANDOM_ADDRESS = 1 << 6
_SHORTEST_PDU, _LONGEST_PDU = 2, 257
_LONGEST_ADVERTISEMENT = 31


def advertisement(address: bytes, data: bytes) -> bytes:
    """Return the data unit of an advertisement that nobody can connect to, from a random address of six bytes."""
    if len(address) != 6 or len(data) > _LONGEST_ADVERTISEMENT:
        raise SpecError(
            f"an advertisement from an address of {len(address)} bytes with {len(data)} bytes of data; "
            f"use 6 and at most {_LONGEST_ADVERTISEMENT}"
        )
    return bytes([_NON_CONNECTABLE | _RANDOM_ADDRESS, len(address) + len(data)]) + address + data


def le_packet(
    pdu: bytes,
    channel: int,
    *,
    rate_hz: float,
    access_address: int = ADVERTISING_ADDRESS,
    check_start: int = ADVERTISING_CHECK,
    modulation_index: float = MODULATION_INDEX,
) -> NDArray[np.complex64]:
    """Return a packet around frequency 0, with amplitude 1.

    Parameters
    ----------
    pdu
        The data unit with its header of two bytes: what `advertisement` returns.
    channel
        0 to 39, which sets the whitening; `le_frequency_hz` says where it is.
    rate_hz
        Samples per second; at least 2 million, and not necessarily whole numbers of bits.
    access_address, check_start
        Of a connection; by default those of advertisements.

    >>> len(le_packet(advertisement(bytes(6), b"hi"), 37, rate_hz=4e6)) // 32  # bytes: 1, 4, 10, and 3
    18
    """
    check_index(modulation_index, _LEAST_INDEX, _MOST_INDEX)
    return gfsk(le_bits(pdu, channel, access_address, check_start), rate_hz, modulation_index)


def le_bits(
    pdu: bytes, channel: int, access_address: int = ADVERTISING_ADDRESS, check_start: int = ADVERTISING_CHECK
) -> Bits:
    """Return a packet's bits."""
    le_frequency_hz(channel)  # refuses channels that do not exist
    if not _SHORTEST_PDU <= len(pdu) <= _LONGEST_PDU:
        raise SpecError(f"a low-energy data unit of {len(pdu)} bytes; use {_SHORTEST_PDU} to {_LONGEST_PDU}")
    preamble = b"\x55" if access_address & 1 else b"\xaa"
    ahead = bits_of(preamble + access_address.to_bytes(4, "little"))
    checked = bits_of(pdu + low_energy_check(pdu, check_start))
    return np.concatenate([ahead, whitened(checked, _register(channel))])


def _register(channel: int) -> int:
    """Return the whitening register: a one, then the channel from its highest bit, position 0 first (3.2)."""
    return int(f"1{channel:06b}"[::-1], 2)
