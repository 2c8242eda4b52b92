"""Failure injection: a wrapper that makes a device die at a chosen event of its round, and wait for returns.

The phases of a failure plan are events of the state machine, not moments of a clock, so the time it takes to detect a
death cannot change the result. In the simulator the device stops; in a real network it sends SIGKILL to itself.

Nor can the time it takes to come back: whoever closes the round in which a device returns holds it back until that
device has asked to join. A process takes seconds to start and a round may take milliseconds, so without this a real
device would be in from whichever round it happens to reach. One that never comes holds up the others for a while only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from tolfl.core.failures import Failure, Phase
from tolfl.protocol.device import Device
from tolfl.protocol.events import Announce, Effect, Event, Received, Send, Stop, Ticked, Train, Trained
from tolfl.protocol.history import ClosedRound
from tolfl.protocol.messages import Ack, Closed, Mean, Payload

#: How long a round is held back for devices that a plan brings back.
RETURN_WITHIN_S = 30.0


class Die(msgspec.Struct, frozen=True):
    """Let all effects before this one take place, then die without another word."""

    failure: Failure
    record: ClosedRound  #: what it leaves on its disk: a round that it closed and never announced did not happen


class ReportAbsence(msgspec.Struct, frozen=True):
    """Write down that a device did not come back as planned, and that the round goes on without it."""

    device: int
    round_index: int
    what: str = f"did not come back in time ({RETURN_WITHIN_S:g} s)"


#: What a device under a plan wants done: what any device does, and what the plan does to it.
PlannedEffect = Effect | Die | ReportAbsence


class Injector:
    """A device that dies when its plan says so, and waits for those whom the plan brings back.

    `returns` are the devices that come back, by the number of updates done; `heartbeat_s` is the time between two
    `Ticked`, by which the wait is measured.
    """

    def __init__(
        self,
        device: Device,
        failures: Iterable[Failure],
        returns: Mapping[int, frozenset[int]] | None = None,
        heartbeat_s: float = RETURN_WITHIN_S,
    ) -> None:
        self.device = device
        self._failures = sorted(failures, key=lambda failure: failure.round_index)
        self._heartbeat_s, self._waited_s = heartbeat_s, 0.0
        device.awaited = returns or {}

    def handle(self, event: Event) -> list[PlannedEffect]:
        """Handle an event; after a `Die` nothing more may be asked of this incarnation."""
        if not self.device.is_holding_back:
            self._waited_s = 0.0
        elif isinstance(event, Ticked):
            self._waited_s += self._heartbeat_s
            if self._waited_s >= RETURN_WITHIN_S:
                return [*self._wait_no_longer(), *self._die_or_live(event)]
        return [*self._die_or_live(event)]

    def _wait_no_longer(self) -> list[ReportAbsence]:
        device, round_index = self.device, self.device.version.round
        missed = sorted(device.missed)
        device.awaited = {at: devices for at, devices in device.awaited.items() if at != round_index}
        return [ReportAbsence(one, round_index) for one in missed]

    def _die_or_live(self, event: Event) -> list[PlannedEffect]:
        if not self._failures:
            return [*self.device.handle(event)]
        before = self.device.record
        effects: list[PlannedEffect] = list(self.device.handle(event))
        failure = self._failures[0]
        place = self._place_of_death(failure, event, before.version.round, effects)
        if place is None:
            return effects
        announced = [effect.record for effect in effects[:place] if isinstance(effect, Announce)]
        is_unsaid = any(isinstance(effect, Announce) for effect in effects[place:])
        kept = self.device.record if not is_unsaid else announced[-1] if announced else before
        return [*effects[:place], Die(failure, kept)]

    def _place_of_death(
        self, failure: Failure, event: Event, round_before: int, effects: list[PlannedEffect]
    ) -> int | None:
        """Return after how many effects the device dies; None: it does not."""
        late = self._place_of_missed_chance(failure, effects)
        match failure.phase:
            case Phase.TRAIN:
                return late
            case Phase.REPORT if isinstance(event, Trained) and event.version.round == failure.round_index:
                return 0
            case Phase.CHAIN if round_before == failure.round_index:
                place = self._before_passing_on(failure, event, effects)
            case Phase.DISTRIBUTE if round_before == failure.round_index:
                place = self._while_distributing(failure, event, effects)
            case _:
                place = None
        return late if place is None else place

    @staticmethod
    def _place_of_missed_chance(failure: Failure, effects: list[PlannedEffect]) -> int | None:
        """Return the start of the round (`/train`), or of the next one if the chosen event never came."""
        last_round = failure.round_index + (failure.phase is not Phase.TRAIN)
        for place, effect in enumerate(effects):
            if isinstance(effect, Train) and effect.version.round >= last_round:
                return place
            if isinstance(effect, Stop) and effect.reason == "over":
                return place
        return None

    @staticmethod
    def _before_passing_on(failure: Failure, event: Event, effects: list[PlannedEffect]) -> int | None:
        if isinstance(event, Received) and isinstance(event.message, Ack) and event.message.what is Payload.REPORT:
            return 0 if event.message.version.round == failure.round_index else None
        for place, effect in enumerate(effects):
            is_mean = isinstance(effect, Send) and isinstance(effect.message, Mean)
            if is_mean or (isinstance(effect, Announce) and effect.total is not None):
                return place
        return None

    @staticmethod
    def _while_distributing(failure: Failure, event: Event, effects: list[PlannedEffect]) -> int | None:
        closes = next(
            (place for place, e in enumerate(effects) if isinstance(e, Announce) and e.total is not None), None
        )
        if closes is not None:
            places = (place for place, e in enumerate(effects) if isinstance(e, Send) and isinstance(e.message, Closed))
            return next((place + 1 for place in places if place > closes), closes + 1)
        if isinstance(event, Received) and isinstance(event.message, Closed):
            return 0 if event.message.version.round > failure.round_index else None
        return None
