"""What any message that decodes can do to a device, and what it cannot: no message ends, bricks or stalls it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from tests.protocol.fleets import (
    CHAIN,
    FIRST,
    NOBODY,
    STAR,
    TWO,
    announced,
    closed,
    closing,
    clusters,
    device_in,
    first_record,
    heartbeat,
    join,
    leave,
    mean,
    messages_to,
    next_record,
    offer,
    report,
    sent,
    share,
    shares,
    started,
    trained,
)
from tests.protocol.world import Symbol, digest
from tolfl.core.device_set import DeviceSet
from tolfl.core.topology import Topology
from tolfl.protocol.device import Device
from tolfl.protocol.events import Announce, Effect, KeepIncarnation, PeerFailed, Received, Started, Ticked
from tolfl.protocol.history import ClosedRound, Incarnation, Roster, Version
from tolfl.protocol.membership import LEASH
from tolfl.protocol.messages import Closed, Mean, Payload, Report

# -- failure is a horizon ---------------------------------------------------------------------------------------------


def test_only_the_last_failed_incarnation_of_a_device_is_kept() -> None:
    device = started(STAR, 0)
    for incarnation in range(50):
        device.handle(PeerFailed(1, incarnation))
    device.handle(heartbeat(2, dead=frozenset((1, life) for life in range(5_000))))

    assert device.fleet.dead == {(1, 4_999)}
    assert device.fleet.has_failed((1, 3))


def test_a_failure_is_forgotten_once_the_roster_has_a_later_incarnation() -> None:
    head = started(clusters([0, 1]), 0)
    head.handle(PeerFailed(1, 0))
    head.handle(join(1, incarnation=1))
    closing(head, trained(0))

    assert head.record.roster == Roster({0: 0, 1: 1})
    assert head.fleet.dead == frozenset()
    assert head.fleet.has_failed((1, 0))


def test_a_failure_that_changes_nothing_sets_off_no_message() -> None:
    """A liar that invents failures would otherwise have all heads tell each other, once per lie."""
    head = started(CHAIN, 0)
    assert sent(head.handle(heartbeat(1, dead=frozenset({(2, 0)})))) != []

    assert head.handle(heartbeat(1, dead=frozenset({(2, 7)}))) == []
    assert head.fleet.dead == {(2, 7)}


# -- nobody believes in its own failure -------------------------------------------------------------------------------


def test_told_that_a_later_incarnation_of_it_is_over_a_device_takes_the_one_after_that() -> None:
    member = started(STAR, 1)
    effects = member.handle(heartbeat(0, dead=frozenset({(1, 1)})))

    assert effects[0] == KeepIncarnation(2)
    assert sent(effects) == [(0, "Join")]


def test_a_device_that_finds_a_later_incarnation_of_itself_in_a_roster_takes_the_one_after_that() -> None:
    outside = device_in(STAR, 1, incarnation=1)
    outside.handle(Started())
    record = first_record(STAR).after(shares(0, 2), {}, Roster({0: 0, 1: 6, 2: 0}), ())

    assert KeepIncarnation(7) in outside.handle(closed(0, record))


def test_a_device_whose_disk_holds_a_later_incarnation_of_itself_takes_the_one_after_that_at_its_start() -> None:
    rules = started(STAR, 1)._rules
    record = first_record(STAR).with_roster(Roster({0: 0, 1: 4, 2: 0}))

    assert KeepIncarnation(5) in Device(1, 2, record, rules).handle(Started())


def test_a_device_does_not_let_itself_in_under_a_number_that_others_made_up() -> None:
    head = started(clusters([0, 1]), 0)
    head.handle(trained(0))
    effects = closing(head, Received(Report(1, 0, FIRST, NOBODY, share(1), {0: 5})))

    assert announced(effects).record.roster == Roster({0: 0, 1: 0})


# -- the leash --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("incarnation", [LEASH + 1, 2**60, 2**62 - 1])
def test_an_incarnation_that_nobody_can_have_is_not_believed(incarnation: int) -> None:
    head = started(clusters([0, 1]), 0)
    head.handle(trained(0))
    head.handle(heartbeat(1, dead=frozenset({(0, incarnation)})))
    effects = closing(head, Received(Report(1, 0, FIRST, NOBODY, share(1), {1: incarnation})))

    assert head.incarnation == 0
    assert announced(effects).record.roster == Roster({0: 0, 1: 0})
    before = head.version
    head.handle(closed(1, head.record.after(shares(0, 1), {}, Roster({0: incarnation, 1: 0}), ())))
    assert head.version == before


def test_what_is_said_again_and_again_is_believed_step_by_step() -> None:
    """Devices that were told different lies must come together again, within beats and not within years."""
    member = started(STAR, 1)
    far = first_record(STAR).after(shares(0, 2), {}, Roster({0: 0, 1: 0, 2: 3 * LEASH}), ())
    member.handle(closed(0, far))
    assert member.version == FIRST

    member.handle(Ticked())
    member.handle(closed(0, far))
    assert member.version == far.version
    beyond = far.after(shares(0, 2), {}, Roster({0: 0, 1: 0, 2: 2**60}), ())
    for _ in range(1_000):
        member.handle(closed(0, beyond))
        member.handle(Ticked())
    assert member.version == far.version


# -- a record must be possible ----------------------------------------------------------------------------------------


def _spoilt(record: ClosedRound, **fields: object) -> ClosedRound:
    return msgspec.structs.replace(record, version=msgspec.structs.replace(record.version, **fields))


_NEXT = next_record(STAR, 0, 1, 2)
_END = msgspec.structs.replace(_NEXT, version=msgspec.structs.replace(_NEXT.version, round=3)).with_roster(
    _NEXT.roster, is_over=True
)


@pytest.mark.parametrize(
    "record",
    [
        _spoilt(_NEXT, history="ab" * 8),
        msgspec.structs.replace(_NEXT, roster=Roster({0: 0})),
        msgspec.structs.replace(_NEXT, roster=Roster({})),
        msgspec.structs.replace(_NEXT, included=DeviceSet.of([1])),
        msgspec.structs.replace(_NEXT, parent="cd" * 8),
        msgspec.structs.replace(_NEXT, is_over=True),
        msgspec.structs.replace(_NEXT, n_samples=_NEXT.version.work + 1),
        _NEXT.with_roster(_NEXT.roster, is_over=True),
        msgspec.structs.replace(_END, is_over=False),
        _spoilt(_NEXT, work=2**62 // 4 + 1),
        _spoilt(_NEXT, work=2**62 - 1),
        _spoilt(_NEXT, round=4),
        _spoilt(_NEXT.with_roster(_NEXT.roster), revision=LEASH + 1),
        _spoilt(_NEXT.with_roster(_NEXT.roster), revision=2**31),
    ],
)
def test_a_record_that_no_run_can_have_is_not_adopted(record: ClosedRound) -> None:
    member = started(STAR, 1)

    assert member.handle(closed(0, record)) == []
    assert member.version == FIRST
    member.handle(closed(0, _NEXT))
    assert member.version == _NEXT.version


def test_the_end_after_the_last_round_is_adopted() -> None:
    member = started(STAR, 1)
    member.handle(closed(0, _END))

    assert member.stopped == "over"


def test_another_model_under_the_same_name_is_not_adopted() -> None:
    rules = msgspec.structs.replace(started(STAR, 1)._rules, digest=digest)
    member = Device(1, 0, first_record(STAR), rules)
    member.handle(Started())
    record = member.record.after(shares(0, 1, 2), {}, member.record.roster, ("true",), digest(("true",)))

    member.handle(closed(0, msgspec.structs.replace(record, state=("false",))))
    assert member.version.round == 0
    member.handle(closed(0, record))
    assert member.record.state == ("true",)


def test_two_models_of_one_round_have_two_names_and_one_of_them_wins() -> None:
    rules = msgspec.structs.replace(started(STAR, 1)._rules, digest=digest)
    first = Device(0, 0, first_record(STAR), rules).record
    one, other = (first.after(shares(0, 1, 2), {}, first.roster, (it,), digest((it,))) for it in "ab")
    held = []
    for order in ([one, other], [other, one]):
        member = Device(1, 0, first_record(STAR), rules)
        member.handle(Started())
        for record in order:
            member.handle(closed(0, record))
        held.append(member.record.state)

    assert held[0] == held[1]
    assert str(one.version) == str(other.version)  # the lines of simulated and real runs agree


@pytest.mark.parametrize("n_samples", [2**62 - 1, 2**62 // 4 // 3 + 1])
def test_a_report_of_more_samples_than_can_be_counted_is_refused_and_not_waited_for(n_samples: int) -> None:
    head = started(STAR, 0)
    head.handle(trained(0))
    head.handle(report(2))
    effects = closing(head, Received(Report(1, 0, FIRST, NOBODY, Symbol(DeviceSet.of([1]), n_samples, ()), {})))

    assert announced(effects).record.missing == {1: "refused"}


# -- upstream means ---------------------------------------------------------------------------------------------------


def test_of_two_means_with_equally_many_included_the_later_one_is_used() -> None:
    closer = started(clusters([0, 1], [2]), 2)
    closer.handle(trained(2))
    closer.handle(mean(0, 0))  # of a head that lied about the other, and is gone
    closer.handle(PeerFailed(0, 0))

    assert list(announced(closing(closer, mean(1, 1, missing={0: "failed"}))).record.included) == [1, 2]


def test_a_larger_mean_that_leads_nowhere_does_not_stand_in_the_way() -> None:
    closer = started(clusters([0, 1, 2, 3], [4]), 4)
    closer.handle(trained(4))
    closer.handle(mean(0, 0, 1, 2))
    for gone in (0, 1, 2):
        closer.handle(PeerFailed(gone, 0))

    effects = closing(closer, mean(3, 3, missing={0: "failed", 1: "failed", 2: "failed"}))
    assert list(announced(effects).record.included) == [3, 4]


def test_a_mean_that_was_overtaken_by_a_fuller_one_of_the_same_head_is_not_used() -> None:
    closer = started(clusters([0, 1], [2]), 2)
    closer.handle(mean(0, 0, 1))
    closer.handle(mean(0, 0))

    assert list(announced(closing(closer, trained(2))).record.included) == [0, 1, 2]


def test_a_mean_of_devices_outside_the_roster_is_not_used() -> None:
    topology = clusters([0, 1], [2, 3])
    record = next_record(topology, 0, 1, 2, 3, without=[1])
    closer = started(topology, 2)
    closer.handle(closed(3, record))
    closer.handle(trained(2, record.version))
    closer.handle(report(3, version=record.version))
    lie = Mean(0, 0, record.version, NOBODY, shares(0, 1, version=record.version), {}, {})
    closer.handle(Received(lie))
    assert closer.round.closing is None

    true = Mean(0, 0, record.version, NOBODY, share(0, record.version), {}, {})
    assert list(announced(closing(closer, Received(true))).record.included) == [0, 2, 3]


def test_what_one_head_offers_is_wanted_whatever_another_has_sent() -> None:
    closer = started(clusters([0, 1], [2]), 2)
    closer.handle(mean(0, 0))

    assert sent(closer.handle(offer(1, 1, what=Payload.MEAN))) == [(1, "Want")]


# -- who gets heartbeats ----------------------------------------------------------------------------------------------


def _heartbeats(device: Device, n_beats: int) -> list[list[int]]:
    return [[to for to, kind in sent(device.handle(Ticked())) if kind == "Heartbeat"] for _ in range(n_beats)]


def _with_failed(topology: Topology, id: int, failed: Sequence[int]) -> Device:
    device = started(topology, id)
    for one in failed:
        device.handle(PeerFailed(one, 0))
    return device


def test_two_devices_outside_the_live_roster_get_a_heartbeat_per_beat_in_turn_from_the_own_id_on() -> None:
    device = _with_failed(Topology.contiguous(9, 9), 4, [1, 2, 5, 6, 7])

    beats = _heartbeats(device, 5)
    assert [sorted(set(beat) - {3, 8}) for beat in beats] == [[5, 6], [1, 7], [2, 5], [6, 7], [1, 2]]


@pytest.mark.parametrize("n_devices", [20, 200])
def test_heartbeats_per_beat_do_not_grow_with_the_fleet_nor_with_failures(n_devices: int) -> None:
    member = _with_failed(Topology.contiguous(n_devices, 2), 1, range(3, n_devices // 2))

    assert max(len(beat) for beat in _heartbeats(member, 50)) <= 1 + 2 + 1


def test_every_eighth_beat_anybody_gets_a_heartbeat_in_turn() -> None:
    member = started(Topology.contiguous(5, 1), 3)

    beats = _heartbeats(member, 32)
    assert [place + 1 for place, beat in enumerate(beats) if beat != [0]] == [8, 24, 32]
    assert [beats[place] for place in (7, 15, 23, 31)] == [[0, 4], [0], [0, 1], [0, 2]]


def test_outside_the_roster_anybody_gets_a_heartbeat_as_well() -> None:
    outside = device_in(STAR, 1, incarnation=1)
    outside.handle(Started())

    assert [beat for beat in _heartbeats(outside, 8) if beat] == [[2]]


def test_an_older_heartbeat_from_outside_the_roster_is_answered() -> None:
    """Two rosters of one device each: nothing else would tell the lighter one of the heavier."""
    heavier = started(STAR, 0)
    heavier.handle(closed(0, next_record(STAR, 0, 1, 2, without=[1])))

    (message,) = messages_to(heavier.handle(heartbeat(1)), 1)
    assert message.version == heavier.version
    assert heavier.handle(heartbeat(2)) == []


# -- pulling, back-off and the end ------------------------------------------------------------------------------------


def test_all_who_announced_a_newer_version_are_asked_in_turn() -> None:
    device = started(TWO, 3)
    device.handle(heartbeat(2, next_record(TWO, 0, 1, 2, 3).version))
    device.handle(heartbeat(0, next_record(TWO, 0, 2, 3).version))
    asked = [[to for to, kind in sent(device.handle(Ticked())) if kind == "Pull"] for _ in range(4)]

    assert asked == [[0], [2], [0], [2]]


def _told_dead(device: Device) -> list[Effect]:
    return device.handle(heartbeat(0, device.version, dead=frozenset({(device.id, device.incarnation)})))


def test_from_the_fifth_enforced_incarnation_on_a_device_waits_before_it_joins() -> None:
    member = started(STAR, 1)
    waits = []
    for _ in range(14):
        effects, n_beats = _told_dead(member), 0
        while (0, "Join") not in sent(effects):
            effects, n_beats = member.handle(Ticked()), n_beats + 1
        waits.append(max(0, n_beats - 1))

    assert waits == [0, 0, 0, 0, 1, 3, 7, 15, 31, 63, 127, 255, 255, 255]
    record = first_record(STAR).after(shares(0, 1), {}, Roster({0: 0, 1: member.incarnation}), ())
    member.handle(closed(0, record))
    assert sent(_told_dead(member)) == [(0, "Join")]


def test_told_again_while_it_waits_a_device_takes_one_incarnation_for_all() -> None:
    member = started(STAR, 1)
    for _ in range(5):
        _told_dead(member)
    before = member.incarnation
    effects = [effect for _ in range(1_000) for effect in _told_dead(member)]

    assert effects == []
    member.handle(Ticked())
    assert member.incarnation == before + 1


def test_an_end_that_few_have_seen_is_unconfirmed() -> None:
    alone = started(clusters([0, 1]), 0, rounds=1)
    assert not alone.is_unconfirmed
    alone.handle(PeerFailed(1, 0))
    closing(alone, trained(0))

    assert (alone.stopped, alone.is_unconfirmed) == ("over", True)


def test_an_end_that_most_have_seen_is_confirmed_until_a_heavier_version_is_heard_of() -> None:
    closer = started(clusters([0, 1]), 0, rounds=1)
    closer.handle(trained(0))
    closing(closer, report(1))
    closer.handle(report(1, version=closer.version))
    assert (closer.stopped, closer.is_unconfirmed) == ("over", False)

    heavier = Version(closer.version.work + 1, 1, 1, "ab" * 8)
    closer.handle(heartbeat(1, heavier))
    assert closer.is_unconfirmed


def test_an_end_is_unconfirmed_if_somebody_held_for_failed_has_a_heavier_version() -> None:
    closer = started(STAR, 0, rounds=1)
    closer.handle(PeerFailed(2, 0))
    closer.handle(trained(0))
    closing(closer, report(1))
    closer.handle(report(1, version=closer.version))
    assert closer.stopped == "over"
    assert not closer.is_unconfirmed

    closer.handle(heartbeat(2, version=msgspec.structs.replace(closer.version, work=closer.version.work + 1)))
    assert closer.is_unconfirmed


def _all_outside() -> Device:
    """Return a device after a power cut: all are there in another incarnation, and nobody is inside a roster."""
    device = started(TWO, 0, incarnation=1)
    for peer in range(1, 4):
        device.handle(join(peer, incarnation=1))
    return device


def _beats_until_it_opens_a_roster(device: Device, then: Sequence[Received] = ()) -> int:
    for beat in range(1, 500):
        if any(isinstance(effect, Announce) for effect in device.handle(Ticked())):
            return beat
        for event in then:
            device.handle(event)
    return -1


def test_whoever_should_open_a_roster_and_does_not_is_not_waited_for_for_good() -> None:
    """After a power cut a liar that ranks first, answers every ping and does nothing stopped everybody else."""
    device = _all_outside()

    assert 30 < _beats_until_it_opens_a_roster(device, [join(2, incarnation=1)]) < 100
    assert device.fleet.is_inside


def test_a_newer_record_that_never_comes_is_not_waited_for_for_good() -> None:
    device = _all_outside()
    for peer in (1, 2, 3):
        device.handle(PeerFailed(peer, 1))
    claim = heartbeat(1, version=Version(7, 1, 0, "00"), incarnation=2)
    device.handle(claim)

    assert 30 < _beats_until_it_opens_a_roster(device, [claim]) < 100


def _kept_out(n_outside: int, **options: object) -> tuple[Device, ClosedRound, list[Received]]:
    """Return a device that a record does not name, that record, and what the others say who are not named either."""
    device = started(TWO, 0, **options)
    record = device.record.with_roster(Roster({3: 0} if n_outside == 3 else {2: 0, 3: 0}))
    device.handle(closed(3, record))
    return device, record, [join(peer, version=record.version, incarnation=1) for peer in range(1, n_outside)]


def test_those_whom_a_roster_leaves_out_open_their_own_if_nobody_lets_them_in_and_they_are_more() -> None:
    """A liar made up a heavier record that named itself alone, and then did nothing: everybody waited for good."""
    device, record, others = _kept_out(3)

    assert 320 < _beats_until_it_opens_a_roster(device, others) < 400
    assert device.record.roster == Roster({0: 1, 1: 1, 2: 1})
    assert device.version > record.version


def test_those_outside_wait_if_they_are_no_more_than_those_inside_or_too_few_to_train() -> None:
    as_many, _, other = _kept_out(2)
    too_few, _, others = _kept_out(3, min_devices=4)

    assert _beats_until_it_opens_a_roster(as_many, other) == -1
    assert _beats_until_it_opens_a_roster(too_few, others) == -1


def test_a_slow_closer_goes_on_with_all_whoever_opened_a_roster_meanwhile() -> None:
    """Those outside cannot tell a slow round from one that never closes: the heavier history wins, as always."""
    device, record, others = _kept_out(3)
    slow = started(TWO, 3)
    slow.handle(closed(2, record))
    for peer in range(3):
        slow.handle(join(peer, version=record.version, incarnation=1))
    _beats_until_it_opens_a_roster(device, others)
    closing(slow, trained(3, version=record.version))

    assert slow.record.roster == Roster({0: 1, 1: 1, 2: 1, 3: 0})
    device.handle(closed(3, slow.record))
    assert device.version == slow.version
    assert device.fleet.is_inside


def test_whoever_was_dropped_by_a_lie_says_goodbye_in_the_incarnation_in_which_it_is_counted_on() -> None:
    """A head waited for ever for a member that had been told that the head was dead."""
    head, member = started(STAR, 0, policy="drop"), started(STAR, 1, policy="drop")
    member.handle(heartbeat(2, dead=frozenset({(0, 0)})))
    assert member.stopped == "dropped"

    (said,) = messages_to(head.handle(Ticked()), 1)
    (answer,) = messages_to(member.handle(Received(said)), 0)
    head.handle(Received(answer))
    assert head.fleet.why_missing(1) == "left"

    raised = started(STAR, 0, policy="drop")
    record = raised.record.with_roster(Roster({0: 0, 1: 7, 2: 0}))
    raised.handle(closed(2, record))
    (record_sent,) = messages_to(raised.handle(leave(1, version=record.version)), 1)
    (answer,) = messages_to(member.handle(Received(record_sent)), 0)
    raised.handle(Received(answer))
    assert raised.fleet.has_failed((1, 7))


def test_a_version_that_no_run_can_have_is_not_waited_for() -> None:
    member = started(STAR, 1)
    member.handle(heartbeat(0, Version(2**62 - 1, 3, 0, "ab" * 8)))

    assert (0, "Pull") not in sent(member.handle(Ticked()))


def test_who_left_is_told_apart_from_who_failed_however_often_it_comes_back() -> None:
    head = started(STAR, 0)
    for incarnation in range(3):
        life: Incarnation = (1, incarnation)
        head.fleet.mark_left(life)
    head.handle(leave(2))

    assert dict(head.fleet.left) == {1: 2, 2: 0}


def test_a_record_of_a_failed_sender_must_be_possible_too() -> None:
    member = started(STAR, 1)
    member.handle(PeerFailed(2, 0))
    lie = _spoilt(_NEXT, history="ab" * 8)
    member.handle(Received(Closed(2, 0, lie.version, NOBODY, lie)))

    assert member.version == FIRST
