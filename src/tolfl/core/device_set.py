"""A set of device ids as one integer of bits: merging the sets of 10,000 devices must cost next to nothing.

The bits begin at some id, so that a device or a cluster of neighbours costs its own bits, wherever it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

_FEW = 64  # below it, bits one by one are faster than an array


class DeviceSet:
    """An immutable set of device ids.

    >>> both = DeviceSet.of([3, 1]) | DeviceSet.of([4])
    >>> list(both), len(both), 1 in both
    ([1, 3, 4], 3, True)
    """

    __slots__ = ("_first", "_places")

    def __init__(self, bits: int = 0, first: int = 0) -> None:
        self._places, self._first = bits, first

    @classmethod
    def of(cls, ids: Iterable[int]) -> DeviceSet:
        """Return the set of these ids."""
        listed = list(ids)
        first = min(listed, default=0)
        if len(listed) < _FEW:
            bits = 0
            for device in listed:
                bits |= 1 << device - first
            return cls(bits, first)
        marks = np.zeros(max(listed) + 1 - first, np.bool_)
        marks[np.array(listed) - first] = True
        return cls(int.from_bytes(np.packbits(marks, bitorder="little").tobytes(), "little"), first)

    @property
    def bits(self) -> int:
        """One bit for each device, that of device 0 first."""
        return self._places << self._first

    def __or__(self, other: DeviceSet) -> DeviceSet:
        first = min(self._first, other._first)
        return DeviceSet(self._places << self._first - first | other._places << other._first - first, first)

    def __sub__(self, other: DeviceSet) -> DeviceSet:
        return DeviceSet(self.bits & ~other.bits)

    def __and__(self, other: DeviceSet) -> DeviceSet:
        return DeviceSet(self.bits & other.bits)

    def __contains__(self, device: int) -> bool:
        return device >= self._first and bool(self._places >> device - self._first & 1)

    def __len__(self) -> int:
        return self._places.bit_count()

    def __iter__(self) -> Iterator[int]:
        octets = self._places.to_bytes((self._places.bit_length() + 7) // 8, "little")
        marks = np.unpackbits(np.frombuffer(octets, np.uint8), bitorder="little")
        yield from (np.flatnonzero(marks) + self._first).tolist()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceSet) and self.bits == other.bits

    def __hash__(self) -> int:
        return hash(self.bits)

    def __repr__(self) -> str:
        return f"DeviceSet({list(self)})"
