"""Frames of 802.11a and 802.11g at baseband, from bytes to samples: OFDM in 20 MHz, 6 to 54 Mb/s.

In the order of transmission: scrambler, convolutional code, interleaver and mapping, tones, OFDM symbols, training and
signal fields, the frame. `wifi_vht` builds the wider frames of 802.11ac on the same parts. Numbers in brackets are
clauses of IEEE 802.11-2020, from memory: a hint where to look, not a citation.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import SpecError

Bits = NDArray[
    np.uint8
]  #: 0 or 1, in the order in which they are sent: of bytes and numbers, the least significant first
Complex = NDArray[np.complex128]


def bits_of(data: bytes) -> Bits:
    """Return the bits of bytes.

    >>> bits_of(bytes([4])).tolist()
    [0, 0, 1, 0, 0, 0, 0, 0]
    """
    return np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")


def number_bits(value: int, n_bits: int) -> Bits:
    """Return a number's `n_bits` bits.

    >>> number_bits(6, 4).tolist()
    [0, 1, 1, 0]
    """
    return ((value >> np.arange(n_bits)) & 1).astype(np.uint8)


def check_bits(bits: Bits, generator: int, register: int) -> Bits:
    """Return the eight check bits of a cyclic code, the highest power first.

    `generator` is its polynomial without the power of eight; division starts with `register` in front of the bits.

    >>> check_bits(number_bits(0x123, 10), 0b1010_0111, 0x47).tolist()  # the header check of Bluetooth's sample data
    [0, 1, 1, 0, 0, 0, 0, 0]
    """
    for bit in bits.tolist():
        feedback = register >> 7 ^ bit
        register = (register << 1 & 0xFF) ^ generator * feedback
    return number_bits(register, 8)[::-1]


_Array = TypeVar("_Array", bound=NDArray[np.generic])


def read_only(array: _Array) -> _Array:
    """Return an array that is shared between frames, read-only."""
    array.flags.writeable = False
    return array


EXAMPLE_SEED = 0b1011101  #: of the standard's example frame
_PERIOD = 127


@cache
def scrambling_sequence(seed: int) -> Bits:
    """Return one period, 127 bits, of the scrambler x^7 + x^4 + 1 that starts from `seed`.

    The most significant of the seed's seven bits is x7, so the first bit is `seed >> 6 ^ seed >> 3`, as in MATLAB's
    WLAN Toolbox. The standard's own seeds, 1011101 and all ones, read the same from both ends and leave it open.
    """
    if not 1 <= seed <= _PERIOD:
        raise SpecError(f"scrambler seed {seed}; use 1 to {_PERIOD}, because the register must not be all zeros")
    state, sequence = seed, np.empty(_PERIOD, np.uint8)
    for index in range(_PERIOD):
        sequence[index] = (state >> 6 ^ state >> 3) & 1
        state = (state << 1 | int(sequence[index])) & _PERIOD
    return read_only(sequence)


def scramble(bits: Bits, seed: int) -> Bits:
    """Return the bits behind the scrambler; doing it twice gives them back."""
    return bits ^ np.resize(scrambling_sequence(seed), len(bits))


TAIL = 6  #: zeros that bring the coder back to where it started
#: How many bits ago each output looks: generators 133 and 171 (octal).
_DELAYS_A, _DELAYS_B = (0, 2, 3, 5, 6), (0, 1, 2, 3, 6)
#: Which of A1 B1 A2 B2 ... are sent.
KEPT: dict[Fraction, NDArray[np.intp]] = {
    Fraction(1, 2): np.array([0, 1]),
    Fraction(2, 3): np.array([0, 1, 2]),
    Fraction(3, 4): np.array([0, 1, 2, 5]),
    Fraction(5, 6): np.array([0, 1, 2, 5, 6, 9]),
}


def encode(bits: Bits, rate: Fraction = Fraction(1, 2)) -> Bits:
    """Return the coded bits; their number divided by the rate must be whole.

    >>> encode(np.array([1, 0, 0, 0, 0, 0, 0], np.uint8)).reshape(-1, 2).T.tolist()  # 1011011 is 133, 1111001 is 171
    [[1, 0, 1, 1, 0, 1, 1], [1, 1, 1, 1, 0, 0, 1]]
    """
    past = np.concatenate([np.zeros(TAIL, np.uint8), bits])
    pairs = np.empty((len(bits), 2), np.uint8)
    for column, delays in enumerate((_DELAYS_A, _DELAYS_B)):
        sums = np.zeros(len(bits), np.uint8)
        for delay in delays:
            sums ^= past[TAIL - delay : len(past) - delay]
        pairs[:, column] = sums
    return pairs.reshape(-1, 2 * rate.numerator)[:, KEPT[rate]].ravel()


Points = NDArray[np.complex64]


@cache
def interleaving(n_columns: int, n_bits: int, bits_per_tone: int) -> NDArray[np.intp]:
    """Return which coded bit each bit of an interleaved block is; a block is an OFDM symbol, or half of one at 160 MHz.

    Neighbours go to distant tones first, then to weak and strong bits of a tone in turn.
    """
    k = np.arange(n_bits)
    i = n_bits // n_columns * (k % n_columns) + k // n_columns
    s = max(bits_per_tone // 2, 1)
    j = s * (i // s) + (i + n_bits - n_columns * i // n_bits) % s
    return read_only(np.argsort(j))


@cache
def points(bits_per_tone: int) -> Points:
    """Return the constellation, by the number whose most significant bit is sent first; mean power 1.

    >>> (points(4)[:4].imag * math.sqrt(10)).round().tolist()
    [-3.0, -1.0, 3.0, 1.0]
    """
    if bits_per_tone == 1:
        table = np.array([-1, 1], np.complex64)
    else:
        half = bits_per_tone // 2
        levels = _gray_levels(half)
        table = (levels[:, None] + 1j * levels[None, :]).ravel().astype(np.complex64)
        table /= math.sqrt(2 / 3 * (4**half - 1))
    return read_only(table)


def _gray_levels(n_bits: int) -> NDArray[np.float64]:
    """Return the level, -(2^n - 1) to 2^n - 1, of each bit pattern; neighbouring levels differ in one bit."""
    ranks = np.arange(2**n_bits)
    levels = np.empty(2**n_bits)
    levels[ranks ^ ranks >> 1] = 2 * ranks - (2**n_bits - 1)
    return levels


def modulate(bits: Bits, bits_per_tone: int) -> Points:
    """Return a point for every `bits_per_tone` bits of the last axis."""
    groups = bits.reshape(*bits.shape[:-1], -1, bits_per_tone)
    index = groups[..., 0].copy()
    for place in range(1, bits_per_tone):
        index <<= 1
        index |= groups[..., place]
    return points(bits_per_tone)[index]


def interleave_and_modulate(bits: Bits, bits_per_tone: int, n_columns: int) -> Points:
    """Return the points on the data tones, lowest first, of coded bits; blocks of the interleaver are the last axis."""
    source = interleaving(n_columns, bits.shape[-1], bits_per_tone)
    return modulate(bits[..., source], bits_per_tone)


FIELD_S = 8e-6
_TRANSITION_S = 100e-9  #: of the time window; the standard leaves it open, 100 ns is its own example
#: Signs of the twelve tones at -24, -20, ..., 24 (without 0) of a 20 MHz slot; each tone is sign * (1 + j) / sqrt(2).
_TONES = np.array([-24, -20, -16, -12, -8, -4, 4, 8, 12, 16, 20, 24])
_SIGNS = np.array([1, -1, 1, -1, -1, 1, -1, -1, 1, 1, 1, 1])
#: How each 20 MHz slot is turned, from the lowest frequency (IEEE 802.11, 21.3.7.5); 160 MHz is 80 MHz twice.
SLOT_ROTATIONS: dict[int, tuple[complex, ...]] = {
    20: (1,),
    40: (1, 1j),
    80: (1, -1, -1, -1),
    160: (1, -1, -1, -1, 1, -1, -1, -1),
}


def check_bandwidth(bandwidth_mhz: int) -> None:
    """Raise an error for a bandwidth that Wi-Fi does not have."""
    if bandwidth_mhz not in SLOT_ROTATIONS:
        raise SpecError(f"bandwidth {bandwidth_mhz} MHz; use one of {', '.join(map(str, SLOT_ROTATIONS))}")


def short_training(bandwidth_mhz: int) -> tuple[NDArray[np.int_], Complex]:
    """Return the tones of the short training field, numbered from the centre, and what is sent before the rotation."""
    return in_every_slot(_TONES, bandwidth_mhz), np.tile(_SIGNS, bandwidth_mhz // 20) * (1 + 1j) / math.sqrt(2)


Tones = NDArray[np.intp]
Signs = NDArray[np.int8]
LEGACY_PILOTS = np.array([-21, -7, 7, 21])
LEGACY_TONES = np.array([tone for tone in range(-26, 27) if tone != 0])
LEGACY_DATA = np.setdiff1d(LEGACY_TONES, LEGACY_PILOTS)
LEGACY_PILOT_SIGNS = np.array([1, 1, 1, -1], np.int8)
LEFT_SIGNS = "++--++-+-++++++--++-+-++++"
RIGHT_SIGNS = "+--++-+-+-----++--+-+-++++"


def signs_of(text: str) -> Signs:
    """Return the signs that a text of `+`, `-` and `0` stands for."""
    return np.array(["-0+".index(sign) - 1 for sign in text], np.int8)


LEGACY_TRAINING = signs_of(LEFT_SIGNS + RIGHT_SIGNS)  #: of the legacy long training field, on `LEGACY_TONES`


def slot_rotation(tones: Tones, bandwidth_mhz: int) -> NDArray[np.complex64]:
    """Return how each tone is turned: by the 20 MHz slot it lies in (21.3.7.5)."""
    slots = SLOT_ROTATIONS[bandwidth_mhz]
    return np.array(slots, np.complex64)[(tones + 32 * len(slots)) // 64]


def in_every_slot(tones: Tones, bandwidth_mhz: int) -> Tones:
    """Return the tones of a 20 MHz channel in every 20 MHz of the band, one slot after the other."""
    n_slots = bandwidth_mhz // 20
    return (64 * np.arange(n_slots)[:, None] - 32 * (n_slots - 1) + tones).ravel()


def polarity(first: int, n_symbols: int) -> Signs:
    """Return the sign that all pilots of a symbol share, for symbols `first` onwards: the scrambler's (17.3.5.10)."""
    signs = 1 - 2 * scrambling_sequence(_PERIOD).astype(np.int8)
    return signs[np.arange(first, first + n_symbols) % _PERIOD]


