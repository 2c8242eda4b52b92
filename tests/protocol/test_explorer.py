"""The checker finds nothing in the protocol, and finds every rule that is taken out of it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from tests.protocol.explore import CAMPAIGNS, HARSH_CAMPAIGNS, campaign, explore_all
from tests.protocol.world import Setting, Violation
from tolfl.core.contribution import Pending
from tolfl.core.device_set import DeviceSet
from tolfl.protocol import device as device_module
from tolfl.protocol.device import Device
from tolfl.protocol.events import Applied, Stop, Trained
from tolfl.protocol.history import ClosedRound, Version
from tolfl.protocol.membership import DeviceRoles, Membership, roles_of
from tolfl.protocol.messages import AnyMessage, Closed, Mean
from tolfl.protocol.round_state import RoundState

SCHEDULES_IN_CI = 1_000
#: Of each kind with liars, links that fail in one direction, disks put back and sleep: 1,650 and 33,000 in all.
HARSH_SCHEDULES, MORE_HARSH_SCHEDULES = 150, 3_000

#: A slow machine may take its time: a search has no deadline of its own.
pytestmark = pytest.mark.timeout(900)

#: Complete in seconds: N, k, rounds, policy, crashes.
SMALL_WORLDS = [
    *((3, k, 0, "elect", 2) for k in (1, 2, 3)),
    *((3, k, 1, "elect", 1) for k in (1, 2)),
    (3, 1, 1, "elect", 2),
    (3, 2, 1, "drop", 2),
    (3, 1, 1, "isolate", 2),
]
#: Complete in three minutes or less each, by `make test-all`; four devices with two crashes did not in 25.
LARGER_WORLDS = [
    (3, 3, 1, "elect", 1),
    (3, 2, 1, "elect", 2),
    (3, 1, 2, "elect", 2),
    (3, 2, 2, "elect", 2),
    (3, 3, 1, "elect", 2),
    (3, 3, 2, "elect", 1),
    (4, 2, 1, "elect", 1),
]


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_no_random_schedule_breaks_a_promise(name: str) -> None:
    campaign(name, SCHEDULES_IN_CI)


@pytest.mark.parametrize("name", HARSH_CAMPAIGNS)
def test_no_lie_half_link_old_disk_or_sleep_breaks_a_promise(name: str) -> None:
    campaign(name, HARSH_SCHEDULES)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", HARSH_CAMPAIGNS)
def test_no_lie_half_link_old_disk_or_sleep_breaks_a_promise_in_many_schedules(name: str) -> None:
    campaign(name, MORE_HARSH_SCHEDULES, first_seed=100_000)


@pytest.mark.parametrize("world", SMALL_WORLDS, ids=str)
def test_no_path_through_a_small_world_breaks_a_promise(world: tuple[int, int, int, str, int]) -> None:
    assert explore_all(Setting(*world)) > 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("world", LARGER_WORLDS, ids=str)
def test_no_path_through_a_larger_world_breaks_a_promise(world: tuple[int, int, int, str, int]) -> None:
    assert explore_all(Setting(*world)) > 1000


# -- planted bugs: one rule taken out at a time ----------------------------------------------------------------------

Patch = Callable[[pytest.MonkeyPatch], None]


def _keeps_its_own_branch(patch: pytest.MonkeyPatch) -> None:
    """Without rule 1: a record of a round that one has closed already is not adopted, however heavy."""
    adopt = Device._adopt_from

    def only_the_next_round(self: Device, message: Closed) -> None:
        if message.version.round > self.version.round or message.record.is_over:
            adopt(self, message)

    patch.setattr(Device, "_adopt_from", only_the_next_round)


def _lets_nobody_in(patch: pytest.MonkeyPatch) -> None:
    """Without rule 2: whoever wants in is forgotten."""
    patch.setattr(Membership, "note_joiners", lambda *_: None)


def _keeps_its_old_life(patch: pytest.MonkeyPatch) -> None:
    """Without rule 3: who was declared dead comes back under the same name."""

    def same_life(self: Device, past: int) -> None:
        self.round = RoundState()

    patch.setattr(Device, "_start_incarnation", same_life)


def _appoints_heads_for_good(patch: pytest.MonkeyPatch) -> None:
    """Without rule 4: roles do not follow from who is alive."""
    patch.setattr(Membership, "roles", property(lambda self: roles_of(self.topology, self.roster, DeviceSet(), False)))


def _reports_only_once(patch: pytest.MonkeyPatch) -> None:
    """Without rule 5: what a member owed to a dead head, it does not owe to the next one."""
    send = Device._send_report

    def first_time_only(self: Device, head: int, contribution: Pending) -> None:
        if head == self.fleet.topology.clusters[self.fleet.cluster][0]:
            send(self, head, contribution)

    patch.setattr(Device, "_send_report", first_time_only)


def _merges_two_upstream_means(patch: pytest.MonkeyPatch) -> None:
    """Without rule 6: two means of the same clusters are added."""
    from tests.protocol.world import merge

    def add(self: RoundState, mean: Mean) -> None:
        self.upstream = mean.total if self.upstream is None else merge([self.upstream, mean.total])

    patch.setattr(RoundState, "offer_upstream", add)


def _does_not_wait_for_upstream(patch: pytest.MonkeyPatch) -> None:
    """Without rule 6: a head passes on its own cluster alone."""
    patch.setattr(
        RoundState, "is_complete", lambda self, roles, cluster: not roles.members[cluster] & ~self.received_bits
    )


def _counts_a_duplicate(patch: pytest.MonkeyPatch) -> None:
    """Without rule 6: a report that arrives twice counts twice."""
    from tests.protocol.world import merge

    def add(self: RoundState, device: int, contribution: Pending) -> None:
        known = self.received.get(device)
        is_again = known is not None and contribution is known
        self.received[device] = merge([known, contribution]) if is_again and known is not None else contribution
        self.received_bits |= 1 << device

    patch.setattr(RoundState, "collect", add)


def _forgets_its_members(patch: pytest.MonkeyPatch) -> None:
    """Without rule 7: the closer tells the other heads and nobody else."""
    patch.setattr(Device, "_distribute", lambda *_: None)
    patch.setattr(Device, "_answer_old", lambda *_: None)


def _counts_training_on_any_version(patch: pytest.MonkeyPatch) -> None:
    """Without rule 8: what was trained on a branch that lost is counted."""

    def trained(self: Device, event: Trained) -> None:
        if self.round.own is None and self.fleet.is_inside and self.version.round < self._rules.rounds:
            self.round.own = event.contribution
            self._progress()

    patch.setattr(Device, "_trained", trained)


def _takes_old_messages_for_new(patch: pytest.MonkeyPatch) -> None:
    """Without rule 8: a message of an older version is acted upon."""
    patch.setattr(Device, "_answer_old", Device._take)


def _never_pulls(patch: pytest.MonkeyPatch) -> None:
    """Without rule 8: who falls behind stays behind."""
    patch.setattr(Device, "_pull", lambda *_: None)
    patch.setattr(Device, "_answer_old", lambda *_: None)
    patch.setattr(Device, "_answer_failed_sender", lambda *_: None)


def _never_steps_aside(patch: pytest.MonkeyPatch) -> None:
    """Without rule 9: both sides of a healed partition insist."""
    patch.setattr(Membership, "is_smaller_side", lambda *_: False)
    patch.setattr(Device, "_answer_failed_sender", lambda *_: None)


def _opens_no_roster(patch: pytest.MonkeyPatch) -> None:
    """Without rule 10: after a power cut everybody waits to be let in."""
    patch.setattr(Device, "_come_in", Device._ask_to_join)


def _keeps_a_headless_cluster(patch: pytest.MonkeyPatch) -> None:
    """Without rule 11: under `drop` the members of a dead head stay."""

    def elects(self: Membership) -> DeviceRoles:
        failed = (device for device, life in self.roster.incarnations.items() if self.has_failed((device, life)))
        return roles_of(self.topology, self.roster, DeviceSet.of(failed), False)

    patch.setattr(Membership, "roles", property(elects))


def _leaves_at_once(patch: pytest.MonkeyPatch) -> None:
    """Without rule 12: a device goes as soon as it has the last model itself."""
    begin = Device._begin_round

    def stop_at_the_end(self: Device) -> None:
        begin(self)
        if self.version.round >= self._rules.rounds:
            self.stopped = "left"
            self._effects.append(Stop("left"))

    patch.setattr(Device, "_begin_round", stop_at_the_end)


def _misnames_what_is_inside(patch: pytest.MonkeyPatch) -> None:
    """Provenance: a head claims a live member's samples that it never received."""
    is_complete = RoundState.is_complete

    def impatient(self: RoundState, roles: DeviceRoles, cluster: int) -> bool:
        if len(DeviceSet(roles.members[cluster] & ~self.received_bits)) == 1 and self.own is not None:
            self.received_bits |= roles.members[cluster]
        return is_complete(self, roles, cluster)

    patch.setattr(RoundState, "is_complete", impatient)


