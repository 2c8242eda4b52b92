"""Where in its round a device dies: the phases of a failure plan, event by event."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.protocol.fleets import (
    ack,
    applied,
    closed,
    clusters,
    device_in,
    first_record,
    heartbeat,
    join,
    mean,
    next_record,
    report,
    sent,
    trained,
)
from tolfl.core.failures import Failure, Phase
from tolfl.core.topology import Topology
from tolfl.protocol.events import Announce, Apply, Event, PeerFailed, Started, Stop, Ticked, Train
from tolfl.protocol.injector import RETURN_WITHIN_S, Die, Injector, PlannedEffect, ReportAbsence

STAR = clusters([0, 1, 2])
TWO = clusters([0, 1], [2, 3])


def doomed(topology: Topology, id: int, phase: Phase, round_index: int = 0, rounds: int = 3) -> Injector:
    return Injector(device_in(topology, id, rounds=rounds), [Failure(id, round_index, phase)])


def dies(effects: Sequence[PlannedEffect]) -> bool:
    """Tell whether the device is dead after these effects; death is always the last of them."""
    assert not any(isinstance(effect, Die) for effect in effects[:-1])
    return bool(effects) and isinstance(effects[-1], Die)


def test_in_train_a_device_dies_before_it_begins() -> None:
    device = doomed(STAR, 1, Phase.TRAIN)
    effects = device.handle(Started())

    assert len(effects) == 1
    assert dies(effects)


def test_in_train_of_a_later_round_it_passes_the_record_on_first() -> None:
    head = doomed(TWO, 0, Phase.TRAIN, round_index=1)
    assert not dies(head.handle(Started()))
    effects = head.handle(closed(2, next_record(TWO, 0, 1, 2, 3)))

    assert [type(effect).__name__ for effect in effects] == ["Send", "Die"]


@pytest.mark.parametrize("id", [0, 1, 2])
def test_in_report_it_dies_before_its_contribution_leaves(id: int) -> None:
    device = doomed(STAR, id, Phase.REPORT)
    device.handle(Started())
    effects = device.handle(trained(id))

    assert len(effects) == 1
    assert dies(effects)


def test_in_chain_a_head_dies_before_its_mean_leaves() -> None:
    head = doomed(TWO, 0, Phase.CHAIN)
    head.handle(Started())
    head.handle(trained(0))
    effects = head.handle(report(1))

    assert [type(effect).__name__ for effect in effects] == ["Send", "Die"]  # the member's report is acknowledged


def test_in_chain_the_closer_dies_before_its_record_leaves_and_the_round_never_happened() -> None:
    closer = doomed(STAR, 0, Phase.CHAIN)
    closer.handle(Started())
    closer.handle(trained(0))
    closer.handle(report(1))
    before = closer.handle(report(2))
    effects = closer.handle(applied(before))

    assert [type(effect).__name__ for effect in before] == ["Send", "Apply"]
    assert not any(isinstance(effect, Announce) for effect in effects)
    assert dies(effects)
    assert isinstance(effects[0], Die)
    assert effects[0].record == first_record(STAR)


def test_in_chain_a_member_dies_once_its_report_is_acknowledged() -> None:
    member = doomed(STAR, 2, Phase.CHAIN)
    member.handle(Started())

    assert [type(effect).__name__ for effect in member.handle(trained(2))] == ["Send"]
    assert dies(member.handle(ack(0, 2)))


def test_in_distribute_the_closer_dies_once_one_device_has_the_record() -> None:
    closer = doomed(TWO, 2, Phase.DISTRIBUTE)
    closer.handle(Started())
    closer.handle(trained(2))
    closer.handle(report(3))
    effects = closer.handle(applied(closer.handle(mean(0, 0, 1))))

    assert [type(effect).__name__ for effect in effects] == ["Announce", "Send", "Die"]
    assert isinstance(effects[0], Announce)
    assert isinstance(effects[-1], Die)
    assert effects[-1].record == effects[0].record


def test_in_distribute_a_closer_without_anybody_to_tell_dies_after_announcing() -> None:
    alone = doomed(clusters([0]), 0, Phase.DISTRIBUTE)
    alone.handle(Started())
    effects = alone.handle(applied(alone.handle(trained(0))))

    assert [type(effect).__name__ for effect in effects] == ["Announce", "Die"]


@pytest.mark.parametrize("id", [0, 1, 3])
def test_in_distribute_the_others_die_on_receiving_the_record_and_pass_nothing_on(id: int) -> None:
    device = doomed(TWO, id, Phase.DISTRIBUTE)
    device.handle(Started())
    device.handle(trained(id))
    effects = device.handle(closed(2, next_record(TWO, 0, 1, 2, 3)))

    assert len(effects) == 1
    assert dies(effects)


@pytest.mark.parametrize("phase", Phase)
def test_nothing_happens_before_the_chosen_round(phase: Phase) -> None:
    member = doomed(STAR, 1, phase, round_index=1)
    events: list[Event] = [Started(), trained(1), ack(0, 1), heartbeat(2), PeerFailed(2, 0)]

    assert not any(dies(member.handle(event)) for event in events)


@pytest.mark.parametrize("phase", [Phase.REPORT, Phase.CHAIN])
def test_a_device_whose_moment_never_came_dies_at_the_start_of_the_next_round(phase: Phase) -> None:
    member = doomed(TWO, 1, phase)
    member.handle(Started())
    effects = member.handle(closed(0, next_record(TWO, 0, 2, 3)))

    assert not any(isinstance(effect, Train) for effect in effects)
    assert dies(effects)


def test_a_device_whose_moment_never_came_in_the_last_round_dies_with_the_run() -> None:
    device = doomed(clusters([0]), 0, Phase.CHAIN, rounds=1)
    device.handle(Started())

    assert dies(device.handle(applied(device.handle(trained(0)))))


def test_a_device_without_a_plan_is_left_alone() -> None:
    plain, wrapped = device_in(STAR, 2), Injector(device_in(STAR, 2), [])

    events: list[Event] = [Started(), trained(2), PeerFailed(0, 0)]

    for event in events:
        assert wrapped.handle(event) == plain.handle(event)


def test_of_several_failures_the_earliest_comes_first() -> None:
    failures = [Failure(1, 2, Phase.REPORT), Failure(1, 0, Phase.REPORT)]
    device = Injector(device_in(STAR, 1), failures)
    device.handle(Started())
    (died,) = device.handle(trained(1))

    assert isinstance(died, Die)
    assert died.failure == Failure(1, 0, Phase.REPORT)


def test_an_acknowledgement_before_its_death_is_still_sent() -> None:
    head = doomed(STAR, 0, Phase.CHAIN)
    head.handle(Started())
    head.handle(report(1))
    head.handle(trained(0))

    assert sent([e for e in head.handle(report(2)) if not isinstance(e, Die | ReportAbsence)]) == [(2, "Ack")]


# -- returns ----------------------------------------------------------------------------------------------------------


def waiting(
    topology: Topology, id: int, *devices: int, at: int = 0, rounds: int = 3, policy: str = "elect"
) -> Injector:
    """Return a device that must not close a round without others; it ticks ten times until it gives up."""
    device = device_in(topology, id, rounds=rounds, policy=policy)
    return Injector(device, [], {at: frozenset(devices)}, heartbeat_s=RETURN_WITHIN_S / 10)


def closes(effects: Sequence[PlannedEffect]) -> bool:
    return any(isinstance(effect, Apply) for effect in effects)


def after(injector: Injector, *events: Event) -> list[PlannedEffect]:
    """Return the effects of the last event."""
    return [injector.handle(event) for event in events][-1]


def test_the_closer_holds_a_round_back_until_the_device_that_returns_asks_to_join() -> None:
    closer = waiting(STAR, 0, 2)
    effects = after(closer, Started(), PeerFailed(2, 0), trained(0), report(1))
    assert not closes(effects)
    effects = closer.handle(join(2, incarnation=1))

    assert closes(effects)
    assert closer.device.round.closing is not None
    assert closer.device.round.closing[2].incarnations == {0: 0, 1: 0, 2: 1}


def test_of_several_that_return_it_waits_for_each() -> None:
    closer = waiting(STAR, 0, 1, 2)
    after(closer, Started(), PeerFailed(1, 0), PeerFailed(2, 0), trained(0))

    assert not closes(closer.handle(join(2, incarnation=1)))
    assert closes(closer.handle(join(1, incarnation=1)))


def test_it_does_not_wait_for_a_device_that_is_there() -> None:
    closer = waiting(STAR, 0, 2)

    assert closes(after(closer, Started(), trained(0), report(1), report(2)))


def test_a_death_that_is_found_late_does_not_let_the_round_close_early() -> None:
    closer = waiting(STAR, 0, 2)
    after(closer, Started(), trained(0), report(1))

    assert not closes(closer.handle(PeerFailed(2, 0)))
    assert closes(closer.handle(join(2, incarnation=1)))


def test_other_rounds_wait_for_nobody() -> None:
    closer = waiting(STAR, 0, 2, at=1)

    assert closes(after(closer, Started(), PeerFailed(2, 0), trained(0), report(1)))


def test_whoever_becomes_the_closer_waits_in_its_place() -> None:
    head = waiting(TWO, 0, 3)
    after(head, Started(), trained(0), report(1), PeerFailed(3, 0))

    assert not closes(head.handle(PeerFailed(2, 0)))
    assert closes(head.handle(join(3, incarnation=1)))


def test_a_device_that_never_returns_is_given_up_and_that_is_said() -> None:
    closer = waiting(STAR, 0, 1, 2)
    after(closer, Started(), PeerFailed(1, 0), PeerFailed(2, 0), trained(0), join(1, incarnation=1))
    waited = [closer.handle(Ticked()) for _ in range(9)]
    effects = closer.handle(Ticked())

    assert not any(closes(before) or any(isinstance(one, ReportAbsence) for one in before) for before in waited)
    assert [one for one in effects if isinstance(one, ReportAbsence)] == [ReportAbsence(2, 0)]
    assert ReportAbsence(2, 0).what == "did not come back in time (30 s)"
    assert closes(effects)


def test_the_wait_begins_when_nobody_else_is_missing() -> None:
    closer = waiting(STAR, 0, 2)
    after(closer, Started(), PeerFailed(2, 0), trained(0), *[Ticked()] * 20)
    after(closer, report(1), *[Ticked()] * 9)

    assert closer.device.is_holding_back
    assert closes(closer.handle(Ticked()))


def test_the_end_waits_for_whoever_returns_in_the_last_round() -> None:
    alone = waiting(clusters([0], [1]), 0, 1, at=1, rounds=1)
    effects = alone.handle(applied(after(alone, Started(), PeerFailed(1, 0), trained(0))))
    assert not any(isinstance(effect, Stop) for effect in effects)

    assert any(isinstance(effect, Stop) for effect in alone.handle(join(1, incarnation=1)))


def test_nobody_waits_for_devices_that_train_on_alone() -> None:
    closer = waiting(TWO, 2, 1, policy="isolate")

    assert closes(after(closer, Started(), trained(2), report(3), PeerFailed(0, 0)))


def test_a_device_that_trains_on_alone_waits_for_nobody() -> None:
    member = waiting(TWO, 1, 0, 3, policy="isolate")
    after(member, Started(), PeerFailed(0, 0))

    assert member.device.is_private
    assert closes(member.handle(trained(1, member.device.version)))
