"""What every reader of captures passes on: where packets lie in a block of bytes, when they came, how long they are."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import DataError

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
        """Return numbers of up to seven bytes; a place behind the block gives a number without meaning."""
        words = self.words(places)
        if self._order == ">":
            return (words >> np.uint64(64 - 8 * n_bytes)).astype(np.int64)
        return (words & np.uint64(2 ** (8 * n_bytes) - 1)).astype(np.int64)

    def words(self, places: Int64) -> NDArray[np.uint64]:
        """Return numbers of eight bytes."""
        # Not `take`: it would copy the overlapping words first, eight times the block.
        words = self._words[np.minimum(places, len(self._words) - 1)]
        return words.byteswap() if self._is_swapped else words


SPARE_BYTES = 8  #: behind the data of a block, so that a number may be read at its last byte
BLOCK_BYTES = 4 * 2**20
NS = 1_000_000_000


class CaptureFileError(DataError):
    """A file is not a capture, or one that cannot be read to its end."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path, self.problem = path, problem


class Readable(Protocol):
    """An open file, pipe or child that has been unpacked, and whose errors are sentences."""

    path: Path
    is_live: bool  #: whether more may come later: then `some` may return nothing, and silence is something to hear

    @property
    def is_over(self) -> bool:
        """Whether nothing more can come; known once `some` has returned nothing."""
        ...

    def some(self, n_bytes: int) -> bytes:
        """Return at most so many bytes: what there is; nothing at the end, or if nothing came for a while."""
        ...


def exactly(stream: Readable, n_bytes: int) -> bytes:
    """Return so many bytes, waiting for them; fewer only at the end."""
    found = b""
    while len(found) < n_bytes:
        part = stream.some(n_bytes - len(found))
        if not part and stream.is_over:
            break
        found += part
    return found


#: A packet as its file has it: where in the block the captured bytes begin, how many they are, and how many the packet
#: had before the capture cut it; the link type is as tcpdump.org numbers them.
RECORD = np.dtype([("time_ns", "i8"), ("start", "i8"), ("captured", "i8"), ("original", "i8"), ("link", "i8")])


@dataclass(frozen=True, slots=True, eq=False)  # arrays: equality is identity
class RecordBlock:
    """Packets of one block, as records of `RECORD`, and the bytes of the block with `SPARE_BYTES` more."""

    data: NDArray[np.uint8]
    rows: NDArray[np.void]


@dataclass(slots=True)
class Tally:
    """How many packets a capture has, and what was not understood, by reason."""

    n_packets: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    """Packets that are in no window."""
    opaque: Counter[str] = field(default_factory=Counter)
    """Packets that are counted and measured, but neither as TCP nor as UDP, for want of a readable IP header."""
    clock_steps: list[tuple[int, int]] = field(default_factory=list)
    """Times (ns since 1970) from which, and to which, the clock of the capture stepped; the last hundred."""
    n_clock_steps: int = 0
    notes: list[str] = field(default_factory=list)
    """What else a person should know, in sentences without a full stop."""

    @property
    def sentence(self) -> str:
        """What a person should know; empty if everything was understood.

        >>> Tally(10, Counter({"link type 195": 3})).sentence
        '3 of 10 packets are left out (3 link type 195)'
        """
        parts = []
        if self.left_out:
            parts.append(f"{self.left_out.total()} of {self.n_packets} packets are left out ({_counts(self.left_out)})")
        if self.opaque:
            parts.append(
                f"{self.opaque.total()} of {self.n_packets} packets count, but neither as TCP nor as UDP "
                f"({_counts(self.opaque)})"
            )
        if self.n_clock_steps:
            before, after = self.clock_steps[-1]
            parts.append(
                f"the clock of the capture stepped {self.n_clock_steps} time(s), last by {(after - before) / NS:+.3f} s"
            )
        return "; ".join(parts + self.notes)

    def stepped(self, before_ns: int, after_ns: int) -> None:
        """Note a step of the clock."""
        self.n_clock_steps += 1
        self.clock_steps = [*self.clock_steps[-99:], (before_ns, after_ns)]


class Cutter:
    """Cuts a stream into blocks, keeping what the reader has not used for the next one."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._rest = b""
        self.position = 0  #: of the block in the (unpacked) file

    def blocks(self, first: bytes, position: int) -> Iterator[bytes]:
        """Yield blocks with `SPARE_BYTES` at their end; call `used` for each before asking for the next.

        A block with nothing new says that nothing came for a while.
        """
        self._rest, self.position = first, position
        while True:
            chunk = self._stream.some(BLOCK_BYTES)
            if not chunk and self._stream.is_over:
                return
            yield b"".join((self._rest, chunk, bytes(SPARE_BYTES)))

    def used(self, block: bytes, n_bytes: int) -> None:
        """Say how much of a block is done with."""
        self._rest = block[n_bytes : len(block) - SPARE_BYTES]
        self.position += n_bytes

    @property
    def n_left(self) -> int:
        """How many bytes nobody has used."""
        return len(self._rest)


def cut_short(position: int, n_packets: int) -> str:
    """Return what to say of a file that ends in the middle of something: whole packets are kept."""
    return f"the file ends in the middle of a packet, at byte {position}; the {n_packets} whole ones before it are used"


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in counter.most_common())
