"""What a device computes, in a thread of its own: the event loop must answer heartbeats meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import cast

import numpy as np
import torch

from tolfl.core.byzantine import parse_liars
from tolfl.core.contribution import Contribution, Pending
from tolfl.core.defence import combine
from tolfl.core.device_set import DeviceSet
from tolfl.core.errors import DivergedError
from tolfl.core.spec import RunSpec
from tolfl.datasets.federated import Samples
from tolfl.learners import Closing, Learner, Scorer, State, Turn
from tolfl.learners.learner import check_contribution, contributions_of
from tolfl.protocol.history import Version


class Trainer:
    """Computes one device's part, one round at a time; what has not begun is dropped when a newer round comes."""

    def __init__(self, spec: RunSpec, device: int, rows: Samples, learner: Learner) -> None:
        self._spec, self._device, self._rows, self.learner = spec, device, rows, learner
        self._tampering = parse_liars(spec.liars, spec.devices).get(device)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="training")
        self._thread.submit(torch.set_num_threads, 1)
        self._waiting: Future[Contribution] | None = None

    def first_state(self) -> State:
        """Return the state before the first round, from the seed that everybody knows."""
        return self.learner.start({})

    def start(self, version: Version, state: object, done: Callable[[Future[Contribution]], None]) -> None:
        """Compute what this device adds to the round of a version; `done` is called from the thread."""
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting = self._thread.submit(self._contribute, version, cast("State", state))
        self._waiting.add_done_callback(done)

    def _contribute(self, version: Version, state: State) -> Contribution:
        turn = Turn(self._spec.seed, self._device, version.round, state, self._rows)
        (own,) = contributions_of(self.learner, [turn])
        own = check_contribution(self.learner, turn, own)
        return own if self._tampering is None else self._tampering.reported(own)

    def merge(self, upstream: Pending | None, cluster: Sequence[Pending]) -> Pending:
        """Return the chain so far with a cluster appended, under the defence of the run."""
        if not self._spec.defence.is_on:
            return Contribution.appended(upstream, cluster)
        chain = None if upstream is None else upstream.resolve()
        return combine(self._spec.defence, chain, [device.resolve() for device in cluster])

    def apply(self, state: object, total: Pending, version: Version, present: DeviceSet) -> object:
        """Return the state after a round."""
        closing = Closing(self._spec.seed, version.round, present)
        after = self.learner.apply(cast("State", state), total.resolve(), closing)
        if not all(np.isfinite(array).all() for array in after.values()):
            raise DivergedError.of_model(version.round)
        return after

    def results(self, state: object) -> dict[str, Scorer]:
        """Return what a state leaves to be used."""
        return self.learner.results(cast("State", state))

    def close(self) -> None:
        """Let the thread end; training under way is of no use to anybody any more."""
        self._thread.shutdown(wait=False, cancel_futures=True)
