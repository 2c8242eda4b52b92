"""What a device knows, and how it says it: the header of every message, records, debts and requests.

`Device` adds the rules that decide when. It is a class of its own only to keep both short enough to read.
"""

from __future__ import annotations

from copy import copy
from typing import Self

from tolfl.core.contribution import Pending
from tolfl.core.device_set import DeviceSet
from tolfl.protocol import messages
from tolfl.protocol.catching_up import Ahead, Gathering
from tolfl.protocol.effects import Effect, Send
from tolfl.protocol.history import ClosedRound, Version
from tolfl.protocol.membership import Membership
from tolfl.protocol.messages import AnyMessage, Payload
from tolfl.protocol.round import Round
from tolfl.protocol.rules import Rules


class Speaker:
    """The state of a device, and the messages it can send from it."""

    __slots__ = ("_ahead", "_effects", "_gathering", "_rules", "fleet", "is_private", "record", "round", "stopped")

    def __init__(self, device: int, incarnation: int, record: ClosedRound, rules: Rules) -> None:
        self.record, self._rules = record, rules
        self.fleet = Membership(device, incarnation, record.roster, rules.topology, rules.policy != "elect")
        self.round = Round()
        self.stopped: str | None = None  #: why nothing more comes from this device
        self.is_private = False  #: trains alone, for good
        self._ahead = Ahead()
        self._gathering = Gathering()
        self._effects: list[Effect] = []

    @property
    def id(self) -> int:
        """The id of the device, the same in every life."""
        return self.fleet.id

    @property
    def incarnation(self) -> int:
        """The number of its life."""
        return self.fleet.incarnation

    @property
    def version(self) -> Version:
        """The version of the newest model it holds."""
        return self.record.version

    @property
    def role(self) -> str:
        """What it is to the others: member, head, closer; outside, until it is let in; alone, for good."""
        if self.is_private:
            return "alone"
        if not self.fleet.is_inside:
            return "outside"
        roles = self.fleet.roles
        if roles.closer == self.id:
            return "closer"
        return "head" if self.id in roles.heads else "member"

    def clone(self) -> Self:
        """Return an independent copy; records and messages are immutable and shared."""
        other = copy(self)
        other.round, other.fleet = self.round.clone(), copy(self.fleet)
        other._ahead, other._gathering, other._effects = self._ahead.clone(), self._gathering.clone(), []
        return other

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

    def _pull(self) -> None:
        for sender in self._ahead.to_ask(self.fleet):
            self._send(sender, messages.Pull)

    # -- debts (rule 5) -------------------------------------------------------------------------------------------

    def _send_report(self, head: int, contribution: Pending) -> None:
        self._send(head, messages.Report, contribution=contribution, joiners=self.fleet.joiners)

    def _send_mean(self, following: int) -> None:
        total, missing = self.round.running_mean(self._rules.merge), self.round.missing(self.fleet)
        self._send(following, messages.Mean, total=total, missing=missing, joiners=self.fleet.joiners)

    def _send_again(self, message: messages.Want) -> None:
        round_ = self.round
        if message.what is Payload.REPORT and round_.own is not None and message.sender == round_.reported_to:
            self._send_report(message.sender, round_.own)
        elif message.what is Payload.MEAN and message.sender == round_.passed_to:
            self._send_mean(message.sender)

    def _offer_again(self) -> None:
        """Offer what was sent and never acknowledged; it moves again only if it is wanted (rule 5)."""
        round_ = self.round
        if round_.reported_to is not None and round_.own is not None and not round_.reported_acked:
            self._send(round_.reported_to, messages.Offer, what=Payload.REPORT, included=round_.own.included)
        if round_.passed_to is not None and not round_.passed_acked:
            self._send(round_.passed_to, messages.Offer, what=Payload.MEAN, included=DeviceSet(round_.passed_bits))

    # -- coming and going (rules 2 and 11) ------------------------------------------------------------------------

    def _ask_to_join(self) -> None:
        if self.record.is_over:
            return
        closer = self.fleet.roles.closer
        if closer is not None and closer != self.id:
            self._send(closer, messages.Join)

    def _decline(self, message: AnyMessage) -> None:
        """Tell whoever counts on a device that stopped, or goes on alone, not to wait for it."""
        if isinstance(message, messages.Closed) and (self.id, self.incarnation) in message.record.roster.lives:
            goodbye = messages.Goodbye(self.id, self.incarnation, message.version, frozenset())
            self._effects.append(Send(message.sender, goodbye))