Samples = NDArray[np.complex64]
SYMBOL_S = 3.2e-6  #: without its guard interval
_LONGEST_WINDOW_S = 0.4e-6  #: the short guard interval: beyond it, a receiver would see the neighbouring symbol


def symbol_samples(bandwidth_mhz: int, oversampling: float) -> int:
    """Return the samples of a symbol without its guard interval: 64 at 20 MHz, once sampled.

    >>> symbol_samples(160, 1.5)
    768
    """
    n_samples = 64 * bandwidth_mhz / 20 * oversampling
    if not (oversampling >= 1 and math.isfinite(oversampling)):
        raise SpecError(f"oversampling {oversampling:g}; use at least 1")
    if n_samples % 8:
        raise SpecError(
            f"oversampling {oversampling:g} at {bandwidth_mhz} MHz cuts a guard interval; use a whole number"
        )
    return int(n_samples)


def symbols(
    tones: Tones,
    values: NDArray[np.complexfloating],
    bandwidth_mhz: int,
    n_fft: int,
    *,
    guard: float = 1 / 4,
    body: float = 1,
) -> Samples:
    """Return symbols, shape `(n_symbols, n_samples)`, of what is sent on the tones, shape `(n_symbols, n_tones)`.

    `guard` and `body` are parts of `n_fft`: how much of a symbol is sent ahead of it, and how often it is repeated.
    """
    spectra = np.zeros((len(values), n_fft), np.complex64)
    spectra[:, tones] = values * slot_rotation(tones, bandwidth_mhz)  # negative tones count from the end
    periods: Samples = np.fft.ifft(spectra, axis=1).astype(np.complex64, copy=False)
    periods *= np.float32(n_fft / math.sqrt(len(tones)))
    n_guard = round(guard * n_fft)
    return periods[:, (np.arange(n_guard + round(body * n_fft)) - n_guard) % n_fft]


