"""What a rate or an MCS stands for, and how long a frame becomes (17.3.2.3, 21.3.19, 21.5)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from tolfl.core.errors import SpecError
from tolfl.signals.wifi.coding import TAIL
from tolfl.signals.wifi.tones import layout

SERVICE = 16  #: bits ahead of the data
_HALF, _TWO_THIRDS, _THREE_QUARTERS, _FIVE_SIXTHS = Fraction(1, 2), Fraction(2, 3), Fraction(3, 4), Fraction(5, 6)
LONGEST_LEGACY = 4095  #: bytes: twelve bits of the signal field
_LEGACY_DATA_TONES = 48
#: Up to here one coder is enough (the last step of the standard's tables before they use two).
_MOST_BITS_OF_ONE_CODER = 2160


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
    6: ("1101", CodingScheme(1, _HALF)),
    9: ("1111", CodingScheme(1, _THREE_QUARTERS)),
    12: ("0101", CodingScheme(2, _HALF)),
    18: ("0111", CodingScheme(2, _THREE_QUARTERS)),
    24: ("1001", CodingScheme(4, _HALF)),
    36: ("1011", CodingScheme(4, _THREE_QUARTERS)),
    48: ("0001", CodingScheme(6, _TWO_THIRDS)),
    54: ("0011", CodingScheme(6, _THREE_QUARTERS)),
}
VHT_SCHEMES = (
    CodingScheme(1, _HALF),
    CodingScheme(2, _HALF),
    CodingScheme(2, _THREE_QUARTERS),
    CodingScheme(4, _HALF),
    CodingScheme(4, _THREE_QUARTERS),
    CodingScheme(6, _TWO_THIRDS),
    CodingScheme(6, _THREE_QUARTERS),
    CodingScheme(6, _FIVE_SIXTHS),
    CodingScheme(8, _THREE_QUARTERS),
    CodingScheme(8, _FIVE_SIXTHS),
)


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
    data_bits = int(scheme.data_bits(_LEGACY_DATA_TONES))
    return Extent(scheme, math.ceil((SERVICE + 8 * n_bytes + TAIL) / data_bits), data_bits)


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
    """Return the LENGTH in a VHT frame's legacy signal field: it tells everybody how long it lasts (21.3.8.2.4)."""
    quarters = math.ceil(Fraction(36, 40) * n_symbols) if short_gi else n_symbols
    length = 3 * (quarters + 5) - 3  # 40 us of preamble, of which the first 20 do not count
    if length > LONGEST_LEGACY:
        raise SpecError(
            f"{n_symbols} symbols last longer than 5.484 ms; send fewer bytes, a higher MCS or more bandwidth"
        )
    return length
