"""Bits of a frame: from bytes and numbers, the scrambler (17.3.5.5) and the checks of the signal fields.

A bit is a `uint8` of 0 or 1, in the order in which it is sent: of bytes and numbers, the least significant one first.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import SpecError

Bits = NDArray[np.uint8]

EXAMPLE_SEED = 0b1011101  #: of the standard's example frame
_PERIOD = 127


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
    sequence.flags.writeable = False
    return sequence


def scrambled(bits: Bits, seed: int) -> Bits:
    """Return the bits behind the scrambler; doing it twice gives them back."""
    return bits ^ np.resize(scrambling_sequence(seed), len(bits))


@cache
def pilot_polarity() -> NDArray[np.int8]:
    """Return p_0 to p_126, plus and minus one: the scrambler's sequence from a register of ones (17.3.5.10)."""
    polarity: NDArray[np.int8] = 1 - 2 * scrambling_sequence(_PERIOD).astype(np.int8)
    polarity.flags.writeable = False
    return polarity


def crc8(bits: Bits) -> Bits:
    """Return the check bits c7 to c0 of signal fields and delimiters: D^8 + D^2 + D + 1, from ones, inverted.

    It is the HT signal field's (19.3.9.4.4), and the example is the standard's.

    >>> "".join(map(str, crc8(np.array([int(b) for b in "1111000100100110000000001110000000"], np.uint8))))
    '10101000'
    """
    register = 0xFF
    for bit in bits.tolist():  # at most 34 bits
        feedback = register >> 7 ^ bit
        register = (register << 1 & 0xFF) ^ 0b111 * feedback
    return number_bits(register ^ 0xFF, 8)[::-1]
