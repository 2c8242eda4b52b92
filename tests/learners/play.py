"""Any learner, played round by round in one process: who is present is said by the test, and nothing else can fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from tolfl.core.contribution import Contribution
from tolfl.core.device_set import DeviceSet
from tolfl.learners.learner import Closing, Learner, State, Turn, check_contribution, contributions_of

Present = Callable[[int], Iterable[int]]


def play(
    learner: Learner,
    rows_by_device: Mapping[int, NDArray[np.floating]],
    present: Present | None = None,
    seed: int = 0,
) -> State:
    """Return the state after the last round; `present` says who contributes to a round (everybody, unless given)."""
    return list(states(learner, rows_by_device, present, seed))[-1]


def states(
    learner: Learner,
    rows_by_device: Mapping[int, NDArray[np.floating]],
    present: Present | None = None,
    seed: int = 0,
) -> Iterable[State]:
    """Yield the state that the first round starts from, and that after each round."""
    state = learner.start({})
    yield state
    for round_index in range(learner.rounds):
        devices = sorted(rows_by_device if present is None else present(round_index))
        turns = [Turn(seed, device, round_index, state, rows_by_device[device]) for device in devices]
        contributions = contributions_of(learner, turns)
        for turn, contribution in zip(turns, contributions, strict=True):
            check_contribution(learner, turn, contribution)
        total = Contribution.total(contributions)
        state = learner.apply(state, total, Closing(seed, round_index, DeviceSet.of(devices)))
        yield state
