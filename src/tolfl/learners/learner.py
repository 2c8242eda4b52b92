"""The contract of a learner: contributions of a round are added up, applied once, and the result is sent to all."""

from __future__ import annotations

import hashlib
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from tolfl.core.contribution import (
    LARGEST_NUMBER,
    Contribution,
    How,
    MismatchError,
    Part,
    RunningSum,
    Vector,
    can_travel,
)
from tolfl.core.device_set import DeviceSet
from tolfl.core.errors import DivergedError, TolFLError, missing_extra
from tolfl.core.spec import RunSpec

#: All that the next round depends on: arrays of one dimension by name. Never changed in place.
State = dict[str, NDArray[Any]]

#: Kinds of numbers that travel: float32, float64, whole numbers, bytes.
DTYPES = ("f4", "f8", "i8", "u1")


@dataclass(frozen=True)
class Fleet:
    """What every device knows before the first round; a learner is made from it."""

    spec: RunSpec
    sample_shape: tuple[int, ...]  #: of one row
    columns: tuple[str, ...] = ()  #: names of a row's numbers, where they have any
    names: tuple[str, ...] = ()  #: of the devices, where they have any but their numbers
    usual_rows: int = 0  #: the median number of rows of a device; 0: nobody knows, each has a table of its own
    form: Mapping[str, Any] | None = None  #: how its tables are written, in plain values; None: nobody knows
    folder: Path | None = None  #: where this device may keep what only it knows; None: nowhere, as in a simulation

    @property
    def n_devices(self) -> int:
        """How many devices there are."""
        return self.spec.devices

    @property
    def n_features(self) -> int:
        """How many numbers one row has."""
        return int(np.prod(self.sample_shape))

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.spec.seed


@dataclass(frozen=True, slots=True)
class Turn:
    """One device in one round: all that its contribution may depend on."""

    seed: int
    device: int
    round: int
    state: State
    rows: NDArray[np.floating]

    def mean(self, vector: Vector, loss: float | None = None, weight: int | None = None) -> Part:
        """Return a mean over the device's rows, to be averaged over the fleet; it weighs as many rows, or `weight`."""
        return Part.mean_of(self.device, len(self.rows), vector, loss, weight)

    def total(self, vector: Vector, how: How = "sum") -> Part:
        """Return an array to be added up over the fleet, or the lowest (`min`) or highest (`max`) taken by place."""
        return Part.total_of(self.device, vector, how)


@dataclass(frozen=True, slots=True)
class Closing:
    """The round that is being closed."""

    seed: int
    round: int
    present: DeviceSet  #: the devices that go on from here


@dataclass(frozen=True, slots=True)
class Shape:
    """What a part of a round must look like."""

    how: How
    dtype: str  #: one of `DTYPES`
    length: int

    @classmethod
    def of(cls, part: Part) -> Shape:
        """Return the shape of a part."""
        return cls(part.how, part.vector.dtype.str[1:], part.vector.size)

    def __str__(self) -> str:
        return f"a {self.how} of {self.length} numbers ({self.dtype})"


@dataclass(frozen=True, slots=True)
class Account:
    """What the record of a closed round says of it."""

    loss: float | None = None  #: mean loss of the training; None: nobody trained
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)  #: who trained which model, if there are several
    left_out: dict[int, str] = field(default_factory=dict)  #: whose contribution is in no model, and why
    stage: str = ""
    digest: str = ""  #: of the state after the round
    metrics: dict[str, float] = field(default_factory=dict)  #: whatever else the learner measured, by name
    present: tuple[int, ...] = ()  #: the devices that go on, where the next round depends on them


