"""Bluetooth's basic rate at baseband: whole DH packets, where they hop, and short glimpses of them.

GFSK at 1 Mb/s, BT 0.5. Numbers in brackets are sections of the Core specification, vol. 2 part B. Bits are in the order
in which they are sent, the least significant one of a byte or number first.
"""

from __future__ import annotations

import binascii
import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tolfl.core.errors import SpecError, UnknownNameError
from tolfl.signals.wifi import Bits, bits_of, check_bits, number_bits

Floats = NDArray[np.float64]
BIT_RATE_HZ = 1e6
MODULATION_INDEX = 0.32  #: basic rate: 0.28 to 0.35
#: Standard deviation of the Gaussian filter in bits, for a bandwidth-time product of 0.5.
_FILTER_BITS = math.sqrt(math.log(2)) / (2 * math.pi * 0.5)
NEIGHBOURS = 2  #: bits on each side that reach into a bit; the filter has died away after 1.5
_SCALE = 1 / (_FILTER_BITS * math.sqrt(2))


def pulse(bits_from_centre: Floats) -> Floats:
    """Return a bit's frequency pulse: a rectangle of one bit behind the Gaussian filter."""
    from scipy.special import erf  # noqa: PLC0415  (scipy is an extra)

    return np.asarray((erf((bits_from_centre + 0.5) * _SCALE) - erf((bits_from_centre - 0.5) * _SCALE)) / 2)


def pulse_so_far(bits_from_centre: Floats) -> Floats:
    """Return the integral of the pulse up to there: from 0 to 1."""
    return np.asarray((_slope(bits_from_centre + 0.5) - _slope(bits_from_centre - 0.5) + 1) / 2)


def _slope(bits: Floats) -> Floats:
    """Return the integral of the error function behind the filter."""
    scaled = bits * _SCALE
    from scipy.special import erf  # noqa: PLC0415  (scipy is an extra)

    return np.asarray((scaled * erf(scaled) + np.exp(-(scaled**2)) / math.sqrt(math.pi)) / _SCALE)


def gfsk(bits: Bits, rate_hz: float, modulation_index: float) -> NDArray[np.complex64]:
    """Return the bits at 1 Mb/s as samples of amplitude 1, around frequency 0; a one is above it.

    The phase is exact at every sample, whether or not a bit is a whole number of them.
    """
    per_bit = rate_hz / BIT_RATE_HZ
    if not (math.isfinite(rate_hz) and per_bit >= 2):
        raise SpecError(f"{rate_hz:g} samples/s for a Bluetooth packet; use at least {2 * BIT_RATE_HZ:g}")
    swings = np.pad(2.0 * bits - 1, NEIGHBOURS)
    before = np.concatenate([[0.0], np.cumsum(swings)])[: len(bits)]  # of bits that are over, each a whole pulse
    near = np.lib.stride_tricks.sliding_window_view(swings, 2 * NEIGHBOURS + 1)
    offsets = np.arange(-NEIGHBOURS, NEIGHBOURS + 1)[:, None] + 0.5
    if per_bit == round(per_bit):
        inside = np.arange(round(per_bit)) / per_bit
        progress = (before[:, None] + near @ pulse_so_far(inside - offsets)).ravel()
    else:
        at = np.arange(math.ceil(len(bits) * per_bit)) / per_bit
        bit = np.minimum(at.astype(np.intp), len(bits) - 1)
        progress = before[bit] + (near[bit].T * pulse_so_far(at - bit - offsets)).sum(axis=0)
    turns = modulation_index / 2 * progress
    angle = (2 * np.pi * (turns - np.round(turns))).astype(np.float32)
    samples = np.empty(len(angle), np.complex64)
    np.cos(angle, out=samples.real)
    np.sin(angle, out=samples.imag)
    return samples


Complex = NDArray[np.complex128]


def gfsk_glimpses(
    rng: np.random.Generator,
    shape: tuple[int, int],
    rate_hz: float,
    band_hz: float,
    power_db: float,
) -> Complex:
    """Return emissions, shape `(n_emissions, n_readings)`: each with its own bits, place in the band and phase."""
    n_emissions, n_readings = shape
    span = math.ceil(n_readings * BIT_RATE_HZ / rate_hz) + 1 + 2 * NEIGHBOURS
    bits = rng.choice(np.array([-1.0, 1.0]), (n_emissions, span))
    since = rng.uniform(0.0, 1.0, (n_emissions, 1))  # of the first bit, when the readings start
    carrier_hz = rng.uniform(-0.5, 0.5, (n_emissions, 1)) * (band_hz - BIT_RATE_HZ)
    phase = rng.uniform(0.0, 2 * np.pi, (n_emissions, 1))
    at = since + np.arange(n_readings) * (BIT_RATE_HZ / rate_hz)
    swing = np.zeros(shape)
    for bit in range(span):
        swing += bits[:, bit : bit + 1] * pulse(at - (bit - NEIGHBOURS + 0.5))
    deviation_hz = MODULATION_INDEX / 2 * BIT_RATE_HZ * swing
    turns = np.cumsum(carrier_hz + deviation_hz, axis=1) / rate_hz
    return np.asarray(10 ** (power_db / 20) * np.exp(1j * (2 * np.pi * turns + phase)))


