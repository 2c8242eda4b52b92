"""Computes deferred updates and states: the learner is asked for many devices in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tolfl.core.byzantine import Tampering
from tolfl.core.contribution import Contribution, RunningSum
from tolfl.core.deferred_sum import DeferredSum
from tolfl.datasets import FederatedDataset
from tolfl.learners.learner import (
    Closing,
    Learner,
    State,
    Turn,
    asking_for,
    check_contribution,
    contributions_of,
    next_state,
)
from tolfl.learners.threads import in_threads
from tolfl.sim.deferred import DeferredFleet, DeferredState, DeferredUpdate, updates_of

#: Devices that are asked before their contributions are merged and dropped: the models of 10,000 never lie in memory
#: at once, and memory that is still warm is used again.
_TURNS_AT_ONCE = 100
#: Devices whose contributions a learner adds up by itself, and of which nothing is kept.
_TURNS_ADDED_UP = 1000


@dataclass(frozen=True)
class Work:
    """One step to compute, and what it takes."""

    step: DeferredState
    learner: Learner
    seed: int
    data: FederatedDataset

    @property
    def parent(self) -> State:
        """The state that the round started from."""
        if self.step.parent is None or self.step.parent.state is None:
            raise LookupError("a step can be computed once, after its parent")
        return self.step.parent.state

    @property
    def is_summed_plainly(self) -> bool:
        """Whether the total is the devices' contributions one after the other, without a defence between them."""
        return isinstance(self.step.total, DeferredFleet) or (
            self.step.total is not None and self.step.total.defence is None
        )

    @property
    def devices(self) -> Sequence[int]:
        """Whose contributions count, in merge order."""
        if isinstance(self.step.total, DeferredFleet):
            return self.step.total.devices
        assert self.step.total is not None
        return [update.device for update in updates_of(self.step.total)]

    def turn(self, device: int) -> Turn:
        """Return what it takes to compute a device's contribution."""
        assert self.step.version is not None
        return Turn(self.seed, device, self.step.version.round, self.parent, self.data.slice_of(device))

    def turns(self) -> list[tuple[DeferredUpdate, Turn]]:
        """Return the updates of a step with what it takes to compute them, in merge order."""
        assert isinstance(self.step.total, DeferredSum)
        return [(update, self.turn(update.device)) for update in updates_of(self.step.total)]


class BatchTrainer:
    """Computes steps: asks the learner for every contribution that counts, merges, applies."""

    def __init__(self, liars: Mapping[int, Tampering] | None = None) -> None:
        self._liars = liars or {}

    def compute(self, works: Sequence[Work]) -> None:
        """Compute steps whose parents are done, of several repetitions at a time where the learner allows it."""
        if all(work.learner.is_thread_safe for work in works):
            in_threads(self._compute, works)
        else:
            for work in works:
                self._compute(work)

    def _compute(self, work: Work) -> None:
        self._finish(work, self._sum(work) if work.is_summed_plainly else self._defended(work))

    def _sum(self, work: Work) -> Contribution:
        """Return the contributions of a step, added one after the other, and none of them kept."""
        learner, devices, running = work.learner, work.devices, RunningSum()
        at_once = len(devices) if learner.needs_all_turns else _TURNS_ADDED_UP
        assert work.step.version is not None
        for first in range(0, len(devices), at_once):
            turns = [work.turn(device) for device in devices[first : first + at_once]]
            with asking_for("contribute", None, work.step.version.round):
                if not self._liars and learner.add_up(turns, running):
                    continue
            asked = len(turns) if learner.needs_all_turns else _TURNS_AT_ONCE
            for piece in range(0, len(turns), asked):
                reported = self._reported(_contributed(learner, turns[piece : piece + asked]))
                with asking_for("adding up", None, work.step.version.round):
                    for contribution in reported:
                        running.add(contribution)
        return running.total()

    def _defended(self, work: Work) -> Contribution:
        """Return the contributions of a step, combined cluster by cluster as its defence says."""
        learner, pairs = work.learner, work.turns()
        at_once = len(pairs) if learner.needs_all_turns else _TURNS_AT_ONCE
        pieces = _Pieces(pairs, lambda turns: self._reported(_contributed(learner, turns)), at_once)
        assert work.step.total is not None
        assert work.step.version is not None
        with asking_for("adding up", None, work.step.version.round):
            total = work.step.total.resolve()
        pieces.close()
        return total

    @staticmethod
    def _finish(work: Work, total: Contribution) -> None:
        step, learner, before = work.step, work.learner, work.parent
        assert step.version is not None
        round_index = step.version.round
        closing = Closing(work.seed, round_index, step.present)
        step.finish(*next_state(learner, before, total, closing))

    def _reported(self, contributions: Sequence[Contribution]) -> list[Contribution]:
        """Return what devices report, each of which knows one contribution of its own."""
        if not self._liars:
            return list(contributions)
        owners = [next(iter(one.included)) for one in contributions]
        return [
            self._liars[device].reported(one) if device in self._liars else one
            for device, one in zip(owners, contributions, strict=True)
        ]


def _contributed(learner: Learner, turns: Sequence[Turn]) -> list[Contribution]:
    """Return what devices contribute; of a learner that does not say what that looks like, it is looked at."""
    with asking_for("contribute", None, turns[0].round):
        found = contributions_of(learner, turns)
    if learner.shapes(turns[0].state, turns[0].round) is None:
        for turn, one in zip(turns, found, strict=True):
            check_contribution(learner, turn, one)
    return found


class _Pieces:
    """Updates in the order in which they will be merged; asking for one computes it together with those after it."""

    def __init__(
        self,
        pairs: Sequence[tuple[DeferredUpdate, Turn]],
        contribute: Callable[[Sequence[Turn]], list[Contribution]],
        at_once: int,
    ) -> None:
        self._pairs, self._contribute, self._at_once = pairs, contribute, at_once
        self._place = {id(update): place for place, (update, _) in enumerate(pairs)}
        for update, _ in pairs:
            update.producer = self.produce

    def produce(self, update: DeferredUpdate) -> None:
        first = self._place[id(update)]
        piece = self._pairs[first : first + self._at_once]
        for (follower, _), value in zip(piece, self._contribute([turn for _, turn in piece]), strict=True):
            follower.value = value

    def close(self) -> None:
        for update, _ in self._pairs:
            update.producer = update.value = None
