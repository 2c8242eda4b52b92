"""Bits of bytes and numbers, in the order in which they are sent: the least significant one first.

A bit is a `uint8` of 0 or 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.uint8]


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
