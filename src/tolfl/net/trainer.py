"""Runs the learner of a device in two threads, so that the event loop answers heartbeats meanwhile.

One thread computes contributions, the other adds up and applies: a learner that never ends is late, and the round can
be closed without it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar, cast

from tolfl.core.byzantine import parse_liars
from tolfl.core.contribution import Contribution, Part, Pending, Vector, can_travel
from tolfl.core.device_set import DeviceSet
from tolfl.core.spec import RunSpec
from tolfl.datasets.federated import Samples
from tolfl.learners import Account, Closing, Learner, Scorer, State, Turn
from tolfl.learners.learner import (
    LearnerError,
    admits,
    asking_for,
    check_contribution,
    contributions_of,
    first_state,
    next_state,
)
from tolfl.protocol.events import Apply
from tolfl.protocol.history import Version

T = TypeVar("T")

#: A contribution that takes longer is reported in the device's log.
_LONG_S = 60.0


class Worker:
    """One thread that does one thing after the other. The process may end while it is busy."""

    def __init__(self, name: str) -> None:
        self._waiting: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self.busy_since: float | None = None
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Do work after what is waiting already."""
        future: Future[T] = Future()
        self._waiting.put((future, work))
        return future

    def close(self) -> None:
        """Let the thread end when it has done what is waiting."""
        self._waiting.put(None)

    def _work(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            future, work = waiting
            if not future.set_running_or_notify_cancel():
                continue
            self.busy_since = time.monotonic()
            try:
                result = work()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
            self.busy_since = None


class Trainer:
    """Computes one device's part, one round at a time; what has not begun is dropped when a newer round comes."""

    def __init__(self, spec: RunSpec, device: int, rows: Samples, learner: Learner) -> None:
        self._spec, self._device, self._rows, self.learner = spec, device, rows, learner
        self._tampering = parse_liars(spec.liars, spec.devices).get(device)
        self._training, self._adding = Worker("training"), Worker("adding up")
        self._waiting: Future[Contribution] | None = None
        self._reported_since: float | None = None  #: when the contribution began that was reported to take long
        self.n_refused = 0  #: contributions of others that could not be added up
        self._admitted_in: Version | None = None
        self._admitted: dict[str, Part] = {}  #: one of each key, of those that were admitted in this version's round

    def first_state(self) -> State:
        """Return the state before the first round, from the seed that everybody knows."""
        return first_state(self.learner)

    def start(self, version: Version, state: object) -> Future[Contribution]:
        """Compute what this device adds to a round; what has not begun is dropped when a newer round comes."""
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting = self._training.submit(lambda: self._contribute(version, cast("State", state)))
        return self._waiting

    def overdue(self) -> str:
        """Return a sentence once a contribution has taken long, and is still being computed; else nothing."""
        since = self._training.busy_since
        if since is None or since == self._reported_since or time.monotonic() - since < _LONG_S:
            return ""
        self._reported_since = since
        deadline_s = self._spec.deadline_s
        others = "a head waits for it, as the run has no deadline" if deadline_s is None else "rounds close without it"
        return f"device {self._device}: the learner's contribute has taken {_LONG_S:g} s and has not ended; {others}"

    def compute(self, work: Callable[[], T]) -> Future[T]:
        """Do work that others wait for: adding up, applying."""
        return self._adding.submit(work)

    def _contribute(self, version: Version, state: State) -> Contribution:
        turn = Turn(self._spec.seed, self._device, version.round, state, self._rows)
        with asking_for("contribute", self._device, version.round):
            (own,) = contributions_of(self.learner, [turn])
            own = check_contribution(self.learner, turn, own)
        return own if self._tampering is None else self._tampering.reported(own)

    def total(self, pending: Pending, round_index: int) -> Contribution:
        """Return the sum of contributions."""
        with asking_for("adding up", self._device, round_index):
            total = pending.resolve()
        _check_sendable({key: part.vector for key, part in total.parts.items()}, self._device, round_index)
        return total

    def apply(self, effect: Apply) -> tuple[State, Account]:
        """Return the state after a round, and what its record says of it."""
        round_index, before = effect.version.round, cast("State", effect.state)
        closing = Closing(self._spec.seed, round_index, effect.present)
        total = self.total(effect.total, round_index)
        after, account = next_state(self.learner, before, total, closing, self._device)
        _check_sendable(after, self._device, round_index)
        return after, account

    def admits(self, version: Version, state: object, own: Pending | None, other: Pending) -> bool:
        """Return whether what another device sent can be added up in the round of a version, also with what was so far.

        A device without a row has nothing of its own to compare with: whoever comes first is then the measure.
        """
        if self._admitted_in != version:
            self._admitted_in, self._admitted = version, {}
        known = {**self._admitted, **(own.resolve().parts if isinstance(own, Contribution) else {})}
        contribution = other.resolve()
        all_known = Contribution(DeviceSet(), 0, known)
        try:
            is_like = admits(self.learner, cast("State", state), version.round, all_known, contribution)
        except Exception:  # of a forged state the learner may not be able to say it
            is_like = False
        if is_like:
            self._admitted = {**contribution.parts, **self._admitted}
        else:
            self.n_refused += 1
        return is_like

    def results(self, state: object) -> dict[str, Scorer]:
        """Return what a state leaves to be used."""
        with asking_for("results", self._device, self.learner.rounds):
            return self.learner.results(cast("State", state))

    def close(self) -> None:
        """Let the threads end; training under way is of no use to anybody any more."""
        if self._waiting is not None:
            self._waiting.cancel()
        self._training.close()
        self._adding.close()


def _check_sendable(arrays: Mapping[str, Vector], device: int, round_index: int) -> None:
    """Say which numbers would be refused by whoever gets them: those beyond what can be weighted and summed."""
    for key, array in arrays.items():
        if not can_travel(array):
            raise LearnerError(device, round_index, f"{key!r} has numbers that are too large to be sent")
