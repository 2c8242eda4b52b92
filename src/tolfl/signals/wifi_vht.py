"""Frames of 802.11ac (VHT): one stream and antenna, 20 to 160 MHz, MCS 0 to 9, convolutional code (clause 21).

Aggregates of frames, tones of each bandwidth, the signal fields SIG-A and SIG-B, and the frame.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np

from tolfl.core.errors import SpecError
from tolfl.signals.wifi import (
    EXAMPLE_SEED,
    FIVE_SIXTHS,
    HALF,
    LEFT_SIGNS,
    LONGEST_LEGACY,
    ONE,
    RIGHT_SIGNS,
    SERVICE,
    TAIL,
    TAIL_BITS,
    THREE_QUARTERS,
    TWO_THIRDS,
    ZERO,
    Bits,
    CodingScheme,
    Extent,
    Points,
    Samples,
    Signs,
    Tones,
    bits_of,
    check_bandwidth,
    check_bits,
    concatenate_fields,
    encode,
    interleave_and_modulate,
    l_sig_bits,
    legacy_points,
    legacy_symbols,
    legacy_training,
    number_bits,
    polarity,
    read_only,
    scramble,
    short_field,
    signs_of,
    symbol_samples,
    symbols,
    with_legacy_pilots,
)

_SIGNATURE = b"N"  #: by which a receiver finds the next delimiter
LONGEST_MPDU = 11_454  #: bytes, check sequence included


def delimiter(n_bytes: int, end_of_frame: bool) -> bytes:
    """Return the four bytes ahead of a frame in an aggregate; end of frame and length 0 is padding.

    >>> delimiter(0, end_of_frame=True).hex()[:4], delimiter(0, end_of_frame=True)[-1:]
    ('0100', b'N')
    """
    reserved = ZERO
    announced = np.concatenate(
        [number_bits(end_of_frame, 1), reserved, number_bits(n_bytes >> 12, 2), number_bits(n_bytes, 12)]
    )
    return np.packbits(np.concatenate([announced, crc8(announced)]), bitorder="little").tobytes() + _SIGNATURE


def ampdu(frames: Sequence[bytes]) -> bytes:
    """Return frames as one aggregate, each behind its delimiter and padded to four bytes, as VHT sends all its data.

    A frame that is alone is marked as the end, which is how VHT sends a single frame.
    """
    if not frames:
        raise SpecError("an aggregate of no frames; use at least one")
    parts = []
    for frame in frames:
        if not 1 <= len(frame) <= LONGEST_MPDU:
            raise SpecError(f"a frame of {len(frame)} bytes in an aggregate; use 1 to {LONGEST_MPDU}")
        parts += [delimiter(len(frame), end_of_frame=len(frames) == 1), frame, bytes(-len(frame) % 4)]
    return b"".join(parts)


def fill(psdu: bytes, n_bytes: int) -> bytes:
    """Return an aggregate followed by end-of-frame delimiters, and up to three zeros, so that it has `n_bytes`."""
    whole = psdu + bytes(min(-len(psdu) % 4, n_bytes - len(psdu)))
    n_delimiters, rest = divmod(n_bytes - len(whole), 4)
    return whole + delimiter(0, end_of_frame=True) * n_delimiters + bytes(rest)


def crc8(bits: Bits) -> Bits:
    """Return the check bits c7 to c0 of signal fields and delimiters: D^8 + D^2 + D + 1, from ones, inverted.

    It is the HT signal field's (19.3.9.4.4), and the example is the standard's.

    >>> "".join(map(str, crc8(np.array([int(b) for b in "1111000100100110000000001110000000"], np.uint8))))
    '10101000'
    """
    return check_bits(bits, 0b111, register=0xFF) ^ ONE


_FORTY = LEFT_SIGNS + "+" + RIGHT_SIGNS + "---+", "-++-" + LEFT_SIGNS + "+" + RIGHT_SIGNS
_EIGHTY = (
    LEFT_SIGNS + "+" + RIGHT_SIGNS + "---++-+-++-" + LEFT_SIGNS + "+" + RIGHT_SIGNS + "+-+-",
    "+--+" + LEFT_SIGNS + "+" + RIGHT_SIGNS + "---++-+-++-" + LEFT_SIGNS + "+" + RIGHT_SIGNS,
)
_SHORT_ZEROS, _LONG_ZEROS = "000", "0" * 11
#: The VHT long training sequence from the lowest tone to the highest.
_VHT_SEQUENCES = {
    20: "++" + LEFT_SIGNS + "0" + RIGHT_SIGNS + "--",
    40: _SHORT_ZEROS.join(_FORTY),
    80: _SHORT_ZEROS.join(_EIGHTY),
    160: _LONG_ZEROS.join([_SHORT_ZEROS.join(_EIGHTY)] * 2),
}
_PILOTS = {20: (7, 21), 40: (11, 25, 53), 80: (11, 39, 75, 103), 160: (25, 53, 89, 117, 139, 167, 203, 231)}
_PILOT_SIGNS = {20: "+++-", 40: "+++--+", 80: "+++--+++", 160: "+++--+++"}
_COLUMNS = {20: 13, 40: 18, 80: 26, 160: 26}


@dataclass(frozen=True, slots=True)
class Layout:
    """What a bandwidth looks like in the VHT part of a frame."""

    bandwidth_mhz: int
    tones: Tones  #: all that are used
    training: Signs  #: of the long training field, on `tones`
    data: Tones
    pilots: Tones
    pilot_signs: Signs  #: that move on by one pilot with every symbol
    n_columns: int  #: of the interleaver
    n_segments: int


@cache
def layout(bandwidth_mhz: int) -> Layout:
    """Return the layout of 20, 40, 80 or 160 MHz."""
    check_bandwidth(bandwidth_mhz)
    sequence = signs_of(_VHT_SEQUENCES[bandwidth_mhz])
    span = np.arange(len(sequence)) - len(sequence) // 2
    used = sequence != 0
    pilots = np.sort([side * tone for tone in _PILOTS[bandwidth_mhz] for side in (-1, 1)])
    return Layout(
        bandwidth_mhz,
        tones=span[used],
        training=sequence[used],
        data=np.setdiff1d(span[used], pilots),
        pilots=pilots,
        pilot_signs=signs_of(_PILOT_SIGNS[bandwidth_mhz]),
        n_columns=_COLUMNS[bandwidth_mhz],
        n_segments=2 if bandwidth_mhz == 160 else 1,
    )


def vht_pilots(shape: Layout, first_polarity: int, n_symbols: int) -> Signs:
    """Return the pilots, lowest tone first, of VHT symbols 0, 1, ..., shape `(n_symbols, n_pilots)` (21.3.10.10)."""
    place = np.arange(n_symbols)[:, None] + np.arange(len(shape.pilots))
    signs: Signs = polarity(first_polarity, n_symbols)[:, None] * shape.pilot_signs[place % len(shape.pilot_signs)]
    return signs


#: Up to here one coder is enough (the last step of the standard's tables before they use two).
_MOST_BITS_OF_ONE_CODER = 2160
VHT_SCHEMES = (
    CodingScheme(1, HALF),
    CodingScheme(2, HALF),
    CodingScheme(2, THREE_QUARTERS),
    CodingScheme(4, HALF),
    CodingScheme(4, THREE_QUARTERS),
    CodingScheme(6, TWO_THIRDS),
    CodingScheme(6, THREE_QUARTERS),
    CodingScheme(6, FIVE_SIXTHS),
    CodingScheme(8, THREE_QUARTERS),
    CodingScheme(8, FIVE_SIXTHS),
)


def vht_extent(n_bytes: int, bandwidth_mhz: int, mcs: int) -> Extent:
    """Return the room of a VHT frame of one stream that carries `n_bytes` before padding.

    >>> vht_extent(100, 160, 9).n_coders, vht_extent(100, 160, 1).data_bits
    (2, 468)
    """
    n_tones = len(layout(bandwidth_mhz).data)
    if not 0 <= mcs < len(VHT_SCHEMES):
        raise SpecError(f"MCS {mcs}; use 0 to {len(VHT_SCHEMES) - 1}")
    scheme = VHT_SCHEMES[mcs]
    data_bits = scheme.data_bits(n_tones)
    if data_bits.denominator != 1:
        raise SpecError(f"MCS {mcs} at {bandwidth_mhz} MHz has no whole number of bits in a symbol; use 0 to {mcs - 1}")
    if n_bytes < 1:
        raise SpecError("a VHT frame without data; use at least 1 byte")
    n_coders = 1 if data_bits <= _MOST_BITS_OF_ONE_CODER else 2
    n_symbols = math.ceil((8 * n_bytes + SERVICE + TAIL * n_coders) / data_bits)
    return Extent(scheme, n_symbols, int(data_bits), n_coders)


def vht_legacy_length(n_symbols: int, short_gi: bool) -> int:
    """Return the LENGTH in a VHT frame's legacy signal field: which announces its duration (21.3.8.2.4)."""
    quarters = math.ceil(Fraction(36, 40) * n_symbols) if short_gi else n_symbols
    length = 3 * (quarters + 5) - 3  # 40 us of preamble, of which the first 20 do not count
    if length > LONGEST_LEGACY:
        raise SpecError(
            f"{n_symbols} symbols last longer than 5.484 ms; send fewer bytes, a higher MCS or more bandwidth"
        )
    return length