class Scorer(Protocol):
    """Something that a fleet leaves to be used."""

    @property
    def users(self) -> DeviceSet | None:
        """The devices it is for; None: all of them."""

    def anomaly_score(self, rows: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return one score per row: the higher, the more anomalous."""

    def files(self) -> dict[str, bytes]:
        """Return the files that a device or a run directory keeps of it, by name."""


@dataclass(frozen=True)
class ScoringFunction:
    """A result made of a function of rows and the arrays that it goes by: the shortest way to a `Scorer`."""

    score: Callable[[NDArray[np.floating]], NDArray[np.floating]]
    arrays: State
    users: DeviceSet | None = None

    def anomaly_score(self, rows: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return one score per row: the higher, the more anomalous."""
        return self.score(rows)

    def files(self) -> dict[str, bytes]:
        """Return the arrays as the content of a safetensors file."""
        return {"model.safetensors": encode_state(self.arrays)}


class Learner(ABC):
    """Rounds of contributions that add up. It holds no state: the same calls give the same results.

    Three methods make one: what everybody starts from, what a device adds to a round, what a round leads to.
    """

    rounds: int  #: known before the first one
    min_devices = 1  #: with fewer live ones nobody trains
    needs_all_turns = False  #: whether the turns of a round must come in one call: for learners of the simulator only
    is_thread_safe = False  #: whether a simulation may compute rounds of several runs at a time

    @abstractmethod
    def start(self, state: State) -> State:
        """Return what the first round starts from, given what earlier learners left; the same on every device."""

    @abstractmethod
    def contribute(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        """Return what each device adds to its round, from its rows and the state alone.

        A simulation passes many turns at once, of several seeds perhaps; a real device passes one. What a turn gives
        must not depend on the others.
        """

    def add_up(self, turns: Sequence[Turn], total: RunningSum) -> bool:  # noqa: ARG002
        """Add what devices contribute to a running sum, in their order, where there is a faster way; return whether.

        The bits are those of the contributions, added one after the other. For simulations of very many devices.
        """
        return False

    @abstractmethod
    def apply(self, state: State, total: Contribution, closing: Closing) -> State:
        """Return the state after a round. Any key may be missing from `total`; an unchanged array is the same object.

        Computed once, by the device that closes the round, and sent to the others.
        """

    def stage(self, round_index: int) -> tuple[str, int, int]:
        """Return the stage of a round (nothing, for a learner that has none), the round in it, and how many it has."""
        return "", round_index, self.rounds

    def all_stages(self) -> tuple[tuple[str, int], ...]:
        """Return the stages in order, each with its number of rounds; none, for a learner that has no stages."""
        return ()

    def shapes(self, state: State, round_index: int) -> dict[str, Shape] | None:  # noqa: ARG002
        """Return the parts that a round may carry; None: whatever a device's own contribution looks like."""
        return None

    def results(self, state: State) -> dict[str, Scorer]:  # noqa: ARG002
        """Return what is there to be used, by name; nothing, until there is something."""
        return {}

    def nbytes(self, round_index: int) -> tuple[int, int]:  # noqa: ARG002
        """Return the bytes of a contribution and of a closed round: for the simulated clock, ledgers and plans."""
        n_bytes = sum(array.nbytes for array in self.start({}).values())
        return n_bytes, n_bytes

    @property
    def model_bytes(self) -> int:
        """How large the largest thing is that a device sends in a round: a model, as a rule."""
        return max(self.nbytes(round_index)[0] for round_index in range(self.rounds))

    @property
    def max_message_bytes(self) -> int:
        """How large a message of any round may be: a larger one is refused before it is read."""
        return 2**26

    def account(self, before: State, after: State, total: Contribution, round_index: int) -> Account:  # noqa: ARG002
        """Return what the record says of a round, given what went into it and the states before and after it."""
        return Account(total.loss)


class Stages(Learner):
    """Learners one after the other, each from the state that those before it left; the round alone determines which."""

    def __init__(self, stages: Mapping[str, Learner]) -> None:
        self.stages = dict(stages)
        self._turns = [
            (name, learner, inner) for name, learner in self.stages.items() for inner in range(learner.rounds)
        ]
        self.rounds = len(self._turns)

    def stage(self, round_index: int) -> tuple[str, int, int]:
        """Return the stage of a round, the round in it, and how many it has."""
        name, learner, inner = self._turns[min(round_index, self.rounds - 1)]
        return name, inner, learner.rounds

    def all_stages(self) -> tuple[tuple[str, int], ...]:
        """Return the stages in order, each with its number of rounds."""
        return tuple((name, learner.rounds) for name, learner in self.stages.items())

    def start(self, state: State) -> State:
        """Return what the first stage starts from."""
        return self._started(state, 0)

    def _started(self, state: State, round_index: int) -> State:
        """Start the stage whose first round comes next, and those without a round before it."""
        ahead = self._turns[round_index][0] if round_index < self.rounds else None
        begun = self._turns[round_index - 1][0] if round_index else None
        names = list(self.stages)
        first = 0 if begun is None else names.index(begun) + 1
        last = len(names) if ahead is None else names.index(ahead) + 1
        for name in names[first:last]:
            state = self.stages[name].start(state)
        return state

    def contribute(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        """Return what each device adds to the stage that its round is in."""
        by_stage: dict[str, list[int]] = {}
        for place, turn in enumerate(turns):
            by_stage.setdefault(self._turns[turn.round][0], []).append(place)
        found: dict[int, dict[str, Part]] = {}
        for name, places in by_stage.items():
            inner = [replace(turns[place], round=self._turns[turns[place].round][2]) for place in places]
            found.update(zip(places, self.stages[name].contribute(inner), strict=True))
        return [found[place] for place in range(len(turns))]

    def apply(self, state: State, total: Contribution, closing: Closing) -> State:
        """Return the state after a round; after the last one of a stage, what the next stage starts from."""
        _, learner, inner = self._turns[closing.round]
        state = learner.apply(state, total, replace(closing, round=inner))
        return self._started(state, closing.round + 1) if inner + 1 == learner.rounds else state

    def add_up(self, turns: Sequence[Turn], total: RunningSum) -> bool:
        """Add what devices contribute to the stage of a round, where that stage has a faster way."""
        _, learner, inner = self._turns[turns[0].round]
        return learner.add_up([replace(turn, round=inner) for turn in turns], total)

    def shapes(self, state: State, round_index: int) -> dict[str, Shape] | None:
        """Return the parts that a round may carry."""
        _, learner, inner = self._turns[round_index]
        return learner.shapes(state, inner)

    def results(self, state: State) -> dict[str, Scorer]:
        """Return what the stages leave: of several results with one name, the last stage's."""
        found: dict[str, Scorer] = {}
        for learner in self.stages.values():
            found.update(learner.results(state))
        return found

    def nbytes(self, round_index: int) -> tuple[int, int]:
        """Return the bytes of a contribution and of a closed round."""
        _, learner, inner = self._turns[round_index]
        return learner.nbytes(inner)

    def account(self, before: State, after: State, total: Contribution, round_index: int) -> Account:
        """Return what the stage of a round says of it."""
        _, learner, inner = self._turns[round_index]
        return learner.account(before, after, total, inner)


class LearnerError(TolFLError, RuntimeError):
    """A learner returned what cannot be added up, or failed."""

    def __init__(self, device: int | None, round_index: int, problem: str) -> None:
        who = "" if device is None else f"device {device}, "
        super().__init__(f"{who}round {round_index}: {problem}")
        self.device, self.round_index, self.problem = device, round_index, problem


@contextmanager
def asking_for(what: str, device: int | None, round_index: int) -> Iterator[None]:
    """Turn whatever a learner raises into one sentence: it may be anybody's code."""
    try:
        yield
    except TolFLError:
        raise
    except MismatchError as error:
        raise LearnerError(device, round_index, str(error)) from error
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and missing_extra(error):
            raise  # not the learner's fault
        line = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(line.filename).name}, line {line.lineno}: {type(error).__name__}: {error}"
        raise LearnerError(device, round_index, f"{what} failed ({where})") from error


def first_state(learner: Learner) -> State:
    """Return the state before the first round, or say what is wrong with it."""
    with asking_for("start", None, 0):
        state = learner.start({})
    if problem := state_problem(state):
        raise LearnerError(None, 0, f"start gives {problem}")
    return state


def next_state(
    learner: Learner, before: State, total: Contribution, closing: Closing, device: int | None = None
) -> tuple[State, Account]:
    """Return the state after a round and what its record says, or say what is wrong; `device`: who computes it."""
    with asking_for("apply", device, closing.round):
        after = learner.apply(before, total, closing)
    if problem := state_problem(after):
        raise LearnerError(device, closing.round, f"apply gives {problem}")
    if not all(map(is_finite, after.values())):
        raise DivergedError.of_model(closing.round)
    with asking_for("account", device, closing.round):
        return after, closed_account(learner, before, after, total, closing.round)


def state_problem(state: object) -> str:
    """Return what is wrong with the kind of a state; nothing, if it is a dict of flat arrays."""
    if not isinstance(state, dict):
        return f"{type(state).__name__}; give a dict of arrays by name"
    for key, array in state.items():
        if not isinstance(key, str):
            return f"the key {key!r}; give names"
        if what := _array_problem(array):
            return f"{key!r} as {what}; keep flat arrays of {', '.join(DTYPES)}"
    return ""


def _array_problem(array: object) -> str:
    """Return what an array is, if it is not one that travels."""
    if not isinstance(array, np.ndarray):
        return type(array).__name__
    if array.ndim != 1 or array.dtype.str[1:] not in DTYPES:
        return f"{array.dtype} of shape {array.shape}"
    return "" if array.dtype.isnative else f"{array.dtype}, the bytes of another kind of processor"


def contributions_of(learner: Learner, turns: Sequence[Turn]) -> list[Contribution]:
    """Return what each device reports; one without a row has nothing to add, and is not asked.

    The samples of a contribution are the device's rows, the same in every round: its weight in the history.
    """
    with_rows = [turn for turn in turns if len(turn.rows)]
    found = learner.contribute(with_rows) if with_rows else []
    if len(found) != len(with_rows):
        problem = f"contribute gave {len(found)} contributions for {len(with_rows)} turns; give one for each"
        raise LearnerError(None, turns[0].round, problem)
    for turn, one in zip(with_rows, found, strict=True):
        if what := _not_parts(one):
            problem = f"contribute gave {what}; give parts by name, made with turn.mean or turn.total"
            raise LearnerError(turn.device, turn.round, problem)
    parts = iter(found)
    return [
        Contribution(DeviceSet.of([turn.device]), len(turn.rows), next(parts) if len(turn.rows) else {})
        for turn in turns
    ]


def _not_parts(contribution: object) -> str:
    """Return what a contribution is, if it is no dict of parts."""
    if not isinstance(contribution, dict):
        return type(contribution).__name__
    others = sorted({type(part).__name__ for part in contribution.values() if not isinstance(part, Part)})
    return f"a dict of {', '.join(others)}" if others else ""


def check_contribution(learner: Learner, turn: Turn, contribution: Contribution) -> Contribution:
    """Return a device's own contribution, or say what is wrong with it before anybody else has to."""
    shapes = learner.shapes(turn.state, turn.round)
    for key, part in contribution.parts.items():
        problem = _problem_of(key, part, shapes)
        if not learner.needs_all_turns and part.included != contribution.included:
            problem = f"part {key!r} is of other devices; make it with this turn's mean or total"
        if problem:
            raise LearnerError(turn.device, turn.round, problem)
    return contribution


def is_finite(array: Vector) -> bool:
    """Return whether all numbers are finite; whole numbers always are, and are not looked at."""
    return array.dtype.kind in "iub" or bool(np.isfinite(array).all())


def _problem_of(key: str, part: Part, shapes: Mapping[str, Shape] | None) -> str:
    vector = part.vector
    if what := _array_problem(vector):
        return f"part {key!r} is {what}; contribute flat arrays of {', '.join(DTYPES)}"
    if not is_finite(vector):
        return f"part {key!r} has numbers that are not finite"
    if not can_travel(vector):
        return f"part {key!r} has numbers that are too large to be sent ({LARGEST_NUMBER:g} or more)"
    if shapes is not None and shapes.get(key) != Shape.of(part):
        return f"part {key!r} is {Shape.of(part)}; this round takes {shapes.get(key, 'no such part')}"
    return ""


def admits(learner: Learner, state: State, round_index: int, own: Contribution | None, other: Contribution) -> bool:
    """Return whether another device's contribution can be of this round: by the learner's shapes, or like one's own."""
    shapes = learner.shapes(state, round_index)
    if shapes is None:
        known = {} if own is None else {key: Shape.of(part) for key, part in own.parts.items()}
        return all(known.get(key, Shape.of(part)) == Shape.of(part) for key, part in other.parts.items())
    return all(shapes.get(key) == Shape.of(part) for key, part in other.parts.items())


def closed_account(learner: Learner, before: State, after: State, total: Contribution, round_index: int) -> Account:
    """Return what the record says of a round, with its stage and the name of the state that it led to."""
    account = learner.account(before, after, total, round_index)
    return replace(account, stage=learner.stage(round_index)[0], digest=digest_of(after))


def encode_state(state: Mapping[str, NDArray[Any]]) -> bytes:
    """Return arrays by name as the content of a safetensors file."""
    return safetensors.numpy.save({name: np.ascontiguousarray(array) for name, array in state.items()})


def digest_of(state: Mapping[str, NDArray[Any]]) -> str:
    """Return a name of a state's content: the same bytes under the same keys have the same name.

    >>> digest_of({"a": np.zeros(2)}) == digest_of({"a": np.zeros(2)}) != digest_of({"a": np.zeros(3)})
    True
    """
    digest = hashlib.sha256()
    for key in sorted(state):
        array = np.ascontiguousarray(state[key])
        digest.update(f"{key}/{array.dtype.str}/{array.shape}/".encode())
        digest.update(array.data)
    return digest.hexdigest()[:16]
