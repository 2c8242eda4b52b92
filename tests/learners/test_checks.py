"""The checks that are shipped for learners: those that there are pass, and wrong ones are found out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.sim.fleets import Mean
from tolfl.core.contribution import Contribution, Part
from tolfl.core.device_set import DeviceSet
from tolfl.core.spec import FedGroupSpec, FeSEMSpec, IFCASpec, ModelSpec, RunSpec, TrainSpec
from tolfl.learners import Account, Closing, Fleet, Learner, Scorer, Shape, Stages, State, Turn
from tolfl.learners.checks import check_learner
from tolfl.learners.registry import learner_of
from tolfl.learners.torch_module import ModuleModel
from tolfl.learners.training import Model

RNG = np.random.default_rng(0)
#: More than one mini-batch of four for everybody who has any.
ROWS = [RNG.normal(device // 2, 1.0, (n, 6)).astype(np.float32) for device, n in enumerate((9, 8, 0, 12, 7, 5))]


def fleet(scheme: str = "tol-fl", **options: object) -> Fleet:
    fields = {
        "data": "blobs",
        "scheme": scheme,
        "devices": 6,
        "clusters": 2,
        "rounds": 3,
        "model": ModelSpec(hidden=(5,), code=2),
        "train": TrainSpec(lr=0.01, batch_size=4),
        "ifca": IFCASpec(warm_rounds=1, restarts=2, trial_rounds=1),
        "fedgroup": FedGroupSpec(pretrain_iterations=3),
        **options,
    }
    return Fleet(RunSpec(**fields), (6,), usual_rows=6)  # type: ignore[arg-type]


def maker(model: Model | None = None, scheme: str = "tol-fl", **options: object) -> Callable[[], Learner]:
    return lambda: learner_of(fleet(scheme, **options), model)


# -- those that there are ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["tol-fl", "batch", "batch-small", "fedgroup", "ifca", "fesem"])
def test_every_built_in_learner_passes(scheme: str) -> None:
    check_learner(maker(scheme=scheme), ROWS)


@pytest.mark.parametrize(
    "options",
    [
        {"scheme": "fedgroup", "on_head_failure": "rehome"},
        {"scheme": "fedgroup", "fedgroup": FedGroupSpec(pretrain_scale=1, weight="equal", inter_group_lr=0.1)},
        {"scheme": "ifca", "ifca": IFCASpec(init="random", restarts=1)},
        {"scheme": "fesem", "fesem": FeSEMSpec(init="random")},
        {"scheme": "fesem", "lost_model": "frozen", "seed": 5},
    ],
    ids=str,
)
def test_settings_of_learners_pass_too(options: dict[str, object]) -> None:
    check_learner(maker(**options), ROWS, seed=5)  # type: ignore[arg-type]


def test_a_module_of_ones_own_passes() -> None:
    check_learner(maker(ModuleModel(Mean(6))), ROWS)


def test_one_learner_after_the_other_passes() -> None:
    check_learner(lambda: Stages({"ranges": Ranges(), "training": maker()(), "centre": Centre(2)}), ROWS)


# -- a small learner, and what can be wrong with it -------------------------------------------------------------------


@dataclass(frozen=True)
class Distance:
    """How far rows are from a centre."""

    centre: NDArray[np.float64]
    users: DeviceSet | None = None

    def anomaly_score(self, rows: NDArray[np.floating]) -> NDArray[np.floating]:
        distances: NDArray[np.floating] = np.square(rows - self.centre).sum(axis=1)
        return distances

    def files(self) -> dict[str, bytes]:
        return {"centre.bin": self.centre.tobytes()}


class Centre(Learner):
    """Half the way to the mean of all rows in every round."""

    def __init__(self, rounds: int = 2) -> None:
        self.rounds = rounds

    def start(self, state: State) -> State:
        return {**state, "centre": np.zeros(6)}

    def contribute(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        return [{"gap": turn.mean(turn.rows.mean(axis=0, dtype=float) - turn.state["centre"])} for turn in turns]

    def apply(self, state: State, total: Contribution, closing: Closing) -> State:
        if "gap" not in total.parts:
            return state
        return {**state, "centre": state["centre"] + total.parts["gap"].mean / 2}

    def shapes(self, state: State, round_index: int) -> dict[str, Shape] | None:
        return {"gap": Shape("mean", "f8", 6)}

    def results(self, state: State) -> dict[str, Scorer]:
        return {"centre": Distance(state["centre"])}


class Ranges(Learner):
    """Lowest, highest and number of rows: parts of every kind, and no shapes."""

    rounds = 1

    def start(self, state: State) -> State:
        return state

    def contribute(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        return [
            {
                "low": turn.total(turn.rows.min(axis=0), "min"),
                "high": turn.total(turn.rows.max(axis=0), "max"),
                "n": turn.total(np.array([len(turn.rows)])),
            }
            for turn in turns
        ]

    def apply(self, state: State, total: Contribution, closing: Closing) -> State:
        return {**state, **{key: part.vector for key, part in total.parts.items()}}


def test_the_small_learners_are_right_themselves() -> None:
    check_learner(Centre, ROWS)
    check_learner(Ranges, ROWS)


class Remembers(Centre):
    def contribute(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        self.n_calls = getattr(self, "n_calls", 0) + 1
        return [{"gap": turn.mean(np.full(6, float(self.n_calls)))} for turn in turns]


class KeepsItsStart(Centre):
    def start(self, state: State) -> State:
        self.centre = np.zeros(6)
        return {**state, "centre": self.centre}

    def contribute(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        return [{"gap": turn.mean(turn.rows.mean(axis=0, dtype=float) - self.centre)} for turn in turns]


class KeepsWhatItApplied(Centre):
    last = 0.0

    def apply(self, state: State, total: Contribution, closing: Closing) -> State:
        self.last += 1
        return {**state, "centre": np.full(6, self.last)}


class ChangesRows(Centre):
    def contribute(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        for turn in turns:
            rows = turn.rows
            rows -= rows.mean(axis=0)
        return super().contribute(turns)


class ChangesState(Centre):
    def apply(self, state: State, total: Contribution, closing: Closing) -> State:
        state["centre"] += 1
        return dict(state)


class OfAnotherShape(Centre):
    def contribute(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        return [{"gap": turn.mean(np.zeros(5))} for turn in turns]


class OfDifferentShapes(Ranges):
    def contribute(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        return [{"low": turn.total(np.zeros(1 + turn.device))} for turn in turns]


class OfTwoDimensions(Ranges):
    def contribute(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        return [{"low": turn.total(np.zeros((2, 2)))} for turn in turns]


class NotFinite(Centre):
    def contribute(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        return [{"gap": turn.mean(np.full(6, np.nan))} for turn in turns]


class DrawsGlobally(Centre):
    def contribute(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        return [{"gap": turn.mean(np.random.normal(size=6))} for turn in turns]  # noqa: NPY002


class DrawsFreely(Centre):
    def contribute(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        return [{"gap": turn.mean(np.random.default_rng().normal(size=6))} for turn in turns]


class DrawsItsStart(Centre):
    def start(self, state: State) -> State:
        return {"centre": np.random.default_rng().normal(size=6)}


class NeedsEverybody(Centre):
    def apply(self, state: State, total: Contribution, closing: Closing) -> State:
        return {**state, "centre": state["centre"] + total.parts["gap"].mean / 2}


class DividesByNobody(Centre):
    def apply(self, state: State, total: Contribution, closing: Closing) -> State:
        n = len(total.parts)
        return {**state, "centre": np.full(6, 1 / n if n else np.nan)}


class NeedsEveryKey(Ranges):
    def apply(self, state: State, total: Contribution, closing: Closing) -> State:
        if not total.parts:
            return state
        return {**state, "width": total.parts["high"].vector - total.parts["low"].vector}


class DependsOnTheBatch(Centre):
    def contribute(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        mean = np.concatenate([turn.rows for turn in turns]).mean(axis=0, dtype=float)
        return [{"gap": turn.mean(mean - turn.state["centre"])} for turn in turns]


class DependsOnOtherSeeds(Centre):
    needs_all_turns = True

    def contribute(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        return [{"gap": turn.mean(np.full(6, float(len(turns))))} for turn in turns]


class SpeaksForOthers(Centre):
    def contribute(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        return [{"gap": Part.mean_of(turn.device + 1, len(turn.rows), np.zeros(6))} for turn in turns]


class NoRounds(Centre):
    def __init__(self) -> None:
        super().__init__(0)


class HasAnotherPlan(Centre):
    def stage(self, round_index: int) -> tuple[str, int, int]:
        return "centre", round_index, 7


class WeighsNothing(Centre):
    def nbytes(self, round_index: int) -> tuple[int, int]:
        return -1, 0


class FailsToAccount(Centre):
    def account(self, before: State, after: State, total: Contribution, round_index: int) -> Account:
        return Account(float(total.parts["gap"].mean[0]))


class KeepsObjects(Centre):
    def start(self, state: State) -> State:
        return {"centre": np.zeros(6), "names": np.array(["a", "b"])}


class ScoresNothing(Centre):
    def results(self, state: State) -> dict[str, Scorer]:
        return {"centre": Distance(state["centre"] + np.inf)}


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (Remembers, "contribute in round 0 is not the same twice: a learner keeps nothing"),
        (KeepsItsStart, "contribute in round 0 failed .AttributeError: .*centre"),
        (KeepsWhatItApplied, "apply in round 0 is not the same twice: a learner keeps nothing"),
        (ChangesRows, "contribute in round 0 changes the rows in place"),
        (ChangesState, "apply in round 0 changes the state or the total in place"),
        (OfAnotherShape, "device 0, round 0: part 'gap' is a mean of 5 numbers .f8.; this round takes a mean of 6"),
        (OfDifferentShapes, "the sum of round 0 failed .MismatchError: part 'low' is a sum of 2 numbers"),
        (OfTwoDimensions, "part 'low' is float64 of shape .2, 2.; contribute flat arrays of f4, f8, i8, u1"),
        (NotFinite, "part 'gap' has numbers that are not finite"),
        (DrawsGlobally, "contribute in round 0 draws from np.random; use rng_for"),
        (DrawsFreely, "contribute in round 0 is not the same twice: .* draws by rng_for alone"),
        (DrawsItsStart, "start.* is not the same twice: devices would differ"),
        (NeedsEverybody, "apply in round 0 with an empty total failed .KeyError: 'gap'"),
        (DividesByNobody, "apply in round 0 with an empty total: 'centre' has numbers that are not finite"),
        (NeedsEveryKey, "apply in round 0 without 'high' failed .KeyError: 'high'"),
        (DependsOnTheBatch, "contribute in round 0 depends on the other turns of the call"),
        (DependsOnOtherSeeds, "contribute in round 0 depends on the other turns of the call"),
        (SpeaksForOthers, "device 0, round 0: part 'gap' is of other devices; make it with this turn's mean or total"),
        (NoRounds, "rounds is 0; it must be a number above 0"),
        (HasAnotherPlan, "the stages have 7 rounds, the learner has 2"),
        (WeighsNothing, "nbytes.0. is .-1, 0.; give two sizes in bytes"),
        (FailsToAccount, "account of round 0 with an empty total failed .KeyError: 'gap'"),
        (KeepsObjects, "start.* gives 'names' as <U1 of shape .2,.; keep flat arrays of f4, f8, i8, u1"),
        (ScoresNothing, "result 'centre' does not give one finite score per row"),
    ],
)
def test_a_wrong_learner_is_found_out_with_one_sentence(wrong: Callable[[], Learner], sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence) as caught:
        check_learner(wrong, [rows.copy() for rows in ROWS])

    assert len(str(caught.value).splitlines()) == 1


def test_a_state_that_is_only_in_an_object_is_found_out_where_nothing_fails() -> None:
    objects: list[Learner] = []

    class Numbered(Centre):
        def __init__(self) -> None:
            super().__init__()
            objects.append(self)
            self.number = float(len(objects))

        def contribute(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
            return [{"gap": turn.mean(np.full(6, self.number))} for turn in turns]

    with pytest.raises(AssertionError, match="is another for a new object with the same state: a device that returns"):
        check_learner(Numbered, ROWS)
