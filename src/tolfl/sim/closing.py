"""A closed round on its way to becoming a record line."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from tolfl.core.records import RoundClosed
from tolfl.protocol.history import ClosedRound
from tolfl.protocol.record_lines import round_line
from tolfl.runs.ledger import Ledger
from tolfl.sim.promises import Step


@dataclass
class Closing:
    """A closed round: its model as a promise, its record once all its messages are sent."""

    step: Step
    record: ClosedRound
    time_s: float
    device: int
    heads: tuple[int, ...]
    stall_s: float
    ledger: Ledger
    n_samples: tuple[int, ...]  #: by device
    traffic: tuple[int, dict[str, int]] | None = None  #: bytes and messages, once the next round is closed

    @property
    def round_index(self) -> int:
        """The round that was closed, from 0."""
        return self.record.version.round - 1

    def settle(self) -> None:
        """Count the messages, now that the next round is closed; what is sent later is in the totals only.

        The moment belongs to the timeline, not to whoever writes records: a resumed run writes them later.
        """
        if self.traffic is None:
            parent = self.record.parent
            self.traffic = self.ledger.bytes_of(parent), self.ledger.counts(parent)

    def line(self) -> RoundClosed:
        """Return the record line; not before the round has settled."""
        assert self.traffic is not None
        n_bytes, messages = self.traffic
        n_left_out = sum(self.n_samples[device] for device in self.step.account.left_out)
        line = round_line(
            self.record, self.heads, self.time_s, self.device, self.step.account, self.stall_s, n_left_out
        )
        return msgspec.structs.replace(line, bytes=n_bytes, messages=messages)
