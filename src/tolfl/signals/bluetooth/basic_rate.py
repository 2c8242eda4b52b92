"""Packets of Bluetooth's basic rate: access code, header and payload at 1 Mb/s (vol. 2 part B, 6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import SpecError, UnknownNameError
from tolfl.signals.bluetooth.codes import (
    access_code,
    bits_of,
    hamming,
    header_check,
    number_bits,
    payload_check,
    repeated,
    whitened,
)
from tolfl.signals.bluetooth.gfsk import MODULATION_INDEX, Bits, check_index, gfsk

SLOT_S = 625e-6
_START_OF_MESSAGE = 0b10  #: logical link id
_LAST_MEMBER = 7
_LEAST_INDEX, _MOST_INDEX = 0.28, 0.35


@dataclass(frozen=True, slots=True)
class PacketType:
    """A kind of packet: its code in the header, how many slots it takes, and what fits into it."""

    code: int
    n_slots: int
    most_bytes: int = 0
    is_coded: bool = False  #: with the Hamming code


PACKET_TYPES = {
    "NULL": PacketType(0, 1),
    "POLL": PacketType(1, 1),
    "DM1": PacketType(3, 1, 17, is_coded=True),
    "DH1": PacketType(4, 1, 27),
    "DM3": PacketType(10, 3, 121, is_coded=True),
    "DH3": PacketType(11, 3, 183),
    "DM5": PacketType(14, 5, 224, is_coded=True),
    "DH5": PacketType(15, 5, 339),
}


@dataclass(frozen=True, slots=True)
class Link:
    """The bits of a header that belong to the link between two devices."""

    member: int = 1  #: of the piconet, 1 to 7; 0 is everybody
    may_send: bool = True  #: flow
    acknowledges: bool = False
    sequence_bit: int = 0


def br_packet(
    payload: bytes,
    address: int,
    clock: int,
    *,
    rate_hz: float,
    packet_type: str = "DH1",
    link: Link | None = None,
    modulation_index: float = MODULATION_INDEX,
) -> NDArray[np.complex64]:
    """Return a packet around frequency 0, with amplitude 1.

    Parameters
    ----------
    address
        Of the central device; its lower part makes the access code, the next byte starts the checks.
    clock
        The central device's, when the packet starts: it sets the whitening, and the channel by `hop`.
    rate_hz
        Samples per second; at least 2 million, and not necessarily whole numbers of bits.
    packet_type
        "DH1", "DH3" or "DH5" (1, 3 or 5 slots, up to 27, 183 or 339 bytes), "DM1", "DM3" or "DM5" (with a code, up to
        17, 121 or 224 bytes), "NULL" or "POLL" (a header alone).

    >>> len(br_packet(b"hello", 0x9E8B33, 0, rate_hz=4e6)) // 4  # 72 and 54 bits, a byte, five, and two
    190
    """
    check_index(modulation_index, _LEAST_INDEX, _MOST_INDEX)
    bits = br_bits(payload, address, clock, packet_type, link)
    return gfsk(bits, rate_hz, modulation_index)


def br_bits(
    payload: bytes, address: int, clock: int | None, packet_type: str = "DH1", link: Link | None = None
) -> Bits:
    """Return a packet's bits; a clock of `None` leaves whitening out, as in the standard's examples."""
    if packet_type not in PACKET_TYPES:
        raise UnknownNameError("packet type", packet_type, list(PACKET_TYPES))
    kind, link = PACKET_TYPES[packet_type], link or Link()
    if len(payload) > kind.most_bytes:
        raise SpecError(f"{len(payload)} bytes in a {packet_type} packet; use at most {kind.most_bytes}")
    if not 0 <= link.member <= _LAST_MEMBER:
        raise SpecError(f"member {link.member} of a piconet; use 0 to {_LAST_MEMBER}")
    lap, uap = address & 0xFFFFFF, address >> 24 & 0xFF
    header = link.member | kind.code << 3 | link.may_send << 7 | link.acknowledges << 8 | link.sequence_bit << 9
    plain = np.concatenate([number_bits(header, 10), number_bits(header_check(header, uap), 8)])
    if kind.most_bytes:
        plain = np.concatenate([plain, bits_of(_with_header_and_check(payload, kind, uap))])
    if clock is not None:
        plain = whitened(plain, 1 << 6 | clock >> 1 & 0x3F)
    body = hamming(plain[18:]) if kind.is_coded else plain[18:]
    return np.concatenate([access_code(lap), repeated(plain[:18]), body])


def _with_header_and_check(payload: bytes, kind: PacketType, uap: int) -> bytes:
    n_bytes = 1 if kind.n_slots == 1 else 2  # long packets have room for a longer length
    header = _START_OF_MESSAGE | 1 << 2 | len(payload) << 3
    body = header.to_bytes(n_bytes, "little") + payload
    return body + payload_check(body, uap)