def encode_in_turn(bits: Bits, rate: Fraction, n_coders: int, turn: int) -> Bits:
    """Return what coders make of bits dealt to them in turn, `turn` coded bits from each at a time (21.3.10.5).

    Every coder gets a tail of its own.
    """
    streams = [encode(np.concatenate([bits[first::n_coders], TAIL_BITS]), rate) for first in range(n_coders)]
    if n_coders == 1:
        return streams[0]
    return np.stack([stream.reshape(-1, turn) for stream in streams], axis=1).ravel()


def segments(bits: Bits, n_segments: int, turn: int) -> Bits:
    """Return each symbol's bits dealt to segments of 80 MHz, `turn` at a time, shape `(n_symbols, n_segments, ...)`."""
    n_symbols = len(bits)
    dealt = bits.reshape(n_symbols, -1, n_segments, turn).swapaxes(1, 2)
    return dealt.reshape(n_symbols, n_segments, -1)


def _modulate_segments(bits: Bits, bits_per_tone: int, shape: Layout, n_coders: int = 1) -> Points:
    """Return the points on the data tones, lowest first, of coded bits of shape `(n_symbols, n_bits)`."""
    turn = max(bits_per_tone // 2, 1) * n_coders
    dealt = segments(bits, shape.n_segments, turn)
    return interleave_and_modulate(dealt, bits_per_tone, shape.n_columns).reshape(len(bits), -1)


@cache
def vht_training(bandwidth_mhz: int, n_fft: int) -> tuple[Samples, Samples]:
    """Return VHT's short and long training fields, 4 us each."""
    shape = layout(bandwidth_mhz)
    long_field = symbols(shape.tones, shape.training[None].astype(np.complex64), bandwidth_mhz, n_fft)
    return short_field(bandwidth_mhz, n_fft, body=1.25), read_only(long_field)


_NOT_TO_AN_ACCESS_POINT = 63  #: group id of a frame for one device that is no access point
#: Bits of the length, and of the reserved ones behind it, in SIG-B; how often all is sent; zeros in the end.
_SIG_B = {20: (17, 3, 1, 0), 40: (19, 2, 2, 0), 80: (21, 2, 4, 1), 160: (21, 2, 4, 1)}


def sig_a_bits(bandwidth_mhz: int, mcs: int, short_gi: bool, n_symbols: int) -> Bits:
    """Return the 48 bits of SIG-A of one stream, coded with the convolutional code, to one device."""
    first = [
        number_bits((20, 40, 80, 160).index(bandwidth_mhz), 2),
        ONE,  # reserved
        ZERO,  # no space-time block code
        number_bits(_NOT_TO_AN_ACCESS_POINT, 6),
        number_bits(0, 3),  # one stream
        number_bits(0, 9),  # partial association id
        ZERO,  # others may doze meanwhile
        ONE,  # reserved
    ]
    second = [
        number_bits(short_gi, 1),
        number_bits(
            short_gi and n_symbols % 10 == 9, 1
        ),  # else the duration would leave two counts of symbols possible
        number_bits(0, 2),  # convolutional code
        number_bits(mcs, 4),
        ZERO,  # not beamformed
        ONE,  # reserved
    ]
    announced = np.concatenate(first + second)
    return np.concatenate([announced, crc8(announced), TAIL_BITS])


def sig_b_bits(bandwidth_mhz: int, n_bytes: int) -> Bits:
    """Return the bits of SIG-B that its check covers: the length in units of four bytes, and reserved ones."""
    n_length, n_reserved, _, _ = _SIG_B[bandwidth_mhz]
    return np.concatenate([number_bits(math.ceil(n_bytes / 4), n_length), np.ones(n_reserved, np.uint8)])


def sig_b_points(bits: Bits, shape: Layout) -> Points:
    """Return the points of SIG-B on the data tones: sent several times to fill the band."""
    _, _, n_copies, n_zeros = _SIG_B[shape.bandwidth_mhz]
    block = np.concatenate([np.tile(np.concatenate([bits, TAIL_BITS]), n_copies), np.zeros(n_zeros, np.uint8)])
    every_segment = encode(np.tile(block, shape.n_segments))[None]
    return _modulate_segments(every_segment, 1, shape)


_ANNOUNCED_RATE_MBPS = 6  #: in the legacy signal field, whatever the data's rate
_SIG_B_POLARITY, _DATA_POLARITY = 3, 4  #: the first three are those of L-SIG and SIG-A


def vht_frame(
    psdu: bytes,
    bandwidth_mhz: int,
    mcs: int,
    *,
    short_gi: bool = False,
    seed: int = EXAMPLE_SEED,
    oversampling: float = 1,
    window_s: float = 0.0,
) -> Samples:
    """Return a frame at `oversampling` times the bandwidth, with mean power 1.

    One stream and antenna, convolutional code, up to 5.484 ms.

    Parameters
    ----------
    psdu
        What is sent: what `ampdu` returns. The rest of the last symbol is filled with end-of-frame delimiters.
    bandwidth_mhz
        20, 40, 80 or 160.
    mcs
        0 (BPSK 1/2) to 9 (256-QAM 5/6); 20 MHz ends with 8.
    short_gi
        Whether data symbols have a guard interval of 0.4 us, not 0.8.
    seed
        Of the scrambler; this and the next two as in `legacy_frame`.
    oversampling
        Samples per second over the bandwidth.
    window_s
        How long symbols fade into one another; without it they are cut.

    Examples
    --------
    >>> len(vht_frame(bytes(100), 160, 1, oversampling=1.5)) / 960  # ten symbols of preamble, two of data
    12.0
    """
    shape, extent = layout(bandwidth_mhz), vht_extent(len(psdu), bandwidth_mhz, mcs)
    n_fft = symbol_samples(bandwidth_mhz, oversampling)
    length = vht_legacy_length(extent.n_symbols, short_gi)
    announced = [
        l_sig_bits(_ANNOUNCED_RATE_MBPS, length),
        sig_a_bits(bandwidth_mhz, mcs, short_gi, extent.n_symbols),
    ]
    sig_b = sig_b_bits(bandwidth_mhz, len(psdu))
    legacy = np.concatenate([legacy_points(bits) for bits in announced])
    legacy[2] *= 1j  # by this quarter turn a receiver knows that the frame is VHT
    fields = [
        *legacy_training(bandwidth_mhz, n_fft),
        legacy_symbols(with_legacy_pilots(legacy, first_polarity=0), bandwidth_mhz, n_fft),
        *vht_training(bandwidth_mhz, n_fft),
        _symbols(sig_b_points(sig_b, shape), shape, n_fft, first_polarity=_SIG_B_POLARITY),
        _symbols(_data(psdu, sig_b, shape, extent, seed), shape, n_fft, _DATA_POLARITY, 1 / 8 if short_gi else 1 / 4),
    ]
    return concatenate_fields(fields, n_fft, window_s)


def vht_data_bits(psdu: bytes, sig_b: Bits, extent: Extent, seed: int) -> Bits:
    """Return the scrambled bits of all data symbols, without the tails: service, data, padding."""
    bits = np.zeros(extent.n_symbols * extent.data_bits - TAIL * extent.n_coders, np.uint8)
    bits[8:SERVICE] = crc8(sig_b)
    data = bits_of(fill(psdu, extent.psdu_bytes))
    bits[SERVICE : SERVICE + len(data)] = data
    return scramble(bits, seed)


def _data(psdu: bytes, sig_b: Bits, shape: Layout, extent: Extent, seed: int) -> Points:
    scheme = extent.scheme
    turn = max(scheme.bits_per_tone // 2, 1)
    bits = encode_in_turn(vht_data_bits(psdu, sig_b, extent, seed), scheme.code_rate, extent.n_coders, turn)
    by_symbol = bits.reshape(extent.n_symbols, -1)
    return _modulate_segments(by_symbol, scheme.bits_per_tone, shape, extent.n_coders)


def _symbols(points: Points, shape: Layout, n_fft: int, first_polarity: int, guard: float = 1 / 4) -> Samples:
    """Return symbols of data and pilots."""
    values = np.empty((len(points), len(shape.tones)), np.complex64)
    values[:, np.searchsorted(shape.tones, shape.data)] = points
    values[:, np.searchsorted(shape.tones, shape.pilots)] = vht_pilots(shape, first_polarity, len(points))
    return symbols(shape.tones, values, shape.bandwidth_mhz, n_fft, guard=guard)
