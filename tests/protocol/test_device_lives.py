"""The rules of a device that was away, came late, was told dead, or has come to the end."""

from __future__ import annotations

from tests.protocol.fleets import (
    STAR,
    TWO,
    ack,
    announced,
    closed,
    closing,
    clusters,
    device_in,
    first_record,
    heartbeat,
    join,
    leave,
    messages_to,
    next_record,
    offer,
    only,
    pull,
    report,
    sent,
    started,
    trained,
    want,
)
from tolfl.protocol.events import Announce, KeepIncarnation, LeaveAsked, PeerFailed, Started, Stop, Ticked
from tolfl.protocol.history import Roster
from tolfl.protocol.messages import Report

# -- versions (rule 8) ------------------------------------------------------------------------------------------------


def test_an_old_message_is_answered_with_the_newest_record() -> None:
    device = started(STAR, 0)
    device.handle(closed(1, next_record(STAR, 0, 1, 2)))

    for message in (report(2), pull(2), offer(2, 2)):
        assert sent(device.handle(message)) == [(2, "Closed")]
    for message in (ack(2, 0), want(2, 0), heartbeat(2), closed(2, first_record(STAR))):
        assert device.handle(message) == []


def test_a_pull_is_answered_with_the_record() -> None:
    assert sent(started(STAR, 1).handle(pull(2))) == [(2, "Closed")]


def test_a_message_of_a_newer_version_is_kept_until_caught_up() -> None:
    head = started(STAR, 0)
    record = next_record(STAR, 0, 1, 2)

    assert head.handle(report(1, version=record.version)) == []
    effects = head.handle(closed(2, record))
    assert (1, "Ack") in sent(effects)


def test_after_a_loss_a_newer_version_is_pulled_at_once_and_once_only() -> None:
    member = started(STAR, 1)
    member.handle(PeerFailed(0, 0))
    newer = next_record(STAR, 0, 1, 2).version

    assert sent(member.handle(heartbeat(2, version=newer))) == [(2, "Pull")]
    assert member.handle(heartbeat(2, version=newer)) == []
    assert (2, "Pull") in sent(member.handle(Ticked()))


def test_a_heavier_history_of_the_same_round_replaces_a_lighter_one() -> None:
    device = started(STAR, 1)
    lighter, heavier = next_record(STAR, 1, 2), next_record(STAR, 0, 1, 2)
    device.handle(closed(2, lighter))

    device.handle(closed(0, heavier))
    assert device.version == heavier.version
    device.handle(closed(2, lighter))
    assert device.version == heavier.version


# -- life and death (rules 3 and 9) -----------------------------------------------------------------------------------


def test_told_dead_a_device_begins_its_next_life_and_asks_to_join() -> None:
    member = started(STAR, 2)
    effects = member.handle(heartbeat(0, dead=frozenset({(2, 0)})))

    assert effects[0] == KeepIncarnation(1)
    assert sent(effects) == [(0, "Join")]
    assert member.incarnation == 1
    assert member.handle(trained(2)) == []


def test_outside_the_roster_of_a_heavier_history_a_device_begins_its_next_life() -> None:
    member = started(STAR, 2)
    effects = member.handle(closed(0, next_record(STAR, 0, 1, without=[2])))

    assert KeepIncarnation(1) in effects
    assert sent(effects) == [(0, "Join")]


def test_whoever_wants_in_is_in_the_next_roster() -> None:
    head = started(clusters([0, 1]), 0)
    head.handle(PeerFailed(1, 0))
    head.handle(join(1, incarnation=1))
    effects = closing(head, trained(0))

    record = announced(effects).record
    assert record.roster == Roster({0: 0, 1: 1})
    assert announced(effects).joined == ((1, 1),)
    assert (1, "Closed") in sent(effects)


def test_a_join_is_the_end_of_the_life_before_it() -> None:
    head = started(STAR, 0)
    head.handle(trained(0))
    head.handle(report(2))
    effects = closing(head, join(1, incarnation=1))

    assert announced(effects).record.missing == {1: "failed"}
    assert (1, "Closed") in sent(effects)
    assert list(head.record.roster.incarnations) == [0, 2]  # the round was waiting for nobody else: too late for it
    head.handle(trained(0, head.version))
    later = announced(closing(head, report(2, version=head.version)))
    assert later.record.roster == Roster({0: 0, 1: 1, 2: 0})


def test_a_device_that_comes_back_asks_the_closer_to_let_it_in() -> None:
    device = device_in(TWO, 1, incarnation=1)

    assert sent(device.handle(Started())) == [(2, "Join")]
    assert sent(device.handle(Ticked())) == [(2, "Join")]