def concatenate_fields(fields: Sequence[Samples], n_fft: int, window_s: float) -> Samples:
    """Return fields of symbols as one frame; with a window, each symbol fades into the next over `window_s`.

    The transition is centred where the symbols meet. Half of it would lie before the frame and half behind: it is left
    out, so that a frame starts and ends at half its amplitude and its length does not depend on the window.
    """
    frame = np.concatenate([field.ravel() for field in fields])
    if not 0 <= window_s <= _LONGEST_WINDOW_S:
        raise SpecError(f"a window of {window_s:g} s; use 0 to {_LONGEST_WINDOW_S:g} s, the short guard interval")
    width = window_s * n_fft / SYMBOL_S
    reach = math.ceil(width / 2) - 1  # the transition's ends are 0 and 1: nothing to do there
    if reach < 0:
        return frame
    lengths = np.concatenate([np.full(len(field), field.shape[1]) for field in fields])
    ends = np.cumsum(lengths)
    plain = frame.copy()
    later, earlier = np.arange(reach + 1), np.arange(-reach, 0)
    rising = np.sin(np.pi / 2 * (0.5 + later / width)).astype(np.float32) ** 2
    falling = np.cos(np.pi / 2 * (0.5 + earlier / width)).astype(np.float32) ** 2
    frame[later] *= rising
    frame[ends[-1] + earlier] *= falling
    # A symbol goes on in both directions as it began: a period later, or earlier, is the same sample.
    after = ends[:-1, None] + later
    frame[after] = rising * plain[after] + (1 - rising) * plain[after - n_fft]
    before = ends[:-1, None] + earlier
    frame[before] = falling * plain[before] + (1 - falling) * plain[before + n_fft]
    return frame