def _waits_for_whom_it_refused(patch: pytest.MonkeyPatch) -> None:
    """Without rule 6: a report that is not admitted is waited for all the same."""
    judge = RoundState.judge_reports

    def forget(self: RoundState, head: int, is_admitted: Callable[[Pending], bool]) -> None:
        judge(self, head, is_admitted)
        self.refused_bits = 0

    patch.setattr(RoundState, "judge_reports", forget)


def _adds_up_what_it_refused(patch: pytest.MonkeyPatch) -> None:
    """Without rule 6: a mean that is not admitted is taken up."""

    def take_up_all(self: RoundState, *_: object) -> None:
        for mean in self.offered.values():
            self.offer_upstream(mean)

    patch.setattr(RoundState, "judge_upstream", take_up_all)


def _takes_any_state_for_its_own(patch: pytest.MonkeyPatch) -> None:
    """Without rule 7: a state that is computed for a version is taken for that of any other."""

    def applied(self: Device, event: Applied) -> None:
        if not self.record.is_over:
            total = self.round.running_mean(self._rules.merge)
            self._extend(self.record.after(total, {}, self.fleet.next_roster(), event.state), total)

    patch.setattr(Device, "_applied", applied)


# -- the same for what holds against lies ----------------------------------------------------------------------------

LIES, REPENTANT = "a liar, then gone", "a liar that goes on"


