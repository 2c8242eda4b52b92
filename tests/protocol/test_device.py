"""The rules of a device, one by one: what it does when something happens."""

from __future__ import annotations

import pytest

from tests.protocol.fleets import (
    CHAIN,
    FIRST,
    STAR,
    TWO,
    ack,
    announced,
    closed,
    closing,
    clusters,
    device_in,
    mean,
    messages_to,
    next_record,
    offer,
    report,
    sent,
    share,
    started,
    trained,
    want,
)
from tolfl.protocol.device import Device
from tolfl.protocol.events import (
    Announce,
    DeadlinePassed,
    PeerFailed,
    Send,
    SetDeadline,
    Started,
    Stop,
    TakeOver,
    Ticked,
    Train,
)
from tolfl.protocol.messages import Closed, Mean, Payload, Report

# -- a failure-free round (rules 4 to 7) ------------------------------------------------------------------------------


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
    effects = closing(closer, mean(0, 0, 1))

    assert sent(effects) == [(0, "Ack"), (0, "Closed"), (3, "Closed")]
    kinds = [type(effect).__name__ for effect in effects]
    assert kinds == ["Send", "Apply", "Announce", "Send", "Send", "Train"]
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
    effects = closing(closer, report(2))

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
    effects = closing(closer, mean(0, 0, 1))

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
    closed_without = announced(closing(heir, report(2, dead=frozenset({(0, 0)}))))
    assert list(closed_without.record.included) == [1, 2]
    assert closed_without.record.missing == {0: "failed"}
    assert list(closed_without.record.roster.incarnations) == [1, 2]


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
    effects = closing(head, PeerFailed(2, 0))

    record = announced(effects).record
    assert (list(record.included), record.missing) == ([0], {1: "failed", 2: "failed"})


def test_what_was_received_counts_even_if_its_owner_has_died_since() -> None:
    head = started(STAR, 0)
    head.handle(report(1))
    head.handle(PeerFailed(1, 0))
    head.handle(trained(0))
    effects = closing(head, report(2))

    record = announced(effects).record
    assert list(record.included) == [0, 1, 2]
    assert list(record.roster.incarnations) == [0, 2]


def test_a_mean_need_not_cover_what_its_sender_knows_to_be_missing() -> None:
    closer = started(TWO, 2)
    closer.handle(trained(2))
    closer.handle(report(3))
    effects = closing(closer, mean(0, 0, missing={1: "late"}))

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

    assert sent(effects) == [(2, "Leave")]
    assert member.version == FIRST


def test_without_the_cluster_that_was_dropped_the_others_close() -> None:
    closer = started(TWO, 2, policy="drop")
    closer.handle(trained(2))
    closer.handle(report(3))
    effects = closing(closer, PeerFailed(0, 0))

    record = announced(effects).record
    assert (list(record.included), record.missing) == ([2, 3], {0: "failed", 1: "dropped"})
    assert list(record.roster.incarnations) == [2, 3]


def test_an_isolated_member_trains_alone_and_says_so_to_whoever_counts_on_it() -> None:
    member = started(STAR, 1, policy="isolate")
    effects = member.handle(PeerFailed(0, 0))

    assert [type(effect) for effect in effects] == [Announce, Train]
    assert member.is_private
    version = member.version
    alone = closing(member, trained(1, version))
    assert list(announced(alone).record.included) == [1]
    assert sent(alone) == []
    assert sent(member.handle(report(2))) == [(2, "Leave")]
    assert member.handle(Ticked()) == []


def test_a_member_that_fails_is_no_reason_to_drop_a_cluster() -> None:
    head = started(STAR, 0, policy="drop")
    head.handle(trained(0))
    head.handle(report(2))
    effects = closing(head, PeerFailed(1, 0))

    assert announced(effects).record.missing == {1: "failed"}


# -- deadlines (rule 6) -----------------------------------------------------------------------------------------------


def test_a_head_sets_a_deadline_and_goes_on_without_those_who_are_late() -> None:
    head = device_in(STAR, 0, has_deadline=True)
    assert head.handle(Started()) == [Train(FIRST, ()), SetDeadline(FIRST)]
    head.handle(trained(0))
    head.handle(report(2))
    effects = closing(head, DeadlinePassed(FIRST))

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
