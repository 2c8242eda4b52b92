"""A device of the fleet, without I/O: events in, effects out.

The simulator and the real network are two drivers around this one class. It reads no clock, opens no socket, trains
nothing itself and holds no random generator, so the same events give the same effects everywhere.
"""

from __future__ import annotations

from typing import assert_never

from tolfl.core.contribution import Contribution, Pending
from tolfl.core.device_set import DeviceSet
from tolfl.protocol import events, messages
from tolfl.protocol.catching_up import Ahead
from tolfl.protocol.effects import Announce, Effect, KeepIncarnation, SetDeadline, Stop, TakeOver, Train
from tolfl.protocol.history import ClosedRound, Life, Roster
from tolfl.protocol.membership import Membership
from tolfl.protocol.messages import AnyMessage, Payload
from tolfl.protocol.round import Round
from tolfl.protocol.speaker import Speaker


class Device(Speaker):
    """One device through its lives; `handle` is all there is to call."""

    __slots__ = ()

    def handle(self, event: events.Event) -> list[Effect]:
        """Take in what happened and return what must be done about it, in order."""
        effects: list[Effect] = []
        self._effects = effects
        if self.stopped in ("left", "dropped") or (self.is_private and not isinstance(event, events.Trained)):
            if isinstance(event, events.Received):
                self._decline(event.message)
            return effects
        match event:
            case events.Received():
                self._receive(event.message)
            case events.Trained():
                self._trained(event)
            case events.PeerFailed():
                self._bury(frozenset({(event.device, event.incarnation)}))
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
        """Start on the newest record: train, wait for the end, or ask to be let in."""
        self.stopped = None
        if self.record.is_over:
            self._stop("over")
            return
        if not self.fleet.is_inside:
            self._ask_to_join()
            return
        if self.version.round < self._rules.rounds:
            self._effects.append(Train(self.version, self.record.models))
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
        if not round_.is_complete(roles, cluster):
            return
        following = roles.next_head.get(self.id)
        if following is None:
            self._close()
        elif (following, round_.included_bits()) != (round_.passed_to, round_.passed_bits):
            round_.passed_to, round_.passed_bits, round_.passed_acked = following, round_.included_bits(), False
            self._send_mean(following)

    def _close(self) -> None:
        """Apply the mean, form the record and distribute it (rule 7); or wait, if too few are in it (rule 10)."""
        round_, rules = self.round, self._rules
        if self.version.round >= rules.rounds:
            # With the roster as it was, so that the end has one name, whoever of two closers in a row declares it.
            self._extend(self.record.with_roster(self.record.roster, is_over=True))
        elif not self.is_private and (
            round_.included_bits().bit_count() < rules.min_devices or round_.n_samples() < rules.min_samples
        ):
            if self.fleet.joiners:
                self._extend(self.record.with_roster(self.fleet.next_roster()))
        else:
            total = round_.running_mean(rules.merge)
            roster = self.fleet.next_roster()
            models = rules.apply(self.record.models, total, self.version, roster.devices)
            self._extend(self.record.after(total, self.round.missing(self.fleet), roster, models), total)

    def _extend(self, record: ClosedRound, total: Pending | None = None) -> None:
        """Announce a record of one's own and go on from it."""
        joined = tuple(sorted(record.roster.lives - self.record.roster.lives))
        self._effects.append(Announce(record, total, self.fleet.roles.heads, joined))
        self._adopt(record, sender=None)

    def _adopt(self, record: ClosedRound, sender: int | None) -> None:
        """Go on from a heavier record, dropping a lighter branch and any training on it (rules 8 and 9)."""
        was_inside = self.fleet.is_inside
        self.record, self.round = record, Round()
        self.fleet.enter(record.roster)
        if was_inside and not self.fleet.is_inside and not record.is_over:
            self._next_life()
        self._distribute(sender)
        self._begin_round()
        for message in self._ahead.take_all():
            if message.version >= self.version:
                self._receive(message)

    # -- messages in --------------------------------------------------------------------------------------------

    def _receive(self, message: AnyMessage) -> None:
        fleet, life = self.fleet, (message.sender, message.incarnation)
        if fleet.is_buried(life):
            self._argue(message)
            return
        if not fleet.is_inside:
            self._gathering.hear(message)
        earlier = fleet.roster.incarnations.get(message.sender, message.incarnation)
        if message.incarnation > earlier:
            self._bury(frozenset({(message.sender, earlier)}))
        if message.dead and message.version == self.version:
            if (self.id, self.incarnation) in message.dead:
                if not self.record.is_over:
                    self._step_aside(message)
                return
            self._bury(message.dead)
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
                self._send_again(message)
            case messages.Pull():
                self._send_record(message.sender)
            case messages.Join():
                self._let_in(message)
            case messages.Goodbye():
                self._take_goodbye(message)
            case _:
                assert_never(message)

    def _take_report(self, message: messages.Report) -> None:
        is_expected = self.fleet.cluster_in_roster(message.sender, message.incarnation) == self.fleet.cluster
        if self.fleet.is_inside and is_expected:
            self.round.collect(message.sender, message.contribution)
            self.fleet.note_joiners(message.joiners)
            self._send(message.sender, messages.Ack, what=Payload.REPORT, included=message.contribution.included)
            self._progress()

    def _take_mean(self, message: messages.Mean) -> None:
        cluster = self.fleet.cluster_in_roster(message.sender, message.incarnation)
        if self.fleet.is_inside and cluster is not None and cluster < self.fleet.cluster:
            self.round.offer_upstream(message)
            self.fleet.note_joiners(message.joiners)
            self._send(message.sender, messages.Ack, what=Payload.MEAN, included=message.total.included)
            self._progress()

    def _take_goodbye(self, message: messages.Goodbye) -> None:
        life = frozenset({(message.sender, message.incarnation)})
        self.fleet.left |= life
        self._bury(life)

    # -- older and newer versions (rule 8) ----------------------------------------------------------------------

    def _catch_up(self, message: AnyMessage) -> None:
        if isinstance(message, messages.Closed):
            self._adopt_from(message)
            return
        self._ahead.keep(message)
        # In an undisturbed round the record is on its way already; a pull would move the model twice. The record of
        # another branch is not: whoever closed that branch may have died before telling everybody.
        fleet = self.fleet
        is_disturbed = not fleet.is_inside or fleet.has_losses or fleet.has_lost_more(message.dead)
        if is_disturbed or message.version.is_rival_of(self.version):
            self._pull()

    def _adopt_from(self, message: messages.Closed) -> None:
        if (self.id, self.incarnation) not in message.record.roster.lives:
            # Outside: the beliefs of the heavier side replace one's own, which may hold its devices for dead.
            self.fleet.believe(message.dead, spared=message.record.roster.lives)
        self._adopt(message.record, message.sender)

    def _answer_old(self, message: AnyMessage) -> None:
        if isinstance(message, messages.Goodbye):
            self._take_goodbye(message)
        elif isinstance(message, messages.Join):
            self._send_record(message.sender)
            self._let_in(message)
        elif isinstance(message, messages.Heartbeat):
            # In mid-run the record is on its way already; after the end nobody else may be left to send it.
            if self.record.is_over:
                self._send_record(message.sender)
            elif self.fleet.has_lost_more(message.dead):
                # News of a death from somebody behind: perhaps of the one who should have sent the record.
                self._send(message.sender, messages.Heartbeat)
        elif isinstance(message, messages.Closed):
            if self.version.is_rival_of(message.version):
                # The sender goes on from a lighter branch and has told everybody; it pulls, and tells them again.
                self._send(message.sender, messages.Heartbeat)
        elif isinstance(message, messages.Report | messages.Mean | messages.Offer | messages.Pull):
            self._send_record(message.sender)

    # -- life and death (rules 3, 9, 11) ------------------------------------------------------------------------

    def _bury(self, lives: frozenset[Life]) -> None:
        """Note deaths, and do what now falls to this device."""
        if not self.fleet.bury(lives):
            return
        self._ahead.ask_again()
        self._pull()
        if not self.fleet.is_inside:
            self._ask_to_join()
            return
        if self.fleet.roles.head_of.get(self.fleet.cluster) == self.id:
            self._tell_heads()
        self._progress()

    def _argue(self, message: AnyMessage) -> None:
        """Answer somebody held for dead: the heavier history is right, then the larger side (rule 9)."""
        if message.version > self.version:
            if isinstance(message, messages.Closed):
                self._adopt_from(message)
            else:
                self._send(message.sender, messages.Pull)
        elif message.version < self.version:
            if not isinstance(message, messages.Closed | messages.Ack | messages.Goodbye):
                self._send_record(message.sender)
        elif not self.record.is_over:
            self._argue_as_equals(message)

    def _argue_as_equals(self, message: AnyMessage) -> None:
        is_told_dead = (self.id, self.incarnation) in message.dead
        if is_told_dead and (not self.fleet.is_inside or self.fleet.is_smaller_side(message.dead)):
            self._step_aside(message)
        elif self.fleet.is_inside and (message.sender, message.incarnation) in self.fleet.dead:
            self._send(message.sender, messages.Heartbeat)

    def _step_aside(self, message: AnyMessage) -> None:
        """Accept to be dead: come back in a new life, with the beliefs of those who go on."""
        self.fleet.believe(message.dead, spared=self.fleet.roster.lives)
        self._next_life()
        self._ask_to_join()

    def _next_life(self) -> None:
        self.fleet.next_life()
        self.round = Round()
        self._effects.append(KeepIncarnation(self.incarnation))

    def _lose_cluster(self) -> None:
        """Lose the head under `drop`: keep the last model, or train on alone (rule 11)."""
        if self._rules.policy != "isolate":
            self._stop("dropped")
            return
        self.is_private = True
        alone = Roster({self.id: self.incarnation})
        self.fleet = Membership(self.id, self.incarnation, alone, self._rules.topology, drops_clusters=False)
        self._ahead = Ahead()
        self._extend(self.record.with_roster(alone))

    def _leave(self) -> None:
        for peer in sorted({*self.fleet.roles.heads, *self.fleet.members()} - {self.id}):
            self._send(peer, messages.Goodbye)
        self._stop("left")

    def _stop(self, reason: str) -> None:
        self.stopped = reason
        self._effects.append(Stop(reason))

    # -- coming in (rules 2 and 10) and heartbeats (rules 5 and 8) ----------------------------------------------

    def _let_in(self, message: messages.Join) -> None:
        self.fleet.note_joiners({message.sender: message.incarnation})
        self._progress()

    def _open_roster(self) -> None:
        """Start again where nobody is inside a roster, or make oneself known to whoever will."""
        roster = self._gathering.roster_to_open(self.fleet, self.version, self._rules.topology)
        if roster is not None:
            self._extend(self.record.with_roster(roster))
            return
        for device in sorted(self._rules.topology.cluster_of):
            if device != self.id:
                self._send(device, messages.Join)

    def _tick(self) -> None:
        """Say hello on the links at rest, and offer again what was never acknowledged."""
        self._ahead.ask_again()
        self._pull()
        if not self.fleet.is_inside and not self.record.is_over:
            if self.fleet.roles.closer is None:
                self._open_roster()
            else:
                self._ask_to_join()
            return
        # Those held for dead may be alive after all: without a word to them, a healed partition would stay apart.
        for peer in sorted({*self.fleet.neighbours(), *(device for device, _ in self.fleet.dead)} - {self.id}):
            self._send(peer, messages.Heartbeat)
        self._offer_again()
