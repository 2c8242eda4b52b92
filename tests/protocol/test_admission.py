"""What a head does not admit is not added up, is not waited for, and is in the record as refused."""

from __future__ import annotations

from tests.protocol.fleets import (
    FIRST,
    STAR,
    TWO,
    announced,
    applied,
    closing,
    clusters,
    mean,
    offer,
    report,
    sent,
    share,
    started,
    trained,
)
from tests.protocol.world import refusing
from tolfl.core.contribution import Pending
from tolfl.protocol.events import DeadlinePassed
from tolfl.protocol.history import State, Version
from tolfl.protocol.messages import Payload

Judged = list[tuple[Version, State, Pending | None, Pending]]


def noting(judged: Judged, version: Version, state: State, own: Pending | None, other: Pending) -> bool:
    judged.append((version, state, own, other))
    return True


def test_a_report_that_is_not_admitted_is_acknowledged_and_left_out() -> None:
    head = started(STAR, 0, admits=refusing(1))
    head.handle(trained(0))

    assert sent(head.handle(report(1))) == [(1, "Ack")]
    record = announced(closing(head, report(2))).record
    assert (list(record.included), record.missing) == ([0, 2], {1: "refused"})
    assert list(record.roster.incarnations) == [0, 1, 2]


def test_who_is_refused_is_not_waited_for_and_is_not_taken_the_second_time() -> None:
    head = started(STAR, 0, admits=refusing(1))
    head.handle(trained(0))
    head.handle(report(2))
    effects = head.handle(report(1))
    head.handle(report(1))

    assert sent(head.handle(offer(1, 1))) == [(1, "Ack")]
    assert list(announced(head.handle(applied(effects))).record.included) == [0, 2]


def test_everything_is_judged_once_against_the_own_contribution_and_the_own_is_not() -> None:
    judged: Judged = []
    closer = started(TWO, 2, admits=lambda *given: noting(judged, *given))
    closer.handle(report(3))
    closer.handle(mean(0, 0, 1))
    assert judged == []
    effects = closer.handle(trained(2))
    closer.handle(report(3))

    assert [(version, state, own) for version, state, own, _ in judged] == [(FIRST, (), share(2))] * 2
    assert [list(other.included) for *_, other in judged] == [[3], [0, 1]]
    assert list(announced(closer.handle(applied(effects))).record.included) == [0, 1, 2, 3]


def test_a_head_without_a_contribution_judges_when_its_deadline_has_passed() -> None:
    judged: Judged = []
    head = started(STAR, 0, has_deadline=True, admits=lambda *given: noting(judged, *given))
    head.handle(report(1))
    head.handle(DeadlinePassed(FIRST))

    assert [(own, list(other.included)) for _, _, own, other in judged] == [(None, [1])]


def test_a_mean_that_is_not_admitted_is_not_taken_up_and_nobody_in_it_is_waited_for() -> None:
    closer = started(clusters([0, 1], [2]), 2, admits=refusing(0))
    closer.handle(trained(2))
    effects = closer.handle(mean(0, 0, 1))

    assert sent(effects) == [(0, "Ack")]
    assert sent(closer.handle(offer(0, 0, 1, what=Payload.MEAN))) == [(0, "Want")]
    record = announced(closer.handle(applied(effects))).record
    assert (list(record.included), record.missing) == ([2], {0: "refused", 1: "refused"})


def test_a_mean_that_is_not_judged_yet_is_not_asked_for_again() -> None:
    closer = started(clusters([0, 1], [2]), 2, admits=lambda *_: True)
    closer.handle(mean(0, 0, 1))

    assert sent(closer.handle(offer(0, 0, 1, what=Payload.MEAN))) == [(0, "Ack")]


def test_a_mean_speaks_for_no_cluster_after_that_of_its_sender() -> None:
    closer = started(clusters([0], [1], [2]), 2, admits=refusing(0))
    closer.handle(trained(2))

    assert sent(closer.handle(mean(0, 0, 1))) == [(0, "Ack")]
    effects = closer.handle(mean(1, 1, missing={0: "refused"}))
    record = announced(closer.handle(applied(effects))).record
    assert (list(record.included), record.missing) == ([1, 2], {0: "refused"})


def test_a_refusal_upstream_is_passed_on() -> None:
    closer = started(TWO, 2)
    closer.handle(trained(2))
    closer.handle(report(3))
    record = announced(closing(closer, mean(0, 0, missing={1: "refused"}))).record

    assert record.missing == {1: "refused"}


def test_in_the_last_round_in_which_nobody_trains_nothing_is_judged() -> None:
    judged: Judged = []
    head = started(clusters([0, 1]), 0, rounds=1, admits=lambda *given: noting(judged, *given))
    head.handle(trained(0))
    closing(head, report(1))
    head.handle(report(1, version=head.version))

    assert head.stopped == "over"
    assert len(judged) == 1
