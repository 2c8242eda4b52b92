"""A set of device ids as one integer of bits: merging the sets of 10,000 devices must cost next to nothing."""

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

    __slots__ = ("bits",)

    def __init__(self, bits: int = 0) -> None:
        self.bits = bits

    @classmethod
    def of(cls, ids: Iterable[int]) -> DeviceSet:
        """Return the set of these ids."""
        listed = list(ids)
        if len(listed) < _FEW:
            bits = 0
            for device in listed:
                bits |= 1 << device
            return cls(bits)
        marks = np.zeros(max(listed) + 1, np.bool_)
        marks[listed] = True
        return cls(int.from_bytes(np.packbits(marks, bitorder="little").tobytes(), "little"))

    def __or__(self, other: DeviceSet) -> DeviceSet:
        return DeviceSet(self.bits | other.bits)

    def __sub__(self, other: DeviceSet) -> DeviceSet:
        return DeviceSet(self.bits & ~other.bits)

    def __and__(self, other: DeviceSet) -> DeviceSet:
        return DeviceSet(self.bits & other.bits)

    def __contains__(self, device: int) -> bool:
        return bool(self.bits >> device & 1)

    def __len__(self) -> int:
        return self.bits.bit_count()

    def __iter__(self) -> Iterator[int]:
        octets = self.bits.to_bytes((self.bits.bit_length() + 7) // 8, "little")
        marks = np.unpackbits(np.frombuffer(octets, np.uint8), bitorder="little")
        yield from np.flatnonzero(marks).tolist()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceSet) and self.bits == other.bits

    def __hash__(self) -> int:
        return hash(self.bits)

    def __repr__(self) -> str:
        return f"DeviceSet({list(self)})"