def l_stf(bandwidth_mhz: int = 160, oversampling: float = 1.5, window: Literal["none", "ieee"] = "none") -> Complex:
    """Return the whole field at `oversampling` times the bandwidth, with mean power 1.

    `window="ieee"` fades it in over the first 50 ns, the later half of the standard's transition; whether a generator
    puts the earlier half before the first sample is its own choice.

    >>> field = l_stf()
    >>> len(field), round(float(np.abs(field).max()), 6)
    (1920, 1.830136)
    """
    check_bandwidth(bandwidth_mhz)
    if not (oversampling >= 1 and math.isfinite(oversampling)):
        raise SpecError(f"oversampling {oversampling:g}; use at least 1")
    rate_hz = sample_rate_hz(bandwidth_mhz, oversampling)
    tones, values = short_training(bandwidth_mhz)
    values *= slot_rotation(tones, bandwidth_mhz)
    n_samples = round(FIELD_S * rate_hz)
    period = 64 * (bandwidth_mhz // 20) * oversampling
    if abs(period - round(period)) < 1e-9:
        spectrum = np.zeros(round(period), np.complex128)
        spectrum[tones] = values  # negative tones count from the end, as the transform wants them
        field = np.resize(np.fft.ifft(spectrum) * round(period), n_samples)
    else:  # the symbol is not a whole number of samples: sum the tones at the sample times
        field = np.exp(2j * np.pi / period * np.outer(np.arange(n_samples), tones)) @ values
    field /= math.sqrt(len(tones))
    if window == "ieee":
        times_s = np.arange(math.ceil(_TRANSITION_S / 2 * rate_hz)) / rate_hz
        field[: len(times_s)] *= np.sin(np.pi / 2 * (0.5 + times_s / _TRANSITION_S)) ** 2
    return field


def sample_rate_hz(bandwidth_mhz: int, oversampling: float) -> float:
    """Return the samples per second of a waveform: 240 million at 160 MHz and 1.5."""
    return bandwidth_mhz * 1e6 * oversampling


@cache
def short_field(bandwidth_mhz: int, n_fft: int, body: float) -> Samples:
    """Return a short training field that lasts `body` symbols."""
    tones, values = short_training(bandwidth_mhz)
    return read_only(symbols(tones, values[None], bandwidth_mhz, n_fft, guard=0, body=body))


@cache
def legacy_training(bandwidth_mhz: int, n_fft: int) -> tuple[Samples, Samples]:
    """Return the legacy training fields, 8 us each: ten short symbols; two long ones behind a double guard interval."""
    tones = in_every_slot(LEGACY_TONES, bandwidth_mhz)
    long_values = np.tile(LEGACY_TRAINING, bandwidth_mhz // 20)[None].astype(np.complex64)
    long_field = symbols(tones, long_values, bandwidth_mhz, n_fft, guard=1 / 2, body=2)
    return short_field(bandwidth_mhz, n_fft, body=2.5), read_only(long_field)


def legacy_symbols(values: Points, bandwidth_mhz: int, n_fft: int) -> Samples:
    """Return symbols of 52 tones, sent in every 20 MHz of the band."""
    tones = in_every_slot(LEGACY_TONES, bandwidth_mhz)
    return symbols(tones, np.tile(values, (1, bandwidth_mhz // 20)), bandwidth_mhz, n_fft)


SERVICE = 16  #: bits ahead of the data
HALF, TWO_THIRDS, THREE_QUARTERS, FIVE_SIXTHS = Fraction(1, 2), Fraction(2, 3), Fraction(3, 4), Fraction(5, 6)
LONGEST_LEGACY = 4095  #: bytes: twelve bits of the signal field


@dataclass(frozen=True, slots=True)
class CodingScheme:
    """Bits on a tone and share of them that is data."""

    bits_per_tone: int
    code_rate: Fraction

    def data_bits(self, n_tones: int) -> Fraction:
        """Return the data bits of a symbol with `n_tones` data tones."""
        return n_tones * self.bits_per_tone * self.code_rate


#: Legacy rates in Mb/s: the four bits that announce them, in the order they are sent, and what they are.
LEGACY_RATES = {
    6: ("1101", CodingScheme(1, HALF)),
    9: ("1111", CodingScheme(1, THREE_QUARTERS)),
    12: ("0101", CodingScheme(2, HALF)),
    18: ("0111", CodingScheme(2, THREE_QUARTERS)),
    24: ("1001", CodingScheme(4, HALF)),
    36: ("1011", CodingScheme(4, THREE_QUARTERS)),
    48: ("0001", CodingScheme(6, TWO_THIRDS)),
    54: ("0011", CodingScheme(6, THREE_QUARTERS)),
}


@dataclass(frozen=True, slots=True)
class Extent:
    """How much room a frame's data takes."""

    scheme: CodingScheme
    n_symbols: int
    data_bits: int  #: of a symbol
    n_coders: int = 1

    @property
    def psdu_bytes(self) -> int:
        """Bytes that fit beside service and tail bits."""
        return (self.n_symbols * self.data_bits - SERVICE - TAIL * self.n_coders) // 8


def legacy_extent(n_bytes: int, rate_mbps: int) -> Extent:
    """Return the room of a legacy frame of `n_bytes`."""
    if rate_mbps not in LEGACY_RATES:
        raise SpecError(f"{rate_mbps} Mb/s; use one of {', '.join(map(str, LEGACY_RATES))}")
    if not 1 <= n_bytes <= LONGEST_LEGACY:
        raise SpecError(f"a legacy frame of {n_bytes} bytes; use 1 to {LONGEST_LEGACY}")
    scheme = LEGACY_RATES[rate_mbps][1]
    data_bits = int(scheme.data_bits(len(LEGACY_DATA)))
    return Extent(scheme, math.ceil((SERVICE + 8 * n_bytes + TAIL) / data_bits), data_bits)


LEGACY_COLUMNS = 16  #: of the legacy interleaver
ONE, ZERO = np.ones(1, np.uint8), np.zeros(1, np.uint8)
TAIL_BITS = np.zeros(TAIL, np.uint8)


def l_sig_bits(rate_mbps: int, length: int) -> Bits:
    """Return the 24 bits of the legacy signal field.

    >>> "".join(map(str, l_sig_bits(36, 100)))
    '101100010011000000000000'
    """
    rate = np.array([int(bit) for bit in LEGACY_RATES[rate_mbps][0]], np.uint8)
    announced = np.concatenate([rate, ZERO, number_bits(length, 12)])
    parity = number_bits(int(announced.sum()), 1)
    return np.concatenate([announced, parity, TAIL_BITS])


def legacy_points(bits: Bits) -> Points:
    """Return the points of L-SIG or SIG-A on the 48 data tones, one row for every 24 bits, coded in one go."""
    return interleave_and_modulate(encode(bits).reshape(-1, 48), 1, LEGACY_COLUMNS)


def with_legacy_pilots(points: Points, first_polarity: int) -> Points:
    """Return symbols of all 52 tones: data, and pilots that start with polarity `first_polarity`."""
    values = np.empty((len(points), len(LEGACY_TONES)), np.complex64)
    values[:, np.searchsorted(LEGACY_TONES, LEGACY_DATA)] = points
    signs = polarity(first_polarity, len(points))[:, None] * LEGACY_PILOT_SIGNS
    values[:, np.searchsorted(LEGACY_TONES, LEGACY_PILOTS)] = signs
    return values


_BANDWIDTH_MHZ = 20


def legacy_frame(
    psdu: bytes, rate_mbps: int, *, seed: int = EXAMPLE_SEED, oversampling: float = 1, window_s: float = 0.0
) -> Samples:
    """Return a frame at `oversampling` times 20 MS/s, with mean power 1.

    Parameters
    ----------
    psdu
        What is sent, its check sequence included: what `data_mpdu` returns. 1 to 4095 bytes.
    rate_mbps
        6, 9, 12, 18, 24, 36, 48 or 54.
    seed
        Of the scrambler, 1 to 127; its highest bit is x7, as in MATLAB's WLAN Toolbox and GNU Radio's transmitters.
    oversampling
        Any whole number, and others (1.5) where the guard interval stays a whole number of samples.
    window_s
        How long symbols fade into one another, up to 400 ns: the standard's own example has 100 ns. Without it they are
        cut.

    Examples
    --------
    >>> len(legacy_frame(bytes(100), 36))  # 20 us, and six symbols of 4 us
    880
    """
    extent = legacy_extent(len(psdu), rate_mbps)
    n_fft = symbol_samples(_BANDWIDTH_MHZ, oversampling)
    bits = encode(data_bits(psdu, extent, seed), extent.scheme.code_rate).reshape(extent.n_symbols, -1)
    data = interleave_and_modulate(bits, extent.scheme.bits_per_tone, LEGACY_COLUMNS)
    signal = legacy_points(l_sig_bits(rate_mbps, len(psdu)))
    values = with_legacy_pilots(np.concatenate([signal, data]), first_polarity=0)
    fields = [*legacy_training(_BANDWIDTH_MHZ, n_fft), legacy_symbols(values, _BANDWIDTH_MHZ, n_fft)]
    return concatenate_fields(fields, n_fft, window_s)


def data_bits(psdu: bytes, extent: Extent, seed: int) -> Bits:
    """Return the scrambled bits of all data symbols: service, data, tail and padding, in that order."""
    bits = np.zeros(extent.n_symbols * extent.data_bits, np.uint8)
    end = SERVICE + 8 * len(psdu)
    bits[SERVICE:end] = bits_of(psdu)
    bits = scramble(bits, seed)
    bits[end : end + TAIL] = 0  # the coder must end where it began
    return bits


_FROM_ACCESS_POINT, _TO_ACCESS_POINT = bytes([0x88, 0x02]), bytes([0x88, 0x01])  #: QoS data
_ADDRESS_BYTES = 6


def with_check_sequence(frame: bytes) -> bytes:
    """Return a frame with its FCS behind it: the CRC-32 of all its bytes.

    >>> with_check_sequence(b"123456789")[-4:].hex()
    '2639f4cb'
    """
    return frame + zlib.crc32(frame).to_bytes(4, "little")


def data_mpdu(
    payload: bytes,
    receiver: bytes,
    transmitter: bytes,
    other: bytes,
    sequence_number: int = 0,
    *,
    to_access_point: bool = False,
) -> bytes:
    """Return a QoS data frame from an access point, or to it, with its check sequence.

    Parameters
    ----------
    payload
        With the LLC header of its protocol: `aaaa03000000 0800` ahead of an IPv4 packet.
    receiver, transmitter, other
        Addresses of six bytes. The other one is the source of what an access point sends, and the destination of what
        is sent to it.
    """
    addresses = receiver, transmitter, other
    for address in addresses:
        if len(address) != _ADDRESS_BYTES:
            raise SpecError(f"address {address.hex(':')} has {len(address)} bytes; use {_ADDRESS_BYTES}")
    duration, qos = bytes(2), bytes(2)
    sequence = (sequence_number % 4096 << 4).to_bytes(2, "little")
    control = _TO_ACCESS_POINT if to_access_point else _FROM_ACCESS_POINT
    return with_check_sequence(control + duration + b"".join(addresses) + sequence + qos + payload)
