"""Failures at a chosen event: the wrapper that makes a device die in the middle of its round, the same in both drivers.

The phases of a failure plan are events of the state machine, not moments of a clock, so the time it takes to detect a
death cannot change the result. In the simulator the device stops; in a real network it sends SIGKILL to itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import msgspec

from tolfl.core.failures import Failure, Phase
from tolfl.protocol.device import Device
from tolfl.protocol.events import Announce, Effect, Event, Received, Send, Stop, Train, Trained
from tolfl.protocol.history import ClosedRound
from tolfl.protocol.messages import Ack, Closed, Mean, Payload


class Die(msgspec.Struct, frozen=True):
    """Let all effects before this one take place, then die without another word."""

    failure: Failure
    record: ClosedRound  #: what it leaves on its disk: a round that it closed and never announced did not happen


class Injector:
    """A device that dies when its plan says so."""

    def __init__(self, device: Device, failures: Iterable[Failure]) -> None:
        self.device = device
        self._failures = sorted(failures, key=lambda failure: failure.round_index)

    def handle(self, event: Event) -> list[Effect | Die]:
        """Handle an event; after a `Die` nothing more may be asked of this life."""
        if not self._failures:
            return cast("list[Effect | Die]", self.device.handle(event))
        before = self.device.record
        effects: list[Effect | Die] = list(self.device.handle(event))
        failure = self._failures[0]
        place = self._place_of_death(failure, event, before.version.round, effects)
        if place is None:
            return effects
        announced = [effect.record for effect in effects[:place] if isinstance(effect, Announce)]
        is_unsaid = any(isinstance(effect, Announce) for effect in effects[place:])
        kept = self.device.record if not is_unsaid else announced[-1] if announced else before
        return [*effects[:place], Die(failure, kept)]

    def _place_of_death(
        self, failure: Failure, event: Event, round_before: int, effects: list[Effect | Die]
    ) -> int | None:
        """Return after how many effects the device dies; None: it lives on."""
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
    def _place_of_missed_chance(failure: Failure, effects: list[Effect | Die]) -> int | None:
        """Return the start of the round (`/train`), or of the next one if the chosen event never came."""
        last_round = failure.round_index + (failure.phase is not Phase.TRAIN)
        for place, effect in enumerate(effects):
            if isinstance(effect, Train) and effect.version.round >= last_round:
                return place
            if isinstance(effect, Stop) and effect.reason == "over":
                return place
        return None

    @staticmethod
    def _before_passing_on(failure: Failure, event: Event, effects: list[Effect | Die]) -> int | None:
        if isinstance(event, Received) and isinstance(event.message, Ack) and event.message.what is Payload.REPORT:
            return 0 if event.message.version.round == failure.round_index else None
        for place, effect in enumerate(effects):
            is_mean = isinstance(effect, Send) and isinstance(effect.message, Mean)
            if is_mean or (isinstance(effect, Announce) and effect.total is not None):
                return place
        return None

    @staticmethod
    def _while_distributing(failure: Failure, event: Event, effects: list[Effect | Die]) -> int | None:
        closes = next(
            (place for place, e in enumerate(effects) if isinstance(e, Announce) and e.total is not None), None
        )
        if closes is not None:
            told = (place for place, e in enumerate(effects) if isinstance(e, Send) and isinstance(e.message, Closed))
            return next((place + 1 for place in told if place > closes), closes + 1)
        if isinstance(event, Received) and isinstance(event.message, Closed):
            return 0 if event.message.version.round > failure.round_index else None
        return None