_BARKER = {0: 0b101100, 1: 0b010011}  #: behind the address, by its last bit; as a number, so the first bit is lowest
_NOISE = 0x83848D96BBCC54FC  #: p63 to p0
_SYNC_GENERATOR = 0o260534236651
_HEADER_GENERATOR = 0b1010_0111  #: D^8 + D^7 + D^5 + D^2 + D + 1
_WHITENING_PERIOD = 127


def _remainder(value: int, generator: int) -> int:
    """Return what is left of a polynomial after division; the highest power is the highest bit."""
    degree = generator.bit_length() - 1
    while value.bit_length() > degree:
        value ^= generator << (value.bit_length() - 1 - degree)
    return value


def _reverse(value: int, n_bits: int) -> int:
    return int(f"{value:0{n_bits}b}"[::-1], 2)


@cache
def access_code(lap: int) -> Bits:
    """Return the 72 bits ahead of a packet: preamble, the sync word of the lower address part, trailer (6.3).

    The sync word is a code word of 64 bits, at least 14 away from any other, behind a fixed noise sequence.
    """
    information = (_BARKER[lap >> 23] << 24 | lap) ^ _NOISE >> 34
    # The first bit of the sync word is the lowest power, and so is the first information bit.
    code_word = information << 34 | _remainder(information << 34, _SYNC_GENERATOR)
    sync = bits_of((code_word ^ _NOISE).to_bytes(8, "little"))
    preamble, trailer = np.array([0, 1, 0, 1]) ^ sync[0], np.array([1, 0, 1, 0]) ^ sync[-1]
    return np.concatenate([preamble, sync, trailer]).astype(np.uint8)


def header_check(header: Bits, uap: int) -> Bits:
    """Return the 8 check bits (HEC) of a header; the register starts with the upper address part (7.1.1)."""
    return check_bits(header, _HEADER_GENERATOR, uap)


def payload_check(payload: bytes, uap: int) -> bytes:
    """Return the two CRC bytes of a payload: CCITT, from the upper address part (7.1.2).

    >>> payload_check(bytes.fromhex("4e010203040506070809"), 0x47).hex()
    '6dd2'
    """
    turned = bytes(_reverse(byte, 8) for byte in payload)
    crc = binascii.crc_hqx(turned, uap)
    return _reverse(crc, 16).to_bytes(2, "little")


@cache
def whitening(register: int) -> Bits:
    """Return one period of the whitening sequence x^7 + x^4 + 1; the register's highest bit comes out first (7.2)."""
    sequence = np.empty(_WHITENING_PERIOD, np.uint8)
    for index in range(_WHITENING_PERIOD):
        out = register >> 6
        sequence[index] = out
        register = (register << 1 & 0x7F | out) ^ out << 4
    sequence.flags.writeable = False
    return sequence


def whiten(bits: Bits, register: int) -> Bits:
    """Return the bits behind whitening; doing it twice gives them back."""
    return bits ^ np.resize(whitening(register), len(bits))


SLOT_S = 625e-6
_START_OF_MESSAGE = 0b10  #: logical link id


@dataclass(frozen=True, slots=True)
class PacketType:
    """A kind of packet: its code in the header, how many slots it takes, and what fits into it."""

    code: int
    n_slots: int
    most_bytes: int


PACKET_TYPES = {"DH1": PacketType(4, 1, 27), "DH3": PacketType(11, 3, 183), "DH5": PacketType(15, 5, 339)}
#: Header bits of the link: to member 1 of the piconet, which may send; no acknowledgement, sequence bit 0.
_LINK_BITS = 1 | 1 << 7


