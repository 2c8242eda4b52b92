"""A device of the fleet, without I/O: events in, effects out.

The simulator and the real network are two drivers around this one class. It reads no clock, opens no socket, trains
nothing itself and holds no random generator, so the same events give the same effects everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from itertools import starmap
from typing import Self, assert_never

import msgspec

from tolfl.core.contribution import Contribution, Pending
from tolfl.core.deferred_sum import deferred_merge
from tolfl.core.device_set import DeviceSet
from tolfl.core.spec import RunSpec
from tolfl.core.topology import Topology
from tolfl.learners.layouts import protocol_policy, wiring
from tolfl.learners.learner import Learner
from tolfl.protocol import events, messages
from tolfl.protocol.events import Announce, Apply, Effect, KeepIncarnation, Send, SetDeadline, Stop, TakeOver, Train
from tolfl.protocol.history import ClosedRound, Incarnation, Roster, State, Version
from tolfl.protocol.membership import LEASH, Membership
from tolfl.protocol.messages import AnyMessage, Payload
from tolfl.protocol.round_state import RoundState

#: More than all samples of all rounds together: work is counted below it.
_MAX_WORK = 2**62
#: Heartbeats to devices outside the live roster, per beat.
_N_PROBES = 2
#: Every so many beats there is a heartbeat for anybody, whoever is believed to be alive.
_BEATS_PER_ROUND_TRIP = 8
#: From which enforced incarnation on a device waits before it joins, and for how many beats at most.
_BACK_OFF_FROM, _MAX_BACK_OFF = 5, 255
#: Where nobody is inside a roster: for how many beats a device waits for each that should open one before it does, and
#: for a newer record that somebody says to have. Whoever answers nothing must not keep the others waiting for good.
_TICKS_PER_RANK = 32
#: For how many beats those outside a roster wait for those inside to let them in, before they open one of their own, if
#: they are more. Nobody can tell a slow round from one that never closes: too short costs the slow ones their round.
_TICKS_OUTSIDE = 10 * _TICKS_PER_RANK


class Rules(msgspec.Struct, frozen=True):
    """What all devices of a run have in common: the layout, the arithmetic and the limits."""

    topology: Topology
    rounds: int
    #: the chain so far with a cluster appended, which is given as one contribution per device, in id order
    merge: Callable[[Pending | None, Sequence[Pending]], Pending] = Contribution.appended
    policy: str = "elect"  #: when a head dies: elect, drop, isolate or freeze
    min_devices: int = 1
    min_samples: int = 1
    has_deadline: bool = False
    #: whether a head adds up the contribution or mean of another: from its own version, state and contribution, if it
    #: has one, and that of the other; None: every one is admitted
    admits: Callable[[Version, State, Pending | None, Pending], bool] | None = None
    #: names a state by its content; None: states are not computed yet, and are told apart by their history alone
    digest: Callable[[State], str] | None = None

    @property
    def max_work(self) -> int:
        """How many samples a round can have, so that whatever all devices claim in all rounds can be counted."""
        return _MAX_WORK // (self.rounds + 1)

    @classmethod
    def of(cls, spec: RunSpec, learner: Learner) -> Rules:
        """Return the rules of a run, the same for both drivers."""
        return cls(
            wiring(spec),
            learner.rounds,
            deferred_merge(spec.defence),
            protocol_policy(spec),
            spec.min_devices,
            spec.min_samples,
            spec.deadline_s is not None,
        )


class Device:
    """One device through its incarnations; `handle` is all there is to call."""

    __slots__ = (
        "_asked_for",
        "_beat",
        "_beats_to_wait",
        "_effects",
        "_max_work",
        "_n_enforced",
        "_n_holding",
        "_newer",
        "_next_anybody",
        "_next_probed",
        "_next_pulled",
        "_outside",
        "_past",
        "_rules",
        "_ticks_outside",
        "awaited",
        "fleet",
        "is_private",
        "record",
        "round",
        "stopped",
    )

    def __init__(self, device: int, incarnation: int, record: ClosedRound, rules: Rules) -> None:
        if rules.digest is not None and not record.version.model:  # nobody has closed it: all begin with it
            version = msgspec.structs.replace(record.version, model=rules.digest(record.state))
            record = msgspec.structs.replace(record, version=version)
        self.record, self._rules, self._max_work = record, rules, rules.max_work
        self.fleet = Membership(device, incarnation, record.roster, rules.topology, rules.policy != "elect")
        self.round = RoundState()
        self.stopped: str | None = None  #: why nothing more comes from this device
        self.is_private = False  #: trains alone, for good
        #: who must be in, or have asked to join, before a round closes, by its number; never changed in place
        self.awaited: Mapping[int, frozenset[int]] = {}
        self._newer: dict[tuple[int, type], AnyMessage] = {}  #: of newer versions, kept until caught up (rule 8)
        self._asked_for: Version | None = None  #: the newest version whose record was asked for
        self._outside: dict[int, tuple[int, Version]] = {}  #: while outside, who is alive, and its version (rule 10)
        self._ticks_outside = 0  #: since the newest record
        self._next_probed = self._next_anybody = device  #: whose turn it is to get a heartbeat: this id or the next
        self._next_pulled = device  #: whose turn it is to be asked for a newer record
        self._beat = 0  #: beats since the last heartbeat to anybody
        self._n_enforced = 0  #: new incarnations that others enforced since this device was included
        self._beats_to_wait = 0  #: before it joins again
        self._n_holding: int | None = (
            None  #: how many said that they hold the last model, if this device closed the end
        )
        self._past = -1  #: the latest own incarnation that others have declared failed, while it waits
        self._effects: list[Effect] = []

    @property
    def id(self) -> int:
        """The id of the device, the same in every incarnation."""
        return self.fleet.id

    @property
    def incarnation(self) -> int:
        """Its incarnation: how often it has begun anew."""
        return self.fleet.incarnation

    @property
    def version(self) -> Version:
        """The version of the newest model it holds."""
        return self.record.version

    @property
    def role(self) -> str:
        """What it is to the others: member, head, closer; outside, until it is admitted; alone, for good."""
        if self.is_private:
            return "alone"
        if not self.fleet.is_inside:
            return "outside"
        roles = self.fleet.roles
        if roles.closer == self.id:
            return "closer"
        return "head" if self.id in roles.heads else "member"

    @property
    def missed(self) -> frozenset[int]:
        """Who must come in before the present round closes, and has not asked to."""
        awaited = self.awaited.get(self.version.round, frozenset())
        return awaited and frozenset(awaited - self.fleet.joiners.keys() - set(self.fleet.roles.live))

    @property
    def is_unconfirmed(self) -> bool:
        """Whether it has ended, and the others may have ended with another model: few took part, or it knows of one."""
        if self.stopped != "over" or self.is_private:
            return False
        n_holding = len(self.record.roster.incarnations) if self._n_holding is None else self._n_holding
        return 2 * n_holding <= self._rules.topology.n_devices or bool(self._newer)

    @property
    def is_holding_back(self) -> bool:
        """Whether it could close the round, but for those who must come in first."""
        return self.round.is_held_back and self.stopped is None

    def is_settled_with(self, fleet: Membership, version: Version) -> bool:
        """Return whether it takes part in a round of a fleet and knows of nothing that the fleet does not know."""
        own = self.fleet
        is_same = own.roster == fleet.roster and own.dead == fleet.dead and not own.joiners
        is_waiting = self._newer or self._beats_to_wait or self.is_private or self.stopped
        return own.is_inside and self.version == version and is_same and not is_waiting

    def skip_to(self, record: ClosedRound) -> None:
        """Stand where failure-free rounds lead to: with a record that everybody has, before the next one is closed."""
        self.record, self.round = record, RoundState()
        self.fleet.enter(record.roster)
        self._n_enforced = 0

    def clone(self) -> Self:
        """Return an independent copy; records and messages are immutable and shared."""
        other = copy(self)
        other.round, other.fleet = self.round.clone(), copy(self.fleet)
        other._newer, other._outside, other._effects = dict(self._newer), dict(self._outside), []
        return other

    def restore(self, earlier: Self) -> None:
        """Go back to an earlier state, a copy that nobody uses any more."""
        for name in self.__slots__:
            setattr(self, name, getattr(earlier, name))

    def handle(self, event: events.Event) -> list[Effect]:
        """Take in what happened and return what must be done about it, in order."""
        effects: list[Effect] = []
        self._effects = effects
        if self.stopped in ("left", "dropped") or (
            self.is_private and not isinstance(event, events.Trained | events.Applied)
        ):
            if isinstance(event, events.Received):
                self._decline(event.message)
            return effects
        match event:
            case events.Received():
                self._receive(event.message)
            case events.Trained():
                self._trained(event)
            case events.Applied():
                self._applied(event)
            case events.PeerFailed():
                self._mark_failed(frozenset({(event.device, event.incarnation)}), is_seen=True)
            case events.Ticked():
                self._tick()
            case events.DeadlinePassed():
                if event.version == self.version:
                    self.round.is_late = True
                    self._progress()
            case events.Started():
                self._begin_round()
            case events.LeaveAsked():
                self._leave()
            case _:
                assert_never(event)
        return effects

    # -- rounds -------------------------------------------------------------------------------------------------

    def _begin_round(self) -> None:
        """Start on the newest record: train, wait for the end, or ask to join."""
        self.stopped = None
        if self.record.is_over:
            self._stop("over")
            return
        if self.fleet.is_replaced:
            self._start_incarnation(self.fleet.roster.incarnations[self.id])
        if not self.fleet.is_inside:
            self._ask_to_join()
            return
        if self.version.round < self._rules.rounds:
            self._effects.append(Train(self.version, self.record.state))
        else:
            # Rule 12: the end is one more round in which nobody trains and everybody says "I hold the last model".
            self.round.own = Contribution(DeviceSet.of([self.id]), 0, {})
        self._progress()

    def _trained(self, event: events.Trained) -> None:
        # Rule 8: a contribution counts only for the version it was trained on.
        if event.version == self.version and self.round.own is None and self.fleet.is_inside:
            self.round.own = event.contribution
            self._progress()

    def _progress(self) -> None:
        """Do what this device owes, given what it has in hand and who is alive (rules 5 and 6)."""
        if not self.fleet.is_inside or self.record.is_over:
            return
        roles, round_ = self.fleet.roles, self.round
        round_.is_held_back = False
        if self.id in roles.dropped:
            self._lose_cluster()
            return
        head = roles.head_of[self.fleet.cluster]
        if head == self.id:
            self._act_as_head()
        elif round_.own is not None and round_.reported_to != head:
            round_.reported_to, round_.reported_acked = head, False
            self._send_report(head, round_.own)

    def _act_as_head(self) -> None:
        round_, roles, cluster = self.round, self.fleet.roles, self.fleet.cluster
        if cluster in roles.takes_over and not round_.has_taken_over:
            round_.has_taken_over = True
            self._effects.append(TakeOver(cluster, roles.takes_over[cluster]))
        if round_.own is not None:
            round_.collect(self.id, round_.own)
        if self._rules.has_deadline and not round_.timer_set:
            round_.timer_set = True
            self._effects.append(SetDeadline(self.version))
        self._judge()
        if round_.upstream_means:
            round_.choose_upstream(roles, cluster)
        if not round_.is_complete(roles, cluster):
            return
        following = roles.next_head.get(self.id)
        if following is None:
            self._close()
        elif (following, round_.included_bits()) != (round_.passed_to, round_.passed_bits):
            round_.passed_to, round_.passed_bits, round_.passed_acked = following, round_.included_bits(), False
            self._send_mean(following)

    def _judge(self) -> None:
        """Leave out what is not admitted, once there is something to compare it with (rule 6)."""
        round_, admits = self.round, self._rules.admits
        if admits is None or self.version.round >= self._rules.rounds or (round_.own is None and not round_.is_late):
            return

        def is_admitted(other: Pending) -> bool:
            return admits(self.version, self.record.state, round_.own, other)

        round_.judge_reports(self.id, is_admitted)
        round_.judge_upstream(self.fleet.roles, self._rules.topology.cluster_of, is_admitted)

    def _close(self) -> None:
        """Have the mean applied (rule 7); or wait, if too few are in it (rule 10)."""
        round_, rules = self.round, self._rules
        if round_.closing is not None:
            return
        round_.is_held_back = bool(self.missed)
        if round_.is_held_back:
            return
        if self.version.round >= rules.rounds:
            # With the roster as it was, so that the end has one name, whoever of two closers in a row declares it.
            n_holding = round_.included_bits().bit_count()
            self._extend(self.record.with_roster(self.record.roster, is_over=True))
            self._n_holding = n_holding
        elif not self.is_private and (
            round_.included_bits().bit_count() < rules.min_devices or round_.n_samples() < rules.min_samples
        ):
            if self.fleet.joiners:
                self._extend(self.record.with_roster(self.fleet.next_roster()))
        else:
            total, roster = round_.running_mean(rules.merge), self.fleet.next_roster()
            round_.closing = (total, round_.missing(self.fleet), roster)
            self._effects.append(Apply(self.version, self.record.state, total, roster.devices))

    def _applied(self, event: events.Applied) -> None:
        """Form the record and distribute it (rule 7), unless another one was adopted meanwhile (rule 8)."""
        if event.version == self.version and self.round.closing is not None:
            total, missing, roster = self.round.closing
            model = "" if self._rules.digest is None else self._rules.digest(event.state)
            self._extend(self.record.after(total, missing, roster, event.state, model, event.loss), total)
            for device in self.fleet.joiners:
                # Who asked to join while the state was computed is behind now, and in the roster of the next round.
                self._send_record(device)

    def _extend(self, record: ClosedRound, total: Pending | None = None) -> None:
        """Announce a record of one's own and go on from it."""
        joined = tuple(sorted(record.roster.members - self.record.roster.members))
        self._effects.append(Announce(record, total, self.fleet.roles.heads, joined))
        self._adopt(record, sender=None)

    def _adopt(self, record: ClosedRound, sender: int | None) -> None:
        """Go on from a heavier record, dropping a lighter branch and any training on it (rules 8 and 9)."""
        was_inside = self.fleet.is_inside
        self.record, self.round, self._n_holding, self._ticks_outside = record, RoundState(), None, 0
        self.fleet.enter(record.roster)
        if self._n_enforced and self.id in record.included:
            self._n_enforced = self._beats_to_wait = 0
        if was_inside and not self.fleet.is_inside and not record.is_over:
            self._start_incarnation(max(self.incarnation, record.roster.incarnations.get(self.id, 0)))
        self._distribute(sender)
        self._begin_round()
        newer, self._newer = self._newer, {}
        for message in newer.values():
            if message.version >= self.version:
                self._receive(message)

    # -- messages in --------------------------------------------------------------------------------------------

    def _receive(self, message: AnyMessage) -> None:
        fleet, sender = self.fleet, (message.sender, message.incarnation)
        if fleet.has_failed(sender):
            self._answer_failed_sender(message)
            return
        if not fleet.is_inside:
            self._outside[message.sender] = (message.incarnation, message.version)
        earlier = fleet.roster.incarnations.get(message.sender, message.incarnation)
        if earlier < message.incarnation:
            self._mark_failed(frozenset({(message.sender, earlier)}))
        if message.dead and message.version == self.version:
            failed = fleet.own_death_in(message.dead)
            if failed is not None:
                if not self.record.is_over:
                    self._rejoin(message, failed)
                return
            self._mark_failed(message.dead)
        if self.stopped == "dropped" or self.is_private:
            return
        if message.version == self.version:
            self._take(message)
        elif message.version > self.version:
            self._catch_up(message)
        else:
            self._answer_old(message)

    def _take(self, message: AnyMessage) -> None:
        """Act on a message of the own version."""
        match message:
            case messages.Report():
                self._take_report(message)
            case messages.Ack():
                self.round.acknowledge(message)
            case messages.Closed() | messages.Heartbeat():
                pass
            case messages.Mean():
                self._take_mean(message)
            case messages.Offer():
                answer = messages.Ack if self.round.has(message) else messages.Want
                self._send(message.sender, answer, what=message.what, included=message.included)
            case messages.Want():
                self._resend(message)
            case messages.Pull():
                self._send_record(message.sender)
            case messages.Join():
                self._admit(message)
            case messages.Leave():
                self._take_leave(message)
            case _:
                assert_never(message)

    def _take_report(self, message: messages.Report) -> None:
        is_expected = self.fleet.cluster_in_roster(message.sender, message.incarnation) == self.fleet.cluster
        if self.fleet.is_inside and is_expected:
            if message.contribution.n_samples * self._rules.topology.n_devices <= self._max_work:
                self.round.collect(message.sender, message.contribution)
            else:
                self.round.refuse(message.sender)
            self.fleet.note_joiners(message.joiners)
            self._send(message.sender, messages.Ack, what=Payload.REPORT, included=message.contribution.included)
            self._progress()

    def _take_mean(self, message: messages.Mean) -> None:
        cluster = self.fleet.cluster_in_roster(message.sender, message.incarnation)
        if self.fleet.is_inside and cluster is not None and cluster < self.fleet.cluster:
            if not self._is_mean_of(cluster, message.total):
                pass  # as good as none
            elif self._rules.admits is None or self.version.round >= self._rules.rounds:
                self.round.offer_upstream(message)
            else:
                self.round.keep_offered(message)
            self.fleet.note_joiners(message.joiners)
            self._send(message.sender, messages.Ack, what=Payload.MEAN, included=message.total.included)
            self._progress()

    def _is_mean_of(self, cluster: int, total: Pending) -> bool:
        """Return whether a mean is of devices of the roster, up to the cluster of its head, and can be counted."""
        is_theirs = not total.included.bits & ~self.fleet.roles.so_far[cluster]
        most = len(total.included) * self._max_work // self._rules.topology.n_devices
        return is_theirs and total.n_samples <= most

    def _take_leave(self, message: messages.Leave) -> None:
        sender = (message.sender, message.incarnation)
        self.fleet.mark_left(sender)
        self._mark_failed(frozenset({sender}))

    # -- older and newer versions (rule 8) ----------------------------------------------------------------------

    def _catch_up(self, message: AnyMessage) -> None:
        if isinstance(message, messages.Closed):
            self._adopt_from(message)
            return
        if not self._can_be_reached(message.version):
            return
        self._newer[message.sender, type(message)] = message
        # In a failure-free round the record is on its way already; a pull would move the model twice. The record of
        # another branch is not: whoever closed that branch may have died before sending it to all.
        fleet = self.fleet
        is_disturbed = not fleet.is_inside or fleet.has_losses or fleet.has_lost_more(message.dead)
        if is_disturbed or message.version.conflicts_with(self.version):
            self._pull(message)

    def _adopt_from(self, message: messages.Closed) -> None:
        record = message.record
        if not self._is_possible(record):
            return
        if record.roster.incarnations.get(self.id) != self.incarnation:
            # Outside: the beliefs of the heavier side replace one's own, which may suspect its devices.
            self.fleet.believe(message.dead, spared=record.roster)
        self._adopt(record, message.sender)

    def _can_be_reached(self, version: Version) -> bool:
        return version.round <= self._rules.rounds and version.work <= version.round * self._max_work

    def _is_possible(self, record: ClosedRound) -> bool:
        """Return whether honest devices can have come to a record; a forged one must stay within that."""
        version, own, rules, fleet = record.version, self.record.version, self._rules, self.fleet
        if not record.is_consistent or not self._can_be_reached(version):
            return False
        if record.is_over and version.round != rules.rounds:
            return False
        # Whoever extends it must find a number that is still free: near the end of all numbers there would be none.
        is_same_round = version.revision and (version.work, version.round) == (own.work, own.round)
        if version.revision > LEASH + (own.revision if is_same_round else 0):
            return False
        roster = record.roster
        if roster is not fleet.roster and roster.latest > LEASH and not all(starmap(fleet.is_near, roster.members)):
            return False
        return rules.digest is None or rules.digest(record.state) == version.model

    def _answer_old(self, message: AnyMessage) -> None:
        if isinstance(message, messages.Leave):
            self._take_leave(message)
        elif isinstance(message, messages.Join):
            self._send_record(message.sender)
            self._admit(message)
        elif isinstance(message, messages.Heartbeat):
            # In mid-run the record is on its way already; after the end nobody else may be left to send it.
            is_member = self.fleet.roster.incarnations.get(message.sender) == message.incarnation
            if self.record.is_over:
                self._send_record(message.sender)
            elif not is_member or self.fleet.has_lost_more(message.dead):
                # Nothing is on its way to a device outside. A failure that one behind reports: perhaps of the device
                # who should have sent the record.
                self._send(message.sender, messages.Heartbeat)
        elif isinstance(message, messages.Closed):
            if self.version.conflicts_with(message.version):
                # The sender goes on from a lighter branch and has sent it to all; it pulls, and sends again.
                self._send(message.sender, messages.Heartbeat)
        elif isinstance(message, messages.Report | messages.Mean | messages.Offer | messages.Pull):
            self._send_record(message.sender)

    # -- failures and incarnations (rules 3, 9, 11) -------------------------------------------------------------------

    def _mark_failed(self, incarnations: frozenset[Incarnation], is_seen: bool = False) -> None:
        """Note deaths, and do what now falls to this device."""
        if not self.fleet.mark_failed(incarnations, is_seen):
            return
        self._pull_again()
        if self._rules.policy == "isolate" and self.fleet.roles.dropped:
            # They train on alone, and whatever happens to them there, they do not come back to this fleet.
            gone = frozenset(self.fleet.roles.dropped)
            self.awaited = {round_index: devices - gone for round_index, devices in self.awaited.items()}
        if not self.fleet.is_inside:
            self._ask_to_join()
            return
        if self.fleet.roles.head_of.get(self.fleet.cluster) == self.id:
            self._tell_heads()
        self._progress()

    def _answer_failed_sender(self, message: AnyMessage) -> None:
        """Answer a failed sender: the heavier history is right, then the larger side (rule 9)."""
        if isinstance(message, messages.Leave):
            counted = self.fleet.roster.incarnations.get(message.sender, -1)
            if counted > message.incarnation and not self.fleet.has_failed((message.sender, counted)):
                self._send_record(message.sender)  # it does not know in which incarnation it is counted on
            return
        if message.version > self.version:
            if isinstance(message, messages.Closed):
                self._adopt_from(message)
            elif self._can_be_reached(message.version):
                self._newer[message.sender, type(message)] = message
                self._send(message.sender, messages.Pull)
        elif message.version < self.version:
            if not isinstance(message, messages.Closed | messages.Ack):
                self._send_record(message.sender)
        elif not self.record.is_over:
            self._resolve_mutual_suspicion(message)

    def _resolve_mutual_suspicion(self, message: AnyMessage) -> None:
        failed = self.fleet.own_death_in(message.dead)
        if failed is not None and (not self.fleet.is_inside or self.fleet.is_smaller_side(message.dead)):
            self._rejoin(message, failed)
        elif self.fleet.is_inside and message.incarnation >= self.fleet.roster.incarnations.get(message.sender, 0):
            self._send(message.sender, messages.Heartbeat)

    def _rejoin(self, message: AnyMessage, failed: int) -> None:
        """Accept to be dead up to an incarnation: come back in a later one, with the beliefs of those who go on."""
        self.fleet.believe(message.dead, spared=self.fleet.roster)
        self._start_incarnation(failed)
        self._ask_to_join()

    def _start_incarnation(self, past: int) -> None:
        """Begin the next incarnation after those that others have declared failed or replaced.

        Each time it waits longer: others must not be kept busy with its joining.
        """
        self.fleet.is_inside = False
        self.round = RoundState()
        if self._beats_to_wait:
            self._past = max(past, self._past)
            return
        self._n_enforced += 1
        self._beats_to_wait = max(0, min(2 ** (self._n_enforced - _BACK_OFF_FROM + 1) - 1, _MAX_BACK_OFF))
        self._take_next_incarnation(past)

    def _take_next_incarnation(self, past: int) -> None:
        self.fleet.start_incarnation(past)
        self._effects.append(KeepIncarnation(self.incarnation))

    def _lose_cluster(self) -> None:
        """Lose the head under `drop`: keep the last model, or train on alone (rule 11)."""
        if self._rules.policy != "isolate":
            self._stop("dropped")
            return
        self.is_private, self.awaited = True, {}
        alone = Roster({self.id: self.incarnation})
        self.fleet = Membership(self.id, self.incarnation, alone, self._rules.topology, drops_clusters=False)
        self._newer, self._asked_for = {}, None
        self._extend(self.record.with_roster(alone))

    def _leave(self) -> None:
        for peer in sorted({*self.fleet.roles.heads, *self.fleet.members()} - {self.id}):
            self._send(peer, messages.Leave)
        self._stop("left")

    def _stop(self, reason: str) -> None:
        self.stopped = reason
        self._effects.append(Stop(reason))

    # -- coming in (rules 2 and 10) and heartbeats (rules 5 and 8) ----------------------------------------------

    def _admit(self, message: messages.Join) -> None:
        self.fleet.note_joiners({message.sender: message.incarnation})
        self._progress()

    def _come_in(self) -> None:
        """Ask whoever is inside the roster; start again where nobody is, or nobody lets anybody in."""
        self._ticks_outside += 1
        has_nobody = self.fleet.roles.closer is None
        roster = self._roster_to_open(self._ticks_outside - (1 if has_nobody else _TICKS_OUTSIDE))
        if roster is not None:
            self._extend(self.record.with_roster(roster))
        elif has_nobody or not self._ticks_outside % _TICKS_OUTSIDE:
            for device in sorted(self._rules.topology.cluster_of):
                if device != self.id:
                    self._send(device, messages.Join)
        else:
            self._ask_to_join()

    def _roster_to_open(self, n_waited: int) -> Roster | None:
        """Return the roster to open, if this device comes first and has the newest record, or has waited enough."""
        fleet, inside = self.fleet, self.fleet.roles.live
        alive = {device: known for device, known in self._outside.items() if not fleet.has_failed((device, known[0]))}
        if inside:
            # A Byzantine device that invented this roster may be in it, or a slow one: nobody is taken over from it.
            alive = {d: known for d, known in alive.items() if d not in inside and known[1] == self.version}
            if len(alive) + 1 < max(len(inside) + 1, self._rules.min_devices):
                return None
        roster = {device: incarnation for device, (incarnation, _) in alive.items()} | {fleet.id: fleet.incarnation}
        in_order = [device for cluster in reversed(fleet.topology.clusters) for device in cluster if device in roster]
        n_awaited = in_order.index(fleet.id) + any(newer > self.version for _, newer in alive.values())
        return Roster(dict(sorted(roster.items()))) if n_waited > n_awaited * _TICKS_PER_RANK else None

    def _tick(self) -> None:
        """Say hello on the links at rest, and offer again what was never acknowledged."""
        self._pull_again()
        self.fleet.pass_beat()
        receivers: list[int] = []
        if self.fleet.is_inside or self.record.is_over:
            # Those outside may be alive after all: without a word to them, a healed partition would stay apart.
            probed = _in_turn(self.fleet.roles.outside, self._next_probed, self.id)[:_N_PROBES]
            self._next_probed = probed[-1] + 1 if probed else self._next_probed
            receivers = [*self.fleet.neighbours(), *probed]
        elif not self._is_waiting():
            self._come_in()
        self._beat = (self._beat + 1) % _BEATS_PER_ROUND_TRIP
        if not self._beat:
            # Whoever is believed to be in touch may not be: a link may work in one direction only.
            anybody = _in_turn(sorted(self._rules.topology.cluster_of), self._next_anybody, self.id)[:1]
            self._next_anybody = anybody[0] + 1 if anybody else self._next_anybody
            receivers += anybody
        for peer in sorted(set(receivers)):
            self._send(peer, messages.Heartbeat)
        self._offer_unacknowledged()
        if self.round.is_held_back:
            self._progress()

    def _is_waiting(self) -> bool:
        """Count down the wait of a device whose incarnations are declared failed again and again."""
        if not self._beats_to_wait:
            return False
        self._beats_to_wait -= 1
        if not self._beats_to_wait and self._past >= self.incarnation:
            self._take_next_incarnation(self._past)
        return True

    # -- any message ----------------------------------------------------------------------------------------------

    def _message(self, kind: type[AnyMessage], **fields: object) -> AnyMessage:
        fleet = self.fleet
        header = (fleet.id, fleet.incarnation, self.record.version, fleet.dead)
        return kind(*header, **fields)  # type: ignore[arg-type]

    def _send(self, to: int, kind: type[AnyMessage], **fields: object) -> None:
        self._effects.append(Send(to, self._message(kind, **fields)))

    # -- records (rules 5 and 8) ----------------------------------------------------------------------------------

    def _distribute(self, sender: int | None) -> None:
        """Pass the newest record on (rule 5): the closer to all heads, every head to its members."""
        if not self.fleet.is_inside:
            return
        is_head = self.fleet.roles.head_of.get(self.fleet.cluster) == self.id
        receivers = [head for head in self.fleet.roles.heads if head != self.id] if sender is None else []
        receivers += self.fleet.members() if is_head else []
        if receivers:
            closed = self._message(messages.Closed, record=self.record)
            self._effects += [Send(to, closed) for to in receivers if to != sender]
        if sender is not None and is_head and self.fleet.has_losses:
            self._tell_heads()

    def _tell_heads(self) -> None:
        # A closer may have died half way through distributing: all heads learn the version from whoever has it.
        for head in self.fleet.heads_to_tell():
            self._send(head, messages.Heartbeat)

    def _send_record(self, to: int) -> None:
        self._send(to, messages.Closed, record=self.record)

    def _pull(self, message: AnyMessage) -> None:
        """Ask the sender of a newer version for the record, once per version."""
        if self._asked_for is None or self._asked_for < message.version:
            self._asked_for = message.version
            self._send(message.sender, messages.Pull)

    def _pull_again(self) -> None:
        """Ask the next device that announced a newer version: the one asked may have failed, or be Byzantine."""
        self._asked_for = None
        announced = {
            message.sender: message
            for message in self._newer.values()
            if not self.fleet.has_failed((message.sender, message.incarnation))
        }
        for sender in _in_turn(sorted(announced), self._next_pulled, self.id)[:1]:
            self._next_pulled = sender + 1
            self._pull(announced[sender])

    # -- obligations (rule 5) ------------------------------------------------------------------------------------

    def _send_report(self, head: int, contribution: Pending) -> None:
        self._send(head, messages.Report, contribution=contribution, joiners=self.fleet.joiners)

    def _send_mean(self, following: int) -> None:
        total, missing = self.round.running_mean(self._rules.merge), self.round.missing(self.fleet)
        self._send(following, messages.Mean, total=total, missing=missing, joiners=self.fleet.joiners)

    def _resend(self, message: messages.Want) -> None:
        round_ = self.round
        if message.what is Payload.REPORT and round_.own is not None and message.sender == round_.reported_to:
            self._send_report(message.sender, round_.own)
        elif message.what is Payload.MEAN and message.sender == round_.passed_to:
            self._send_mean(message.sender)

    def _offer_unacknowledged(self) -> None:
        """Offer what was sent and never acknowledged; it moves again only if it is wanted (rule 5)."""
        round_ = self.round
        if round_.reported_to is not None and round_.own is not None and not round_.reported_acked:
            self._send(round_.reported_to, messages.Offer, what=Payload.REPORT, included=round_.own.included)
        if round_.passed_to is not None and not round_.passed_acked:
            self._send(round_.passed_to, messages.Offer, what=Payload.MEAN, included=DeviceSet(round_.passed_bits))

    # -- coming and going (rules 2 and 11) ------------------------------------------------------------------------

    def _ask_to_join(self) -> None:
        if self.record.is_over or self._beats_to_wait:
            return
        closer = self.fleet.roles.closer
        if closer is not None and closer != self.id:
            self._send(closer, messages.Join)

    def _decline(self, message: AnyMessage) -> None:
        """Tell whoever counts on a device that stopped, or goes on alone, not to wait for it."""
        counted = self.incarnation
        if isinstance(message, messages.Closed):
            counted = message.record.roster.incarnations.get(self.id, -1)
        if counted >= self.incarnation and not isinstance(message, messages.Ack | messages.Leave):
            leave = messages.Leave(self.id, counted, message.version, frozenset())
            self._effects.append(Send(message.sender, leave))


def _in_turn(devices: Sequence[int], first: int, without: int) -> list[int]:
    """Return devices, given in id order, beginning with the first id that is not below `first`."""
    later, earlier = [d for d in devices if d >= first], [d for d in devices if d < first]
    return [device for device in later + earlier if device != without]
