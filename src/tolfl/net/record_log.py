"""The record lines of one device: what it saw and did, written as it happens."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from tolfl.core.contribution import Pending
from tolfl.core.deferred_sum import DeferredSum
from tolfl.core.records import (
    AnyRecord,
    FailureHappened,
    RunEnded,
    RunStarted,
    Traffic,
    encode_records,
)
from tolfl.learners.learner import Account
from tolfl.protocol.events import Announce, TakeOver
from tolfl.protocol.history import ClosedRound
from tolfl.protocol.record_lines import adopted_line, joined_lines, roster_line, round_line, takeover_line
from tolfl.runs.ledger import Kind
from tolfl.runs.run_reader import RECORDS

#: Of the file, in one answer.
_PIECE_BYTES = 512 * 1024


@dataclass
class _Sent:
    models: list[tuple[int, str, int]] = field(default_factory=list)  #: to whom, of which kind, how many bytes
    control_messages: int = 0
    control_bytes: int = 0


def clock_since(unix_s: float) -> Callable[[], float]:
    """Return a clock that counts seconds from a time of day, and does not jump when that is set right meanwhile."""
    offset_s = time.time() - unix_s - time.monotonic()
    return lambda: offset_s + time.monotonic()


class RecordLog:
    """Appends lines to the record file of a device; a disk that cannot be written is noted and stops nothing."""

    def __init__(self, folder: Path, device: int) -> None:
        self.trouble = ""
        self.on_record: Callable[[AnyRecord], None] = lambda _: None  #: gets every line, written or not
        self._device = device
        self._path = folder / RECORDS
        self._is_whole = False  #: whether the file is known to end with a whole line
        self._traffic: dict[str, _Sent] = {}  #: by the history that a round extends; not written down yet
        self._began_s: float | None = None  #: the present round
        self._quiet_s: list[float] = []  #: durations of rounds in which nothing happened
        self._is_disturbed = False
        self._started: RunStarted | None = None
        self._closed_here = ""  #: the last version that this device closed itself

    def write(self, *records: AnyRecord) -> None:
        """Append lines."""
        for record in records:
            self.on_record(record)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab+") as file:
                if not self._is_whole:
                    _drop_piece(file)
                file.write(encode_records(records))
            self.trouble, self._is_whole = "", True
        except OSError as error:
            self._is_whole = False
            self.trouble = f"{self._path} cannot be written ({error.strerror}): make room; training goes on"

    def piece(self, first: int) -> bytes:
        """Return what the file holds from a byte on, as much as one frame takes; nothing where it cannot be read."""
        try:
            with self._path.open("rb") as file:
                file.seek(first)
                return file.read(_PIECE_BYTES)
        except OSError:
            return b""

    def started(self, now_s: float, line: RunStarted) -> None:
        """Note the start of an incarnation."""
        self._began_s, self._started = now_s, line
        self.write(line)

    # -- rounds -------------------------------------------------------------------------------------------------

    def disturbed(self) -> None:
        """Note that something happened in the present round: its duration is no measure for others."""
        self._is_disturbed = True

    def closed(self, now_s: float, announced: Announce, account: Account | None = None) -> None:
        """Note that this device closed a round, before anybody learns of it."""
        record = announced.record
        self._closed_here = str(record.version)
        self.write(*joined_lines(announced, now_s))
        if announced.total is None:
            self.write(roster_line(record, now_s, self._device))
            return
        stall_s = self._stall(now_s, is_disturbed=self._is_disturbed or bool(record.missing))
        account = account or Account()
        counts = {next(iter(one.included)): one.n_samples for one in _leaves(announced.total) if len(one.included) == 1}
        n_left_out = sum(counts.get(device, 0) for device in account.left_out)
        self.write(round_line(record, announced.heads, now_s, self._device, account, stall_s, n_left_out))

    def _stall(self, now_s: float, is_disturbed: bool) -> float:
        if not is_disturbed or self._began_s is None or not self._quiet_s:
            return 0.0
        return max(0.0, now_s - self._began_s - statistics.median(self._quiet_s))

    def next_round(self, now_s: float, record: ClosedRound) -> None:
        """Note that this device goes on from another record, whoever closed it, and what it sent before."""
        if self._started is not None and str(record.version) != self._closed_here:
            stall_s = self._stall(now_s, is_disturbed=self._is_disturbed or bool(record.missing))
            clusters, stages = self._started.clusters, self._started.stages
            self.write(adopted_line(record, clusters, stages, now_s, self._device, stall_s))
        if self._began_s is not None and record.version.round and not self._is_disturbed and not record.missing:
            self._quiet_s.append(now_s - self._began_s)
        self._began_s, self._is_disturbed = now_s, False
        self.flush_traffic(now_s)

    # -- traffic ------------------------------------------------------------------------------------------------

    def sent(self, history: str, destination: int, kind: Kind | None, n_bytes: int) -> None:
        """Count a message of the round that extends a history; `kind` is None for those without a model."""
        sent = self._traffic.setdefault(history, _Sent())
        if kind is None:
            sent.control_messages += 1
            sent.control_bytes += n_bytes
        else:
            sent.models.append((destination, kind.value, n_bytes))

    def flush_traffic(self, now_s: float) -> None:
        """Write down what was sent since the last time."""
        traffic, self._traffic = self._traffic, {}
        for history, sent in traffic.items():
            self.write(
                Traffic(
                    time_s=now_s,
                    device=self._device,
                    history=history,
                    sent=tuple(sent.models),
                    control_messages=sent.control_messages,
                    control_bytes=sent.control_bytes,
                )
            )

    # -- events -------------------------------------------------------------------------------------------------

    def failed(self, now_s: float, device: int, round_index: int, what: str) -> None:
        """Note a death, of this device or of another."""
        by = None if device == self._device else self._device
        self.write(FailureHappened(time_s=now_s, device=device, round=round_index, what=what, by=by))

    def took_over(self, now_s: float, record: ClosedRound, effect: TakeOver) -> None:
        """Note that this device is the head of its cluster now."""
        self.write(takeover_line(effect, record.version, now_s, self._device))

    def ended(self, now_s: float, record: ClosedRound, reason: str) -> None:
        """Note the end of this device's part."""
        version = record.version
        survivors = tuple(sorted(record.roster.incarnations))
        self.write(
            RunEnded(
                time_s=now_s,
                device=self._device,
                round=version.round,
                version=str(version),
                reason=reason,
                survivors=survivors,
            )
        )


def _drop_piece(file: BinaryIO) -> None:
    """Drop what a process that was killed, or a full disk, left of a line: the next one would be glued to it."""
    file.seek(0)
    file.truncate(file.read().rfind(b"\n") + 1)


def _leaves(total: Pending) -> list[Pending]:
    """Return the contributions inside a total, as far as they came one by one."""
    return total.leaves() if isinstance(total, DeferredSum) else [total]