def _keeps_every_death(patch: pytest.MonkeyPatch) -> None:
    """Without the horizon: a death is kept for good, whatever has come after it."""
    set_horizon = Membership._set_horizon

    def keep(self: Membership, horizon: dict[int, int]) -> None:
        before = self.dead
        set_horizon(self, horizon)
        self.dead |= before

    patch.setattr(Membership, "_set_horizon", keep)


def _overlooks_that_it_is_replaced(patch: pytest.MonkeyPatch) -> None:
    """A device does not see the later incarnation of itself that is in a roster."""
    patch.setattr(Membership, "is_replaced", property(lambda self: False))


def _takes_one_more_only(patch: pytest.MonkeyPatch) -> None:
    """A device that is told that a later incarnation of it is over takes the next one, which is over as well."""
    start = Membership.start_incarnation
    patch.setattr(Membership, "start_incarnation", lambda self, past: start(self, self.incarnation))


def _has_no_leash(patch: pytest.MonkeyPatch) -> None:
    """Whatever is said of a device's incarnation is believed."""
    patch.setattr(Membership, "is_near", lambda *_: True)


def _never_gives_more_leash(patch: pytest.MonkeyPatch) -> None:
    """Devices that were told different lies stay apart."""
    patch.setattr(Membership, "pass_beat", lambda *_: None)


def _adopts_anything(patch: pytest.MonkeyPatch) -> None:
    """A record need not be possible."""
    patch.setattr(Device, "_is_possible", lambda *_: True)


def _checks_no_name(patch: pytest.MonkeyPatch) -> None:
    """The name of a record need not be the hash of its content."""
    patch.setattr(ClosedRound, "is_consistent", property(lambda self: True))


def _checks_no_model(patch: pytest.MonkeyPatch) -> None:
    """The name of a record does not cover its model."""
    is_possible = Device._is_possible

    def without_digest(self: Device, record: ClosedRound) -> bool:
        rules, self._rules = self._rules, msgspec.structs.replace(self._rules, digest=None)
        found = is_possible(self, record)
        self._rules = rules
        return found

    patch.setattr(Device, "_is_possible", without_digest)


