"""What the stages of a detector have in common: the fleet, the specification, and what they read from the state."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tolfl.core.contribution import Part
from tolfl.core.seeding import Purpose, random_words, stream_keys
from tolfl.datasets.scaling import Scaler
from tolfl.detect.cells import Cells, Rows, one_thread
from tolfl.detect.detector_spec import DetectorSpec
from tolfl.detect.reconstruction import Reconstruction
from tolfl.learners.learner import Fleet, Learner, Shape, State, Turn

Places = NDArray[np.int32]
ScoreRows = Callable[[NDArray[np.floating]], NDArray[np.float32]]  #: from rows to their scores

MOST_SAMPLED = 10_000  #: of a fleet, from which medians, cells, scatter and thresholds are worked out
FEWEST_SAMPLED = 500  #: of a device that has as many: never fewer are taken
ALARMS_COUNTED = 100  #: held-back rows expected above the threshold: of more, the rate is hardly better known

_HELD_BACK = 4  #: stream of `Purpose.PARTITION`


@lru_cache(maxsize=2**14)  # every round splits the rows of every device again
def split_rows(n_rows: int, share: float, seed: int, device: int) -> tuple[Places, Places]:
    """Return the places of a device's rows that train and of those held back, both ascending; a single row trains.

    Of as many neighbouring rows as the share is one of, one is held back, drawn by seed, device and place: what a row
    is used for does not change while its table grows.

    >>> [places.tolist() for places in split_rows(10, 0.4, seed=0, device=0)]
    [[1, 2, 3, 6, 7, 9], [0, 4, 5, 8]]
    """
    if int(n_rows * share) == 0:
        return np.arange(n_rows, dtype=np.int32), np.empty(0, np.int32)
    group = np.floor(np.arange(n_rows + math.ceil(1 / share) + 1) * share)
    starts = np.flatnonzero(np.diff(group, prepend=-1.0))
    draws = random_words(stream_keys(seed, Purpose.PARTITION, [device], _HELD_BACK), len(starts) - 1)[0]
    chosen = starts[:-1] + (draws % np.diff(starts).astype(np.uint64)).astype(np.int64)
    is_held_back = np.zeros(n_rows, np.bool_)
    is_held_back[chosen[chosen < n_rows]] = True
    return np.flatnonzero(~is_held_back).astype(np.int32), np.flatnonzero(is_held_back).astype(np.int32)


class DetectorStage(Learner):
    """One stage of a detector; a round without contributions leaves its state unchanged."""

    needs = ""  #: the array that the stages before have left, if it takes one
    prefix = ""  #: of the arrays of a pass that comes before others

    def __init__(self, fleet: Fleet, spec: DetectorSpec) -> None:
        self.fleet, self.spec = fleet, spec

    def start(self, state: State) -> State:
        """Return the state as it is."""
        return state

    def contribute(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        """Return what each device adds to its round; nothing where the stages before have not left what it takes."""
        found: list[dict[str, Part]] = [{} for _ in turns]
        by_state: dict[int, list[int]] = {}
        for place, turn in enumerate(turns):
            by_state.setdefault(id(turn.state), []).append(place)
        for places in by_state.values():
            together = [turns[place] for place in places]
            if self.is_ready(together[0].state, together[0].round):
                with one_thread.limit(limits=1):
                    parts = self.parts(together)
                for place, own in zip(places, parts, strict=True):
                    found[place] = own
        return found

    def parts(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        """Return what devices with one state add to a round."""
        return [self.part(turn) for turn in turns]

    def part(self, turn: Turn) -> dict[str, Part]:
        """Return what a device adds to a round, where `parts` does not say it for many at once."""
        raise NotImplementedError

    def is_ready(self, state: State, round_index: int) -> bool:  # noqa: ARG002
        """Return whether the stages before have left what this one takes."""
        return not self.needs or self.prefix + self.needs in state

    def shapes(self, state: State, round_index: int) -> dict[str, Shape]:
        """Return what a round may carry."""
        return self.sends(round_index, state) if self.is_ready(state, round_index) else {}

    @abstractmethod
    def sends(self, round_index: int, state: State | None = None) -> dict[str, Shape]:
        """Return what devices send in a round; without a state, what they usually send."""

    def nbytes(self, round_index: int) -> tuple[int, int]:
        """Return the bytes of a contribution and of a closed round."""
        n_bytes = size_of(self.sends(round_index).values())
        return n_bytes, n_bytes

    def training_rows(self, turn: Turn) -> Rows:
        """Return a device's rows that train."""
        return flat(turn.rows)[self.training_places(turn)]

    def training_places(self, turn: Turn) -> Places:
        """Return which rows of a device train."""
        return self._split(turn)[0]

    def calibration_rows(self, turn: Turn) -> Rows:
        """Return a device's calibration set; of very many rows, as many as thresholds need."""
        most = self.share_of(max(MOST_SAMPLED, math.ceil(ALARMS_COUNTED / self.spec.budget)))
        places = self._split(turn)[1]
        return flat(turn.rows)[places[:: max(1, -(-len(places) // most))]]

    def share_of(self, n_rows: int) -> int:
        """Return how many of so many rows of a fleet one device takes."""
        return max(FEWEST_SAMPLED, n_rows // self.fleet.n_devices)

    def sizes(self, turn: Turn) -> NDArray[np.int64]:
        """Return how many rows train and how many are held back: two places for each device, only its own set."""
        sizes = np.zeros(2 * self.fleet.n_devices, np.int64)
        sizes[2 * turn.device : 2 * turn.device + 2] = [len(places) for places in self._split(turn)]
        return sizes

    def _split(self, turn: Turn) -> tuple[Places, Places]:
        return split_rows(len(turn.rows), self.spec.held_back, turn.seed, turn.device)


class ModelStage(DetectorStage):
    """The stage after which there is a model: its thresholds come next."""

    leaves = ""  #: the array that changes with the model
    counts = ""  #: the one with the number of rows behind it

    @abstractmethod
    def model(self, state: State) -> Cells | Reconstruction | None:
        """Return the model that a state holds; None: there is none yet."""

    def scorer(self, state: State) -> ScoreRows | None:
        """Return what scores rows in the rounds of a fleet."""
        model = self.model(state)
        return None if model is None else model.scores

    def notes(self, state: State) -> tuple[str, ...]:  # noqa: ARG002
        """Return notes about the training."""
        return ()


class Recall:
    """A cache of values computed from rows and arrays that are the same in every round."""

    def __init__(self, max_bytes: int = 2**30) -> None:
        self._max_bytes, self._n_bytes = max_bytes, 0
        #: With the arrays whose addresses are in the key: as long as they are held, nothing else has these.
        self._kept: dict[Hashable, tuple[NDArray[Any], object]] = {}

    def __call__(
        self, what: str, turns: Sequence[Turn], arrays: Sequence[NDArray[Any]], make: Callable[[], NDArray[Any]]
    ) -> NDArray[Any]:
        """Return what `make` returns, or returned for the same rows and arrays."""
        key = (what, *map(_place_of, turns), *map(id, arrays))
        if key in self._kept:
            return self._kept[key][0]
        found = make()
        while self._kept and self._n_bytes + found.nbytes > self._max_bytes:
            self._n_bytes -= self._kept.pop(next(iter(self._kept)))[0].nbytes
        if found.nbytes <= self._max_bytes:
            self._kept[key] = found, ([turn.rows for turn in turns], list(arrays))
            self._n_bytes += found.nbytes
        return found

    def forget(self, what: str) -> None:
        """Drop entries that no later round needs."""
        for key in [key for key in self._kept if isinstance(key, tuple) and key[0] == what]:
            self._n_bytes -= self._kept.pop(key)[0].nbytes


def _place_of(turn: Turn) -> Hashable:
    rows = turn.rows
    return turn.seed, turn.device, rows.__array_interface__["data"][0], rows.shape, rows.strides


def flat(rows: Rows) -> Rows:
    """Return samples as rows of numbers."""
    return rows if rows.ndim == 2 else rows.reshape(len(rows), -1)


def scaler_of(state: State) -> Scaler:
    """Return the scaling that the fleet agreed on."""
    return Scaler(state["scaler/shift"], state["scaler/factor"], state["scaler/fill"])


def size_of(shapes: Iterable[Shape]) -> int:
    """Return how many bytes arrays of these shapes take."""
    return sum(shape.length * np.dtype(shape.dtype).itemsize for shape in shapes)
