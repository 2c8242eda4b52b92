"""Wi-Fi's convolutional code: rate 1/2, over seven bits, thinned out to 2/3, 3/4 and 5/6 (17.3.5.6)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tolfl.signals.wifi.bits import Bits

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


def coded(bits: Bits, rate: Fraction = Fraction(1, 2)) -> Bits:
    """Return the coded bits; their number divided by the rate must be whole.

    >>> coded(np.array([1, 0, 0, 0, 0, 0, 0], np.uint8)).reshape(-1, 2).T.tolist()  # 1011011 is 133, 1111001 is 171
    [[1, 0, 1, 1, 0, 1, 1], [1, 1, 1, 1, 0, 0, 1]]
    """
    past = np.concatenate([np.zeros(TAIL, np.uint8), bits])
    pairs = np.empty((len(bits), 2), np.uint8)
    for column, delays in enumerate((_DELAYS_A, _DELAYS_B)):
        sums = np.zeros(len(bits), np.uint8)
        for delay in delays:
            sums ^= past[TAIL - delay : len(past) - delay]
        pairs[:, column] = sums
    if rate == Fraction(1, 2):
        return pairs.ravel()
    return pairs.reshape(-1, 2 * rate.numerator)[:, KEPT[rate]].ravel()


def coded_in_turn(bits: Bits, rate: Fraction, n_coders: int, turn: int) -> Bits:
    """Return what coders make of bits dealt to them in turn, `turn` coded bits from each at a time (21.3.10.5).

    Every coder gets a tail of its own.
    """
    tail = np.zeros(TAIL, np.uint8)
    streams = [coded(np.concatenate([bits[first::n_coders], tail]), rate) for first in range(n_coders)]
    if n_coders == 1:
        return streams[0]
    return np.stack([stream.reshape(-1, turn) for stream in streams], axis=1).ravel()