def _counts_any_work(patch: pytest.MonkeyPatch) -> None:
    """A version may have any amount of work."""

    def can_be_reached(self: Device, version: Version) -> bool:
        return version.round <= self._rules.rounds

    patch.setattr(Device, "_can_be_reached", can_be_reached)


def _insists_on_the_first_mean(patch: pytest.MonkeyPatch) -> None:
    """Of several upstream means the first with most included stays, also if it leads nowhere."""

    def first_of_the_largest(self: RoundState, *_: object) -> None:
        means = self.upstream_means.values()
        largest = max(means, key=lambda mean: len(mean.total.included))
        self.upstream, self.upstream_missing = largest.total, largest.missing

    patch.setattr(RoundState, "choose_upstream", first_of_the_largest)


def _takes_any_mean(patch: pytest.MonkeyPatch) -> None:
    """A mean may be of anybody, and weigh anything."""
    patch.setattr(Device, "_is_mean_of", lambda *_: True)


def _probes_nobody(patch: pytest.MonkeyPatch) -> None:
    """Nobody outside the live roster gets heartbeats, but for the eighth."""
    patch.setattr(device_module, "_N_PROBES", 0)


def _pulls_from_one_only(patch: pytest.MonkeyPatch) -> None:
    """Of those who announced a newer version, only the first is ever asked."""

    def first_only(self: Device) -> None:
        self._asked_for = None
        for message in list(self._newer.values())[:1]:
            self._pull(message)

    patch.setattr(Device, "_pull_again", first_only)


def _waits_to_be_let_in_for_good(patch: pytest.MonkeyPatch) -> None:
    """Those outside a roster never open one of their own while somebody is inside."""
    patch.setattr(device_module, "_TICKS_OUTSIDE", 2**62)


def _is_always_sure(patch: pytest.MonkeyPatch) -> None:
    """An end is never unconfirmed."""
    patch.setattr(Device, "is_unconfirmed", property(lambda self: False))


def _lets_others_wait(patch: pytest.MonkeyPatch) -> None:
    """Whoever stopped, or trains alone, says so only if it gets a record."""
    decline = Device._decline

    def to_records_only(self: Device, message: AnyMessage) -> None:
        if isinstance(message, Closed):
            decline(self, message)

    patch.setattr(Device, "_decline", to_records_only)


@pytest.mark.parametrize(
    ("bug", "name"),
    [
        (_keeps_its_own_branch, "crashes"),
        (_lets_nobody_in, "restarts"),
        (_keeps_its_old_life, "partitions"),
        (_appoints_heads_for_good, "crashes"),
        (_reports_only_once, "crashes"),
        (_merges_two_upstream_means, "crashes"),
        (_does_not_wait_for_upstream, "crashes"),
        (_counts_a_duplicate, "crashes"),
        (_forgets_its_members, "crashes"),
        (_counts_training_on_any_version, "crashes"),
        (_takes_old_messages_for_new, "crashes"),
        (_never_pulls, "crashes"),
        (_never_steps_aside, "partitions"),
        (_opens_no_roster, "blackouts"),
        (_keeps_a_headless_cluster, "drop"),
        (_leaves_at_once, "crashes"),
        (_misnames_what_is_inside, "crashes"),
        (_waits_for_whom_it_refused, "refusals"),
        (_adds_up_what_it_refused, "refusals"),
        (_takes_any_state_for_its_own, "suspicions"),
        (_keeps_every_death, "old disks"),
        (_overlooks_that_it_is_replaced, REPENTANT),
        (_takes_one_more_only, REPENTANT),
        (_has_no_leash, LIES),
        (_never_gives_more_leash, LIES),
        (_adopts_anything, LIES),
        (_checks_no_name, LIES),
        (_checks_no_model, LIES),
        (_counts_any_work, LIES),
        (_insists_on_the_first_mean, REPENTANT),
        (_takes_any_mean, LIES),
        (_probes_nobody, "partitions"),
        (_pulls_from_one_only, LIES),
        (_waits_to_be_let_in_for_good, "a liar that takes the fleet for itself"),
        (_is_always_sure, "awake when all are gone"),
        (_is_always_sure, "two directions for good"),
        (_lets_others_wait, "a liar where heads have no successors"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_the_checker_finds_the_rule_that_is_missing(bug: Patch, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)

    with pytest.raises(Violation):
        campaign(name, 20_000)
