"""What a device computes, in a thread of its own: the event loop must answer heartbeats meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar, cast

from tolfl.core.byzantine import parse_liars
from tolfl.core.contribution import Contribution, Part, Pending
from tolfl.core.device_set import DeviceSet
from tolfl.core.errors import DivergedError
from tolfl.core.spec import RunSpec
from tolfl.datasets.federated import Samples
from tolfl.learners import Account, Closing, Learner, Scorer, State, Turn
from tolfl.learners.learner import admits, asking_for, check_contribution, closed_account, contributions_of, is_finite
from tolfl.protocol.events import Apply
from tolfl.protocol.history import Version

T = TypeVar("T")


class Trainer:
    """Computes one device's part, one round at a time; what has not begun is dropped when a newer round comes."""

    def __init__(self, spec: RunSpec, device: int, rows: Samples, learner: Learner) -> None:
        self._spec, self._device, self._rows, self.learner = spec, device, rows, learner
        self._tampering = parse_liars(spec.liars, spec.devices).get(device)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="training")
        self._waiting: Future[Contribution] | None = None
        self.n_refused = 0  #: contributions of others that could not be added up
        self._admitted_in: Version | None = None
        self._admitted: dict[str, Part] = {}  #: one of each key, of those that were admitted in this version's round

    def first_state(self) -> State:
        """Return the state before the first round, from the seed that everybody knows."""
        return self.learner.start({})

    def start(self, version: Version, state: object) -> Future[Contribution]:
        """Compute what this device adds to a round; what has not begun is dropped when a newer round comes."""
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting = self.compute(lambda: self._contribute(version, cast("State", state)))
        return self._waiting

    def compute(self, work: Callable[[], T]) -> Future[T]:
        """Do work in the thread, after what it does already."""
        return self._thread.submit(work)

    def _contribute(self, version: Version, state: State) -> Contribution:
        turn = Turn(self._spec.seed, self._device, version.round, state, self._rows)
        with asking_for("contribute", self._device, version.round):
            (own,) = contributions_of(self.learner, [turn])
            own = check_contribution(self.learner, turn, own)
        return own if self._tampering is None else self._tampering.reported(own)

    def apply(self, effect: Apply) -> tuple[State, Account]:
        """Return the state after a round, and what its record says of it."""
        round_index, total, before = effect.version.round, effect.total.resolve(), cast("State", effect.state)
        with asking_for("apply", self._device, round_index):
            after = self.learner.apply(before, total, Closing(self._spec.seed, round_index, effect.present))
            if not all(map(is_finite, after.values())):
                raise DivergedError.of_model(round_index)
            return after, closed_account(self.learner, before, after, total, round_index)

    def admits(self, version: Version, state: object, own: Pending | None, other: Pending) -> bool:
        """Tell whether what another device sent can be added up in the round of a version, also with what was so far.

        A device without a row has nothing of its own to compare with: whoever comes first is then the measure.
        """
        if self._admitted_in != version:
            self._admitted_in, self._admitted = version, {}
        known = {**self._admitted, **(own.resolve().parts if isinstance(own, Contribution) else {})}
        told = other.resolve()
        is_like = admits(self.learner, cast("State", state), version.round, Contribution(DeviceSet(), 0, known), told)
        if is_like:
            self._admitted = {**told.parts, **self._admitted}
        else:
            self.n_refused += 1
        return is_like

    def results(self, state: object) -> dict[str, Scorer]:
        """Return what a state leaves to be used."""
        return self.learner.results(cast("State", state))

    def close(self) -> None:
        """Let the thread end; training under way is of no use to anybody any more."""
        self._thread.shutdown(wait=False, cancel_futures=True)