def test_a_join_at_an_older_version_is_answered_with_the_record_and_remembered() -> None:
    closer = started(clusters([0], [1]), 1)
    closer.handle(PeerFailed(0, 0))
    closing(closer, trained(1))

    assert (0, "Closed") in sent(closer.handle(join(0, incarnation=1)))
    effects = closing(closer, trained(1, closer.version))
    assert announced(effects).record.roster == Roster({0: 1, 1: 0})


def test_the_dead_are_told_so_and_the_smaller_side_steps_aside() -> None:
    larger, smaller = started(STAR, 0), started(STAR, 2)
    larger.handle(PeerFailed(2, 0))
    smaller.handle(PeerFailed(0, 0))
    smaller.handle(PeerFailed(1, 0))

    assert sent(larger.handle(heartbeat(2, dead=frozenset({(0, 0), (1, 0)})))) == [(2, "Heartbeat")]
    assert larger.incarnation == 0
    assert smaller.handle(heartbeat(0, dead=frozenset({(2, 0)})))[0] == KeepIncarnation(1)


def test_a_goodbye_is_a_death_by_choice() -> None:
    head = started(STAR, 0)
    head.handle(trained(0))
    head.handle(report(2))
    effects = closing(head, leave(1))

    assert announced(effects).record.missing == {1: "left"}


def test_who_leaves_says_goodbye_to_heads_and_members_and_no_more() -> None:
    head = started(TWO, 0)
    effects = head.handle(LeaveAsked())

    assert sent(effects) == [(1, "Leave"), (2, "Leave")]
    assert effects[-1] == Stop("left")
    assert sent(head.handle(report(1))) == [(1, "Leave")]
    assert head.handle(leave(1)) == []


# -- halt, cold start and the end (rules 10 and 12) -------------------------------------------------------------------


def test_below_the_minimum_the_closer_waits_and_may_only_let_others_in() -> None:
    head = started(clusters([0, 1]), 0, min_devices=2)
    head.handle(PeerFailed(1, 0))

    assert only(head.handle(trained(0)), Announce) == []
    effects = head.handle(join(1, incarnation=1))
    assert announced(effects).total is None
    assert head.version.round == 0
    assert announced(effects).record.roster == Roster({0: 0, 1: 1})


def test_when_nobody_is_inside_the_first_on_the_ladder_opens_a_roster() -> None:
    """After a power cut all are in a later life than the roster knows: clusters last to first, ids ascending."""
    first, other = device_in(TWO, 2, incarnation=1), device_in(TWO, 0, incarnation=1)
    for device in (first, other):
        device.handle(Started())
        for peer in range(4):
            if peer != device.id:
                device.handle(join(peer, incarnation=1))

    first.handle(Ticked())
    other.handle(Ticked())
    opened = announced(first.handle(Ticked()))
    assert opened.record.roster == Roster(dict.fromkeys(range(4), 1))
    assert opened.total is None
    assert only(other.handle(Ticked()), Announce) == []


def test_the_run_is_over_when_everybody_holds_the_last_model() -> None:
    closer = started(clusters([0, 1]), 0, rounds=1)
    closer.handle(trained(0))
    closing(closer, report(1))
    last = closer.version
    assert (last.round, closer.stopped) == (1, None)
    effects = closer.handle(report(1, version=last))

    assert announced(effects).record.is_over
    assert sent(effects) == [(1, "Ack"), (1, "Closed")]
    assert effects[-1] == Stop("over")


def test_whoever_says_that_it_holds_the_last_model_adds_no_samples() -> None:
    topology = clusters([0, 1])
    member = started(topology, 1, rounds=1)
    effects = member.handle(closed(0, next_record(topology, 0, 1)))
    (said,) = [one for one in messages_to(effects, 0) if isinstance(one, Report)]

    assert (set(said.contribution.included), said.contribution.n_samples) == ({1}, 0)


def test_after_the_end_the_record_goes_to_whoever_is_behind() -> None:
    alone = started(clusters([0, 1]), 0, rounds=1)
    alone.handle(PeerFailed(1, 0))
    closing(alone, trained(0))
    assert alone.stopped == "over"

    assert sent(alone.handle(heartbeat(1, incarnation=1))) == [(1, "Closed")]


def test_a_copy_lives_a_life_of_its_own() -> None:
    head = started(STAR, 0)
    head.handle(report(1))
    other = head.clone()
    other.handle(trained(0))
    closing(other, report(2))

    assert (head.version.round, other.version.round) == (0, 1)
    head.handle(trained(0))
    assert announced(closing(head, report(2))).record == other.record
