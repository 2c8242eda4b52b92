"""The lines of one device: whole whatever happens to the disk or the process, and true."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tolfl.core.contribution import GLOBAL, Contribution
from tolfl.core.device_set import DeviceSet
from tolfl.core.records import (
    AnyRecord,
    FailureHappened,
    Joined,
    RosterChanged,
    RoundAdopted,
    RoundClosed,
    RunEnded,
    RunStarted,
    TakenOver,
    Traffic,
    decode_records,
    encode_records,
)
from tolfl.learners import Account
from tolfl.net.record_log import RecordLog, clock_since
from tolfl.protocol.events import Announce, TakeOver
from tolfl.protocol.history import ClosedRound, Roster, Version
from tolfl.runs.ledger import Kind
from tolfl.runs.run_reader import RECORDS

ROSTER = Roster({0: 0, 1: 0})


def lines_in(folder: Path) -> list[AnyRecord]:
    return list(decode_records((folder / RECORDS).read_bytes().splitlines()))


def start() -> RunStarted:
    return RunStarted(time_s=0.0, device=1, scheme="tol-fl", data="blobs", seed=0, clusters=((0, 1),), model_bytes=4)


def a_round(index: int, missing: dict[int, str] | None = None) -> Announce:
    version = Version(10 * (index + 1), index + 1, 0, f"a{index}")
    record = ClosedRound(version, ROSTER, {}, "f0", DeviceSet.of([0, 1]), missing or {}, 10)
    total = Contribution.of_device(1, 10, {GLOBAL: np.ones(1)}, loss=0.25)
    return Announce(record, total, (0,), ())


def test_the_clock_of_records_does_not_jump_when_the_time_of_day_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = clock_since(time.time() - 5.0)
    monkeypatch.setattr(time, "time", lambda: 3600.0)  # as a board without a battery is set right once it has a network

    assert 5.0 <= clock() < 60.0


def test_a_closed_round_is_written_as_the_record_says(tmp_path: Path) -> None:
    log = RecordLog(tmp_path, 1)
    announced = a_round(3, {4: "late", 2: "failed"})
    log.closed(7.5, announced, Account(0.25))

    (line,) = lines_in(tmp_path)
    assert isinstance(line, RoundClosed)
    assert (line.time_s, line.device, line.round, line.version) == (7.5, 1, 3, "40.4.0.a3")
    assert (line.parent, line.included, line.n_samples, line.loss, line.heads) == ("f0", (0, 1), 10, 0.25, (0,))
    assert line.missing == {"2": "failed", "4": "late"}


def test_a_roster_without_an_update_and_who_came_in_are_lines_of_their_own(tmp_path: Path) -> None:
    record = ClosedRound(Version(10, 1, 1, "b"), Roster({0: 0, 1: 0, 2: 5}), {}, "a", is_over=True)
    RecordLog(tmp_path, 1).closed(2.0, Announce(record, None, (0,), ((2, 5),)))

    joined, changed = lines_in(tmp_path)
    assert isinstance(joined, Joined)
    assert (joined.device, joined.incarnation, joined.round) == (2, 5, 1)
    assert isinstance(changed, RosterChanged)
    assert (changed.devices, changed.is_over, changed.parent) == ((0, 1, 2), True, "a")


def test_a_round_that_another_device_closed_is_written_down_too(tmp_path: Path) -> None:
    log = RecordLog(tmp_path, 1)
    log.started(0.0, start())
    mine, theirs = a_round(0), a_round(1, {0: "failed"})
    closed = msgspec.structs.replace(theirs.record, loss=0.25)
    log.closed(1.0, mine)
    log.next_round(1.0, mine.record)
    log.next_round(2.5, closed)
    over = closed.with_roster(ROSTER, is_over=True)
    log.next_round(3.0, over)

    _, own, adopted, ended = lines_in(tmp_path)
    assert isinstance(own, RoundClosed)
    assert isinstance(adopted, RoundAdopted)
    assert (adopted.round, adopted.version, adopted.heads, adopted.loss) == (1, "20.2.0.a1", (0,), 0.25)
    assert (adopted.missing, adopted.stall_s) == ({"0": "failed"}, 0.5)
    assert isinstance(ended, RoundAdopted)
    assert (ended.included, ended.is_over) == ((), True)


def test_a_disturbed_round_is_late_by_what_it_took_longer_than_the_others(tmp_path: Path) -> None:
    log = RecordLog(tmp_path, 1)
    log.started(0.0, start())
    for index, now_s in enumerate([1.0, 2.5, 3.5]):  # quiet rounds of 1.0, 1.5 and 1.0 s
        log.closed(now_s, a_round(index))
        log.next_round(now_s, a_round(index).record)
    log.disturbed()
    log.closed(6.75, a_round(3))  # 3.25 s
    log.next_round(6.75, a_round(3).record)
    log.closed(7.0, a_round(4))

    stalls = [line.stall_s for line in lines_in(tmp_path) if isinstance(line, RoundClosed)]
    assert stalls == [0.0, 0.0, 0.0, 2.25, 0.0]


def test_a_message_that_leaves_late_counts_for_the_round_that_it_is_of(tmp_path: Path) -> None:
    log = RecordLog(tmp_path, 1)
    log.sent("abd", 0, None, 30)
    log.sent("abc", 0, Kind.MODEL, 400)
    log.flush_traffic(1.0)

    assert {line.history: line.sent for line in lines_in(tmp_path) if isinstance(line, Traffic)} == {
        "abd": (),
        "abc": ((0, "model", 400),),
    }


def test_messages_are_counted_once(tmp_path: Path) -> None:
    log = RecordLog(tmp_path, 1)
    log.sent("abc", 0, Kind.REPORT, 400)
    log.sent("abc", 0, None, 30)
    log.sent("abc", 2, None, 12)
    log.flush_traffic(1.0)
    log.flush_traffic(2.0)

    assert lines_in(tmp_path) == [
        Traffic(
            time_s=1.0,
            device=1,
            history="abc",
            sent=((0, Kind.REPORT.value, 400),),
            control_messages=2,
            control_bytes=42,
        )
    ]


def test_deaths_are_by_whom_they_were_noticed(tmp_path: Path) -> None:
    log, record = RecordLog(tmp_path, 1), a_round(1).record
    log.failed(1.0, 0, 2, "found dead: silent")
    log.failed(2.0, 1, 2, "died (chain)")
    log.took_over(3.0, record, TakeOver(0, 4))
    log.ended(4.0, record, "over")

    other, own, takeover, ending = lines_in(tmp_path)
    assert isinstance(other, FailureHappened)
    assert isinstance(own, FailureHappened)
    assert (other.device, other.by, own.device, own.by) == (0, 1, 1, None)
    assert isinstance(takeover, TakenOver)
    assert (takeover.device, takeover.cluster, takeover.previous) == (1, 0, 4)
    assert isinstance(ending, RunEnded)
    assert (ending.reason, ending.survivors) == ("over", (0, 1))


@settings(max_examples=40)
@given(kept=st.integers(0, 3), share=st.floats(0, 1))
def test_a_line_that_a_killed_process_left_half_written_spoils_no_other(
    tmp_path_factory: pytest.TempPathFactory, kept: int, share: float
) -> None:
    folder = tmp_path_factory.mktemp("state")
    whole = encode_records([start()])
    piece = whole[: int(share * (len(whole) - 1))]
    (folder / RECORDS).write_bytes(whole * kept + piece)
    log = RecordLog(folder, 1)
    log.write(start())
    log.write(start())

    assert lines_in(folder) == [start()] * (kept + 2)


def test_a_folder_that_cannot_be_written_is_trouble_until_it_can(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.write_text("a file in its place")
    log = RecordLog(folder, 1)
    log.write(start())
    assert log.trouble.startswith(str(folder))
    assert "training goes on" in log.trouble

    folder.unlink()
    log.write(start())
    assert log.trouble == ""
    assert lines_in(folder) == [start()]
