"""Packets of a capture as arrays: what `Packets` has of the simulation, read from headers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tolfl.signals.captures.ip import REASONS
from tolfl.signals.captures.links import READERS, link_name
from tolfl.signals.captures.numbers import Int64
from tolfl.signals.captures.records import NS, Records, Tally
from tolfl.signals.packets import TCP, Packets

_HEADER_BYTES, _TCP_HEADER_BYTES = 42, 54
_CUT = "cut before the addresses"


@dataclass(frozen=True, slots=True, eq=False)  # arrays: equality is identity
class Heard:
    """Packets in the order of the file; addresses are numbers that mean nothing but who is who."""

    time_ns: Int64
    wire_bytes: NDArray[np.int32]
    source: NDArray[np.uint64]
    destination: NDArray[np.uint64]
    protocol: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.time_ns)

    def take(self, which: NDArray[np.bool_] | NDArray[np.intp]) -> Heard:
        """Return some of the packets, by mask or by index."""
        return Heard(
            self.time_ns[which],
            self.wire_bytes[which],
            self.source[which],
            self.destination[which],
            self.protocol[which],
        )

    def packets(self, start_ns: int | Int64) -> Packets:
        """Return the packets as the statistics want them, with times since `start_ns`, which each may have its own.

        `Packets` adds headers to a payload. What is measured is both together, so the headers are taken off here; a
        frame of 802.11 may be shorter than they are, and its payload negative.
        """
        headers = np.where(self.protocol == TCP, _TCP_HEADER_BYTES, _HEADER_BYTES).astype(np.int32)
        return Packets(
            (self.time_ns - start_ns) / NS,
            self.wire_bytes - headers,
            _numbered(self.source),
            _numbered(self.destination),
            self.protocol,
        )


def heard_in(records: Records, tally: Tally) -> Heard:
    """Read the headers of a block; what cannot be read is counted."""
    links = np.unique(records.link).tolist()
    parts, order = [], []
    for link in links:
        is_own = records.link == link
        if link not in READERS:
            tally.left_out[f"of {link_name(link)}"] += int(is_own.sum())
            continue
        own = records if len(links) == 1 else records.take(is_own)
        found = READERS[link](own)
        _count(found.opaque[found.is_there], int((~found.is_there).sum()), tally)
        heard = Heard(own.time_ns, found.wire_bytes.astype(np.int32), found.source, found.destination, found.protocol)
        parts.append(heard.take(found.is_there))
        order.append(np.flatnonzero(is_own)[found.is_there])
    if len(parts) <= 1:
        return joined(parts)
    return joined(parts).take(np.argsort(np.concatenate(order)))


def joined(parts: Sequence[Heard]) -> Heard:
    """Return packets one after the other."""
    if not parts:
        none = np.empty(0, np.uint64)
        return Heard(np.empty(0, np.int64), np.empty(0, np.int32), none, none, np.empty(0, np.uint8))
    if len(parts) == 1:
        return parts[0]
    return Heard(
        np.concatenate([part.time_ns for part in parts]),
        np.concatenate([part.wire_bytes for part in parts]),
        np.concatenate([part.source for part in parts]),
        np.concatenate([part.destination for part in parts]),
        np.concatenate([part.protocol for part in parts]),
    )


def _count(opaque: NDArray[np.uint8], n_cut: int, tally: Tally) -> None:
    if n_cut:
        tally.left_out[_CUT] += n_cut
    counts = np.bincount(opaque, minlength=len(REASONS) + 1)
    for code, reason in REASONS.items():
        if counts[code]:
            tally.opaque[reason] += int(counts[code])


def _numbered(addresses: NDArray[np.uint64]) -> NDArray[np.int32]:
    return np.unique(addresses, return_inverse=True)[1].astype(np.int32)
