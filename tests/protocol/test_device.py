"""The rules of a device, one by one: what it does when something happens."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.protocol.fleets import (
    FIRST,
    ack,
    closed,
    clusters,
    device_in,
    first_record,
    goodbye,
    heartbeat,
    join,
    mean,
    messages_to,
    next_record,
    offer,
    only,
    pull,
    report,
    sent,
    share,
    started,
    trained,
    want,
)
from tolfl.protocol.device import Device
from tolfl.protocol.effects import Announce, Effect, KeepIncarnation, Send, SetDeadline, Stop, TakeOver, Train
from tolfl.protocol.events import DeadlinePassed, LeaveAsked, PeerFailed, Started, Ticked
from tolfl.protocol.history import Roster
from tolfl.protocol.messages import Closed, Mean, Payload, Report

STAR = clusters([0, 1, 2])
TWO = clusters([0, 1], [2, 3])
CHAIN = clusters([0], [1], [2])


def announced(effects: Sequence[Effect]) -> Announce:
    (found,) = [effect for effect in effects if isinstance(effect, Announce)]
    return found


# -- an undisturbed round (rules 4 to 7) ------------------------------------------------------------------------------


def test_a_device_trains_on_the_newest_model_when_it_starts() -> None:
    assert device_in(STAR, 1).handle(Started()) == [Train(FIRST, ())]


def test_a_member_reports_to_its_head() -> None:
    member = started(STAR, 2)
    (effect,) = member.handle(trained(2))

    assert isinstance(effect, Send)
    assert effect.to == 0
    assert isinstance(effect.message, Report)
    assert effect.message.contribution == share(2)
    assert (effect.message.sender, effect.message.incarnation, effect.message.version) == (2, 0, FIRST)


def test_a_head_acknowledges_a_report_and_waits_for_the_others() -> None:
    head = started(STAR, 0)
    head.handle(trained(0))

    assert sent(head.handle(report(1))) == [(1, "Ack")]
    assert head.version == FIRST


def test_a_head_passes_its_running_mean_to_the_next_head_once_all_have_reported() -> None:
    head = started(TWO, 0)
    head.handle(report(1))
    (effect,) = head.handle(trained(0))

    assert isinstance(effect, Send)
    assert effect.to == 2
    assert isinstance(effect.message, Mean)
    assert list(effect.message.total.included) == [0, 1]
    assert effect.message.missing == {}


def test_the_closer_waits_for_the_chain_before_it() -> None:
    closer = started(TWO, 2)
    closer.handle(trained(2))

    assert sent(closer.handle(report(3))) == [(3, "Ack")]


def test_the_closer_announces_the_round_before_it_tells_anybody_and_goes_on() -> None:
    closer = started(TWO, 2)
    closer.handle(trained(2))
    closer.handle(report(3))
    effects = closer.handle(mean(0, 0, 1))

    assert sent(effects) == [(0, "Ack"), (0, "Closed"), (3, "Closed")]
    kinds = [type(effect).__name__ for effect in effects]
    assert kinds == ["Send", "Announce", "Send", "Send", "Train"]
    record = announced(effects).record
    assert list(record.included) == [0, 1, 2, 3]
    assert (record.version.work, record.version.round, record.missing) == (1 + 2 + 3 + 4, 1, {})


def test_a_head_passes_the_closed_round_to_its_members_and_not_back() -> None:
    head = started(TWO, 0)
    effects = head.handle(closed(2, next_record(TWO, 0, 1, 2, 3)))

    assert sent(effects) == [(1, "Closed")]
    assert head.version.round == 1
    assert isinstance(effects[-1], Train)


def test_a_member_takes_a_closed_round_and_trains_on() -> None:
    member = started(TWO, 1)
    record = next_record(TWO, 0, 1, 2, 3)

    assert member.handle(closed(0, record)) == [Train(record.version, ())]


def test_what_arrives_twice_counts_once() -> None:
    closer = started(STAR, 0)
    closer.handle(report(1))
    closer.handle(report(1))
    closer.handle(trained(0))
    effects = closer.handle(report(2))

    assert list(announced(effects).record.included) == [0, 1, 2]
    assert closer.handle(report(2)) == messages_back(closer, 2)


def messages_back(device: Device, to: int) -> list[Send]:
    """A report of the round before is answered with the newest record."""
    message = Closed(sender=device.id, incarnation=0, version=device.version, dead=frozenset(), record=device.record)
    return [Send(to, message)]


def test_training_that_nobody_waits_for_any_more_is_forgotten() -> None:
    member = started(TWO, 1)
    member.handle(closed(0, next_record(TWO, 0, 2, 3)))

    assert member.handle(trained(1)) == []


def test_a_report_from_another_cluster_or_another_life_is_ignored() -> None:
    head = started(TWO, 0)

    assert head.handle(report(3)) == []
    assert (1, "Ack") not in sent(head.handle(report(1, incarnation=1)))
    assert [list(m.total.included) for m in messages_to(head.handle(trained(0)), 2) if isinstance(m, Mean)] == [[0]]


def test_of_two_upstream_means_the_larger_is_used_and_they_are_never_merged() -> None:
    topology = clusters([0, 1], [2], [3])
    closer = started(topology, 3)
    closer.handle(trained(3))
    closer.handle(PeerFailed(2, 0))
    closer.handle(PeerFailed(1, 0))
    effects = closer.handle(mean(0, 0, 1))

    assert list(announced(effects).record.included) == [0, 1, 3]


# -- a head fails (rules 4 and 5) -------------------------------------------------------------------------------------


def test_a_member_reports_again_when_its_head_fails() -> None:
    member = started(STAR, 2)
    member.handle(trained(2))
    effects = member.handle(PeerFailed(0, 0))

    assert sent(effects) == [(1, "Report")]
    (message,) = messages_to(effects, 1)
    assert isinstance(message, Report)
    assert message.contribution == share(2)
    assert message.dead == {(0, 0)}


def test_the_next_in_line_takes_over_and_says_so_once() -> None:
    heir = started(STAR, 1)
    heir.handle(trained(1))
    effects = heir.handle(PeerFailed(0, 0))

    assert effects == [TakeOver(cluster=0, previous=0)]
    assert heir.handle(PeerFailed(0, 0)) == []
    closing = heir.handle(report(2, dead=frozenset({(0, 0)})))
    assert list(announced(closing).record.included) == [1, 2]
    assert announced(closing).record.missing == {0: "failed"}
    assert list(announced(closing).record.roster.incarnations) == [1, 2]


def test_a_death_is_learned_from_anybodys_message() -> None:
    heir = started(STAR, 1)
    heir.handle(trained(1))

    assert heir.handle(report(2, dead=frozenset({(0, 0)})))[0] == TakeOver(cluster=0, previous=0)


def test_a_head_sends_its_mean_again_when_the_next_head_fails() -> None:
    head = started(clusters([0], [1], [2]), 0)
    head.handle(trained(0))

    assert sent(head.handle(PeerFailed(1, 0))) == [(2, "Heartbeat"), (2, "Mean")]


def test_the_last_live_head_closes() -> None:
    head = started(CHAIN, 0)
    head.handle(trained(0))
    head.handle(PeerFailed(1, 0))
    effects = head.handle(PeerFailed(2, 0))

    record = announced(effects).record
    assert (list(record.included), record.missing) == ([0], {1: "failed", 2: "failed"})


def test_what_was_received_counts_even_if_its_owner_has_died_since() -> None:
    head = started(STAR, 0)
    head.handle(report(1))
    head.handle(PeerFailed(1, 0))
    head.handle(trained(0))
    effects = head.handle(report(2))

    record = announced(effects).record
    assert list(record.included) == [0, 1, 2]
    assert list(record.roster.incarnations) == [0, 2]


def test_a_mean_need_not_cover_what_its_sender_knows_to_be_missing() -> None:
    closer = started(TWO, 2)
    closer.handle(trained(2))
    closer.handle(report(3))
    effects = closer.handle(mean(0, 0, missing={1: "late"}))

    assert announced(effects).record.missing == {1: "late"}
    assert 1 in announced(effects).record.roster.incarnations


# -- policies (rule 11) -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["drop", "freeze"])
def test_without_its_head_a_dropped_member_stops_with_its_last_model(policy: str) -> None:
    member = started(TWO, 1, policy=policy)
    member.handle(trained(1))

    assert member.handle(PeerFailed(0, 0)) == [Stop("dropped")]
    assert member.version == FIRST
    assert member.handle(Ticked()) == []


def test_a_device_that_stopped_declines_to_be_counted_on() -> None:
    member = started(TWO, 1, policy="drop")
    member.handle(PeerFailed(0, 0))
    effects = member.handle(closed(2, next_record(TWO, 2, 3)))

    assert sent(effects) == [(2, "Goodbye")]
    assert member.version == FIRST


def test_without_the_cluster_that_was_dropped_the_others_close() -> None:
    closer = started(TWO, 2, policy="drop")
    closer.handle(trained(2))
    closer.handle(report(3))
    effects = closer.handle(PeerFailed(0, 0))

    record = announced(effects).record
    assert (list(record.included), record.missing) == ([2, 3], {0: "failed", 1: "dropped"})
    assert list(record.roster.incarnations) == [2, 3]


def test_an_isolated_member_trains_alone_and_answers_nobody() -> None:
    member = started(STAR, 1, policy="isolate")
    effects = member.handle(PeerFailed(0, 0))

    assert [type(effect) for effect in effects] == [Announce, Train]
    assert member.is_private
    version = member.version
    alone = member.handle(trained(1, version))
    assert list(announced(alone).record.included) == [1]
    assert sent(alone) == []
    assert member.handle(report(2)) == []
    assert member.handle(Ticked()) == []


def test_a_member_that_fails_is_no_reason_to_drop_a_cluster() -> None:
    head = started(STAR, 0, policy="drop")
    head.handle(trained(0))
    head.handle(report(2))
    effects = head.handle(PeerFailed(1, 0))

    assert announced(effects).record.missing == {1: "failed"}


# -- deadlines (rule 6) -----------------------------------------------------------------------------------------------


def test_a_head_sets_a_deadline_and_goes_on_without_those_who_are_late() -> None:
    head = device_in(STAR, 0, has_deadline=True)
    assert head.handle(Started()) == [Train(FIRST, ()), SetDeadline(FIRST)]
    head.handle(trained(0))
    head.handle(report(2))
    effects = head.handle(DeadlinePassed(FIRST))

    record = announced(effects).record
    assert (list(record.included), record.missing) == ([0, 2], {1: "late"})
    assert list(record.roster.incarnations) == [0, 1, 2]


def test_a_deadline_of_a_round_that_is_closed_means_nothing() -> None:
    head = started(STAR, 0, has_deadline=True)
    head.handle(closed(1, next_record(STAR, 0, 1, 2)))

    assert head.handle(DeadlinePassed(FIRST)) == []


# -- offers, wants and acknowledgements (rule 5) ----------------------------------------------------------------------


def test_a_report_that_was_never_acknowledged_is_offered_with_the_heartbeat() -> None:
    member = started(STAR, 2)
    member.handle(trained(2))

    assert sent(member.handle(Ticked())) == [(0, "Heartbeat"), (0, "Offer")]
    member.handle(ack(0, 2))
    assert sent(member.handle(Ticked())) == [(0, "Heartbeat")]


def test_a_mean_that_was_never_acknowledged_is_offered_too() -> None:
    head = started(CHAIN, 0)
    head.handle(trained(0))

    assert sent(head.handle(Ticked())) == [(1, "Heartbeat"), (1, "Offer")]
    head.handle(ack(1, 0, what=Payload.MEAN))
    assert sent(head.handle(Ticked())) == [(1, "Heartbeat")]


def test_an_acknowledgement_of_something_else_is_none() -> None:
    head = started(CHAIN, 0)
    head.handle(trained(0))
    head.handle(ack(2, 0, what=Payload.MEAN))
    head.handle(ack(1, 0, 1, what=Payload.MEAN))

    assert (1, "Offer") in sent(head.handle(Ticked()))


def test_an_offer_is_answered_by_want_or_by_ack() -> None:
    head = started(STAR, 0)

    assert sent(head.handle(offer(2, 2))) == [(2, "Want")]
    head.handle(report(2))
    assert sent(head.handle(offer(2, 2))) == [(2, "Ack")]


def test_an_offer_of_a_mean_is_wanted_only_if_it_holds_more() -> None:
    closer = started(clusters([0, 1], [2]), 2)

    assert sent(closer.handle(offer(0, 0, 1, what=Payload.MEAN))) == [(0, "Want")]
    closer.handle(mean(0, 0, 1))
    assert sent(closer.handle(offer(0, 0, what=Payload.MEAN))) == [(0, "Ack")]


def test_what_is_wanted_is_sent_again() -> None:
    member, head = started(STAR, 2), started(CHAIN, 0)
    member.handle(trained(2))
    head.handle(trained(0))

    assert sent(member.handle(want(0, 2))) == [(0, "Report")]
    assert sent(head.handle(want(1, 0, what=Payload.MEAN))) == [(1, "Mean")]
    assert member.handle(want(1, 2)) == []
    assert head.handle(want(2, 0, what=Payload.MEAN)) == []


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
    effects = head.handle(trained(0))

    record = announced(effects).record
    assert record.roster == Roster({0: 0, 1: 1})
    assert announced(effects).joined == ((1, 1),)
    assert (1, "Closed") in sent(effects)


def test_a_join_is_the_end_of_the_life_before_it() -> None:
    head = started(STAR, 0)
    head.handle(trained(0))
    head.handle(report(2))
    effects = head.handle(join(1, incarnation=1))

    assert announced(effects).record.missing == {1: "failed"}
    assert (1, "Closed") in sent(effects)
    assert list(head.record.roster.incarnations) == [0, 2]  # the round was waiting for nobody else: too late for it
    head.handle(trained(0, head.version))
    later = announced(head.handle(report(2, version=head.version)))
    assert later.record.roster == Roster({0: 0, 1: 1, 2: 0})


def test_a_device_that_comes_back_asks_the_closer_to_let_it_in() -> None:
    device = device_in(TWO, 1, incarnation=1)

    assert sent(device.handle(Started())) == [(2, "Join")]
    assert sent(device.handle(Ticked())) == [(2, "Join")]


def test_a_join_at_an_older_version_is_answered_with_the_record_and_remembered() -> None:
    closer = started(clusters([0], [1]), 1)
    closer.handle(PeerFailed(0, 0))
    closer.handle(trained(1))

    assert (0, "Closed") in sent(closer.handle(join(0, incarnation=1)))
    effects = closer.handle(trained(1, closer.version))
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
    effects = head.handle(goodbye(1))

    assert announced(effects).record.missing == {1: "left"}


def test_who_leaves_says_goodbye_to_heads_and_members_and_no_more() -> None:
    head = started(TWO, 0)
    effects = head.handle(LeaveAsked())

    assert sent(effects) == [(1, "Goodbye"), (2, "Goodbye")]
    assert effects[-1] == Stop("left")
    assert head.handle(report(1)) == []


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
    closer.handle(report(1))
    last = closer.version
    assert (last.round, closer.stopped) == (1, None)
    effects = closer.handle(report(1, version=last))

    assert announced(effects).record.is_over
    assert sent(effects) == [(1, "Ack"), (1, "Closed")]
    assert effects[-1] == Stop("over")


def test_after_the_end_the_record_goes_to_whoever_is_behind() -> None:
    alone = started(clusters([0, 1]), 0, rounds=1)
    alone.handle(PeerFailed(1, 0))
    alone.handle(trained(0))
    assert alone.stopped == "over"

    assert sent(alone.handle(heartbeat(1, incarnation=1))) == [(1, "Closed")]


def test_a_copy_lives_a_life_of_its_own() -> None:
    head = started(STAR, 0)
    head.handle(report(1))
    other = head.clone()
    other.handle(trained(0))
    other.handle(report(2))

    assert (head.version.round, other.version.round) == (0, 1)
    head.handle(trained(0))
    assert announced(head.handle(report(2))).record == other.record