def br_packet(
    payload: bytes, address: int, clock: int, *, rate_hz: float, packet_type: str = "DH1"
) -> NDArray[np.complex64]:
    """Return a packet around frequency 0, with amplitude 1.

    Parameters
    ----------
    address
        Of the central device; its lower part makes the access code, the next byte starts the checks.
    clock
        The central device's, when the packet starts: it sets the whitening, and the channel by `hops`.
    rate_hz
        Samples per second; at least 2 million, and not necessarily whole numbers of bits.
    packet_type
        "DH1", "DH3" or "DH5": 1, 3 or 5 slots, up to 27, 183 or 339 bytes.

    Examples
    --------
    >>> len(br_packet(b"hello", 0x9E8B33, 0, rate_hz=4e6)) // 4  # 72 and 54 bits, a byte, five, and two
    190
    """
    return gfsk(br_bits(payload, address, clock, packet_type), rate_hz, MODULATION_INDEX)


def br_bits(
    payload: bytes, address: int, clock: int | None, packet_type: str = "DH1", link_bits: int = _LINK_BITS
) -> Bits:
    """Return a packet's bits; a clock of `None` leaves whitening out, as in the standard's examples."""
    if packet_type not in PACKET_TYPES:
        raise UnknownNameError("packet type", packet_type, list(PACKET_TYPES))
    kind = PACKET_TYPES[packet_type]
    if len(payload) > kind.most_bytes:
        raise SpecError(f"{len(payload)} bytes in a {packet_type} packet; use at most {kind.most_bytes}")
    lap, uap = address & 0xFFFFFF, address >> 24 & 0xFF
    header = number_bits(link_bits | kind.code << 3, 10)
    body = bits_of(_with_header_and_check(payload, kind, uap))
    plain = np.concatenate([header, header_check(header, uap), body])
    if clock is not None:
        plain = whiten(plain, 1 << 6 | clock >> 1 & 0x3F)
    # The header is sent three times, bit by bit (7.4).
    return np.concatenate([access_code(lap), np.repeat(plain[:18], 3), plain[18:]])


def _with_header_and_check(payload: bytes, kind: PacketType, uap: int) -> bytes:
    n_bytes = 1 if kind.n_slots == 1 else 2  # long packets have room for a longer length
    header = _START_OF_MESSAGE | 1 << 2 | len(payload) << 3
    body = header.to_bytes(n_bytes, "little") + payload
    return body + payload_check(body, uap)


N_CHANNELS = 79
#: Which two bits each control bit, from the first, exchanges.
_EXCHANGES = (
    (0, 1), (2, 3), (1, 2), (3, 4), (0, 4), (1, 3), (0, 2), (3, 4), (1, 4), (0, 3), (2, 4), (1, 3), (0, 3), (1, 2),
)  # fmt: skip


def hops(clocks: ArrayLike, address: int) -> NDArray[np.int64]:
    """Return the channel, 0 to 78, of a connection at each tick of the central device's clock (28 bits).

    Only the address's lowest 28 bits count. All channels are in use: adaptive hopping is not modelled.

    >>> hops(range(0x10, 0x20, 2), 0x2A96EF25).tolist()
    [55, 26, 19, 20, 23, 22, 53, 40]
    """
    clock = np.asarray(clocks, np.int64)
    second = clock >> 1 & 1  # of the two slots: the answer's
    a = (address >> 23 ^ clock >> 21) & 0x1F
    b = address >> 19 & 0xF
    c = (_every_other(address, 0, 5) ^ clock >> 16) & 0x1F
    d = (address >> 10 ^ clock >> 7) & 0x1FF
    e = _every_other(address, 1, 7)
    f = 16 * (clock >> 7 & 0x1FFFFF)
    mixed = _permute((clock >> 2) + a & 0x1F ^ b, (c ^ 0x1F * second) << 9 | d)
    register: NDArray[np.int64] = (mixed + e + f + 32 * second) % N_CHANNELS
    return 2 * register % N_CHANNELS  # even channels first, then the odd ones


def _every_other(address: int, first: int, n_bits: int) -> int:
    return sum((address >> first + 2 * place & 1) << place for place in range(n_bits))


def _permute(value: NDArray[np.int64], control: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return five bits after fourteen exchanges, each done where its control bit is set."""
    result = value.copy()
    for place in range(len(_EXCHANGES) - 1, -1, -1):
        one, other = _EXCHANGES[place]
        differ = (result >> one ^ result >> other) & control >> place & 1
        result ^= differ << one | differ << other
    return result


def br_frequency_hz(channel: int) -> float:
    """Return the centre of a basic-rate channel."""
    if not 0 <= channel < N_CHANNELS:
        raise SpecError(f"Bluetooth channel {channel}; use 0 to {N_CHANNELS - 1}")
    return 2402e6 + 1e6 * channel
