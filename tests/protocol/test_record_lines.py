"""The record lines of what a device announces."""

from __future__ import annotations

from tests.protocol.fleets import STAR, announced, closing, first_record, join, report, started, trained
from tolfl.core.records import Joined, RosterChanged, RoundClosed, TakenOver
from tolfl.learners import Account
from tolfl.protocol.events import Announce, PeerFailed, TakeOver
from tolfl.protocol.history import Roster
from tolfl.protocol.record_lines import joined_lines, roster_line, round_line, takeover_line


def closed_without_one() -> Announce:
    """Return what the head of a star announces when a member has failed and is joining again."""
    head = started(STAR, 0)
    head.handle(trained(0))
    head.handle(PeerFailed(1, 0))
    head.handle(join(1, incarnation=1))
    return announced(closing(head, report(2)))


def test_a_closed_round_is_a_line_with_what_the_driver_adds() -> None:
    effect = closed_without_one()
    line = round_line(effect.record, effect.heads, 1.5, 0, Account(0.5, stage="thresholds", digest="ab"), 0.25)

    assert line == RoundClosed(
        time_s=1.5,
        device=0,
        round=0,
        version=str(effect.record.version),
        parent="",
        included=(0, 2),
        missing={"1": "failed"},
        n_samples=1 + 3,
        loss=0.5,
        bytes=0,
        messages={},
        heads=(0,),
        stall_s=0.25,
        stage="thresholds",
        digest="ab",
    )


def test_each_device_that_joins_is_a_line_of_its_own() -> None:
    effect = closed_without_one()

    assert joined_lines(effect, 1.5) == [
        Joined(time_s=1.5, device=1, round=1, version=str(effect.record.version), incarnation=1)
    ]


def test_a_record_without_an_update_is_a_line_about_the_roster() -> None:
    record = first_record(STAR).with_roster(Roster({0: 0, 2: 1}), is_over=True)

    assert roster_line(record, 2.0, 2) == RosterChanged(
        time_s=2.0, device=2, round=0, version=str(record.version), parent="", devices=(0, 2), is_over=True
    )


def test_a_new_head_is_a_line_about_the_one_before_it() -> None:
    version = first_record(STAR).version

    assert takeover_line(TakeOver(cluster=1, previous=3), version, 2.0, 4) == TakenOver(
        time_s=2.0, device=4, round=0, version=str(version), cluster=1, previous=3
    )
