"""A closer dies while it distributes: how many message delays later does everybody hold the heavier record?

No training ends and no heartbeat is due here: the record spreads by what the death itself sets off.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.protocol.fleets import closed, clusters, first_record, heartbeat, next_record, sent, shares, started
from tests.protocol.world import Setting, World
from tolfl.protocol.events import Apply, Event, PeerFailed, Received, Send
from tolfl.protocol.history import ClosedRound, Roster, Version
from tolfl.protocol.membership import Membership
from tolfl.protocol.messages import Closed

N = 12
CLOSER = N - 1
SURVIVORS = range(CLOSER)
CHAIN = clusters([0], [1], [2], [3], [4])


# -- a chain of twelve ------------------------------------------------------------------------------------------------


@dataclass
class Aftermath:
    """What the death of a closer has set off, until nothing is on its way any more."""

    delays: int | None  #: until everybody held the heavier record; None: that never happened
    messages: Counter[str]


def closer_at_work() -> tuple[World, list[Send]]:
    """Return a chain whose last device has just closed the first round, and what it is about to send."""
    world = World.new(Setting(n_devices=N, n_clusters=N, rounds=2))
    while True:
        step = world.target(next(world.choices()))
        assert step is not None
        device, event = step
        if device != CLOSER:
            world.happen(device, event)
            continue
        effects = world.devices[CLOSER].handle(event)
        world.applying += [(CLOSER, effect) for effect in effects if isinstance(effect, Apply)]
        if world.devices[CLOSER].version.round:
            return world, [effect for effect in effects if isinstance(effect, Send)]


def after_the_death(told: set[int], witnesses: set[int], order: random.Random) -> Aftermath:
    """Let the closer die after it told some, and some see it die; then pass on messages, one delay after the other."""
    world, sends = closer_at_work()
    heavier = world.devices[CLOSER].version
    world.die(CLOSER)
    for send in sends:
        if isinstance(send.message, Closed) and send.to in told:
            happen(world, send.to, Received(send.message))
    (life,) = {life for _, life in world.unnoticed}
    world.unnoticed.clear()
    for witness in sorted(witnesses):
        happen(world, witness, PeerFailed(*life))
    aftermath = Aftermath(None, Counter())
    for delays in itertools.count():
        if aftermath.delays is None and all(state.version == heavier for state in world.devices.values()):
            aftermath.delays = delays
        if not world.flying and not world.unnoticed:
            break
        aftermath.messages.update(type(message).__name__ for _, message in world.flying)
        pass_on(world, order)
    return aftermath


def happen(world: World, device: int, event: Event) -> None:
    """Let something happen; the state after a round is computed in no time."""
    world.happen(device, event)
    while world.applying:
        step = world.target(("apply", 0, None))
        assert step is not None
        world.happen(*step)


def pass_on(world: World, order: random.Random) -> None:
    """Let everything arrive that is on its way now, in any order, and refused connections be noticed."""
    flying, world.flying = world.flying, []
    refused, world.unnoticed = sorted(world.unnoticed), set()
    order.shuffle(flying)
    for to, message in flying:
        happen(world, to, Received(message))
    for observer, dead in refused:
        happen(world, observer, PeerFailed(*dead))


some_survivors = st.sets(st.sampled_from(SURVIVORS), min_size=1)
any_order = st.randoms(use_true_random=False)


@given(st.integers(1, N - 1), any_order)
def test_a_heavier_record_is_everywhere_after_three_delays(n_told: int, order: random.Random) -> None:
    """A closer tells the heads in their order: a word from the first, a pull, the record."""
    aftermath = after_the_death(set(range(n_told)), set(SURVIVORS), order)

    assert aftermath.delays is not None
    assert aftermath.delays <= 3


@given(some_survivors, some_survivors, any_order)
def test_it_spreads_whoever_was_told_and_whoever_saw_the_death(
    told: set[int], witnesses: set[int], order: random.Random
) -> None:
    aftermath = after_the_death(told, witnesses, order)

    assert aftermath.delays is not None
    assert aftermath.delays <= 8


@given(some_survivors, some_survivors, any_order)
def test_what_a_death_sets_off_grows_with_the_number_of_heads_and_no_faster(
    told: set[int], witnesses: set[int], order: random.Random
) -> None:
    messages = after_the_death(told, witnesses, order).messages
    n_models = messages.pop("Closed", 0) + messages.pop("Mean", 0)

    assert messages.total() <= 10 * N
    assert n_models <= 4 * N


def _waits_for_a_heartbeat(patch: pytest.MonkeyPatch) -> None:
    """Without the pull of another branch's record: it is thought to be on its way."""
    patch.setattr(Version, "conflicts_with", lambda *_: False)


