"""Numbers out of a block of bytes, at many places at once and at any of them."""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]


class Numbers:
    """Unsigned numbers of a block, read with one look-up each.

    Parameters
    ----------
    data
        The bytes, and eight more that nobody looks at.
    order
        `>` (networks), or `<`.

    >>> numbers = Numbers(np.arange(12, dtype=np.uint8))
    >>> [hex(number) for number in numbers.at(np.array([0, 2]), 2).tolist()]
    ['0x1', '0x203']
    """

    def __init__(self, data: NDArray[np.uint8], order: str = ">") -> None:
        self.data, self._order = data, order
        # A word of eight bytes at every byte. In the machine's own order: NumPy looks others up one by one.
        self._words = np.ndarray((max(len(data) - 7, 0),), np.uint64, buffer=data, strides=(1,))
        self._is_swapped = (order == ">") == (sys.byteorder == "little")

    def at(self, places: Int64, n_bytes: int) -> Int64:
        """Return numbers of up to seven bytes; a place outside of the block gives a number without meaning."""
        words = self.words(places)
        if self._order == ">":
            return (words >> np.uint64(64 - 8 * n_bytes)).astype(np.int64)
        return (words & np.uint64(2 ** (8 * n_bytes) - 1)).astype(np.int64)

    def words(self, places: Int64) -> NDArray[np.uint64]:
        """Return numbers of eight bytes."""
        # Not `take`: it would copy the overlapping words first, eight times the block.
        words = self._words[np.clip(places, 0, len(self._words) - 1)]
        return words.byteswap() if self._is_swapped else words
