"""Between the moment when a closer has everything and the moment when the next state is computed."""

from __future__ import annotations

from tests.protocol.fleets import (
    FIRST,
    STAR,
    TWO,
    announced,
    applied,
    closed,
    clusters,
    heartbeat,
    join,
    mean,
    next_record,
    report,
    sent,
    started,
    trained,
)
from tolfl.protocol.device import Device
from tolfl.protocol.events import Apply, DeadlinePassed, Effect, LeaveAsked, PeerFailed, Ticked
from tolfl.protocol.history import Roster


def about_to_close(**options: object) -> tuple[Device, list[Effect]]:
    """Return the head of a star that has everything, and what it did when the last report came."""
    head = started(STAR, 0, **options)
    head.handle(trained(0))
    head.handle(report(1))
    return head, head.handle(report(2))


def test_a_closer_that_has_everything_has_the_mean_applied_and_announces_nothing_yet() -> None:
    head, effects = about_to_close()
    (apply,) = [effect for effect in effects if isinstance(effect, Apply)]

    assert [type(effect).__name__ for effect in effects] == ["Send", "Apply"]
    assert (apply.version, apply.state, list(apply.total.included), list(apply.present)) == (
        FIRST,
        (),
        [0, 1, 2],
        [0, 1, 2],
    )
    assert head.version == FIRST


def test_it_is_applied_once_whatever_comes_meanwhile() -> None:
    head, _ = about_to_close(has_deadline=True)

    for event in (report(2), DeadlinePassed(FIRST), PeerFailed(2, 0), Ticked(), join(2, incarnation=1), heartbeat(1)):
        assert not any(isinstance(effect, Apply) for effect in head.handle(event))


def test_a_failure_meanwhile_is_found_in_the_next_round() -> None:
    head, effects = about_to_close()
    head.handle(PeerFailed(2, 0))
    closing = head.handle(applied(effects))
    record = announced(closing).record

    assert (list(record.included), record.missing) == ([0, 1, 2], {})
    assert list(record.roster.incarnations) == [0, 1, 2]
    assert sent(closing) == [(1, "Closed")]
    head.handle(trained(0, head.version))
    later = announced(head.handle(applied(head.handle(report(1, version=head.version))))).record
    assert (list(later.included), later.missing, list(later.roster.incarnations)) == ([0, 1], {2: "failed"}, [0, 1])


def test_what_arrives_meanwhile_does_not_change_the_total() -> None:
    closer = started(TWO, 2)
    closer.handle(trained(2))
    closer.handle(report(3))
    closer.handle(PeerFailed(1, 0))
    effects = closer.handle(mean(0, 0))
    closer.handle(mean(0, 0, 1))
    record = announced(closer.handle(applied(effects))).record

    assert (list(record.included), record.missing) == ([0, 2, 3], {1: "failed"})


def test_who_asks_to_join_meanwhile_gets_the_record_and_is_in_the_roster_after_it() -> None:
    head = started(clusters([0, 1]), 0)
    head.handle(PeerFailed(1, 0))
    effects = head.handle(trained(0))
    head.handle(join(1, incarnation=1))
    closing = head.handle(applied(effects))

    assert sent(closing) == [(1, "Closed")]
    assert announced(closing).record.roster == Roster({0: 0})
    later = announced(head.handle(applied(head.handle(trained(0, head.version)))))
    assert later.record.roster == Roster({0: 0, 1: 1})


def test_a_heavier_record_meanwhile_is_gone_on_from_and_the_closing_is_dropped() -> None:
    head, effects = about_to_close()
    other = next_record(STAR, 0, 1, 2)
    head.handle(closed(1, other))

    assert head.handle(applied(effects)) == []
    assert head.record == other


def test_a_device_that_is_told_dead_meanwhile_announces_nothing() -> None:
    head, effects = about_to_close()
    head.handle(heartbeat(1, dead=frozenset({(0, 0)})))

    assert head.handle(applied(effects)) == []
    assert (head.version, head.incarnation) == (FIRST, 1)


def test_a_device_that_has_left_announces_nothing() -> None:
    head, effects = about_to_close()
    head.handle(LeaveAsked())

    assert head.handle(applied(effects)) == []


def test_a_state_that_nobody_asked_for_is_ignored() -> None:
    head, effects = about_to_close()
    answer = applied(effects)
    head.handle(answer)
    record = head.record

    assert head.handle(answer) == []
    assert started(STAR, 0).handle(answer) == []
    assert head.record == record