def _tells_its_neighbours_only(patch: pytest.MonkeyPatch) -> None:
    """Without the ends of the chain: a version spreads from head to head."""
    patch.setattr(Membership, "heads_to_tell", Membership.heads_beside)


@pytest.mark.parametrize("bug", [_waits_for_a_heartbeat, _tells_its_neighbours_only])
def test_without_either_rule_it_takes_longer(
    bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    aftermath = after_the_death({0}, set(SURVIVORS), random.Random(0))

    assert aftermath.delays is None or aftermath.delays > 3


# -- the rules, one by one --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("head", "told"), [(0, [1, 2, 3]), (1, [0, 3]), (2, [0, 3]), (3, [0, 1, 2])])
def test_after_a_death_the_ends_of_the_chain_tell_all_heads_and_the_others_tell_the_ends(
    head: int, told: list[int]
) -> None:
    effects = started(CHAIN, head).handle(PeerFailed(4, 0))

    assert sent(effects) == [(peer, "Heartbeat") for peer in told]


def test_a_heavier_record_of_the_same_round_is_pulled_at_once_and_once_only() -> None:
    """The round that was closed without device 4 has no losses: nothing but the rival tells that one may be missing."""
    lighter, heavier = next_record(CHAIN, 0, 1, 2, 3, without=[4]), next_record(CHAIN, 0, 1, 2, 3, 4)
    head = started(CHAIN, 2)
    head.handle(closed(3, lighter))

    assert sent(head.handle(heartbeat(0, version=heavier.version))) == [(0, "Pull")]
    assert head.handle(heartbeat(3, version=heavier.version)) == []


def test_the_next_record_of_a_failure_free_round_is_waited_for() -> None:
    head = started(CHAIN, 2)

    assert head.handle(heartbeat(0, version=next_record(CHAIN, 0, 1, 2, 3, 4).version)) == []


def test_the_next_record_is_pulled_from_somebody_who_knows_of_a_death() -> None:
    newer = next_record(CHAIN, 0, 1, 2, 3, 4).version

    assert sent(started(CHAIN, 2).handle(heartbeat(0, newer, dead=frozenset({(4, 0)})))) == [(0, "Pull")]


def test_a_lighter_record_of_the_same_round_is_answered_with_the_version_of_the_heavier() -> None:
    lighter, heavier = next_record(CHAIN, 0, 1, 2, 3, without=[4]), next_record(CHAIN, 0, 1, 2, 3, 4)
    head = started(CHAIN, 0)
    head.handle(closed(4, heavier))
    (effect,) = head.handle(closed(3, lighter, dead=frozenset({(4, 0)})))

    assert sent([effect]) == [(3, "Heartbeat")]
    assert isinstance(effect, Send)
    assert effect.message.version == heavier.version


def test_the_record_of_an_earlier_round_is_no_rival() -> None:
    earlier = next_record(CHAIN, 0, 1, 2, 3, 4)
    later = earlier.after(shares(0, 1, 2, 3, 4), {}, earlier.roster, ())
    head = started(CHAIN, 0)
    head.handle(closed(4, later))

    assert head.handle(closed(4, earlier)) == []


def test_news_of_a_death_from_somebody_behind_is_answered_with_the_version() -> None:
    head = started(CHAIN, 0)
    head.handle(closed(4, next_record(CHAIN, 0, 1, 2, 3, 4)))
    dead = frozenset({(4, 0)})

    assert sent(head.handle(heartbeat(3, dead=dead))) == [(3, "Heartbeat")]
    head.handle(PeerFailed(4, 0))
    assert head.handle(heartbeat(2, dead=dead)) == []


# -- rivals -----------------------------------------------------------------------------------------------------------

some_devices = st.sets(st.sampled_from(range(5)), min_size=1)


@given(st.lists(some_devices, min_size=1, max_size=6))
def test_what_extends_a_record_is_never_its_rival(steps: list[set[int]]) -> None:
    ancestors: list[ClosedRound] = [first_record(CHAIN)]
    for devices in steps:
        last, roster = ancestors[-1], Roster(dict.fromkeys(sorted(devices), 0))
        is_update = 0 in devices
        ancestors.append(last.after(shares(*devices), {}, roster, ()) if is_update else last.with_roster(roster))

    assert not any(ancestors[-1].version.conflicts_with(earlier.version) for earlier in ancestors[:-1])
    assert ancestors[-1].version > ancestors[-2].version


@given(some_devices, some_devices)
def test_two_records_that_extend_one_in_the_same_way_are_rivals(one: set[int], other: set[int]) -> None:
    assume(one != other)
    versions = [next_record(CHAIN, *inside).version for inside in (one, other)]

    assert max(versions).conflicts_with(min(versions))
