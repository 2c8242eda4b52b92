"""A fleet trains what Flower trains: against Flower's own loop over the same app, seeded alike, without failures."""

from __future__ import annotations

import gc
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.flower.environments import NEWEST, OLDEST, app_spec, flower_itself, needs_flwr, simulated
from tolfl.core.records import RoundClosed
from tolfl.core.spec import RunSpec
from tolfl.flower.flower_learner import FlowerLearner
from tolfl.learners import Learner
from tolfl.learners.checks import check_learner
from tolfl.learners.registry import learner_of
from tolfl.runs.outcome import data_for, fleet_of
from tolfl.sim.simulation import Runs

pytestmark = needs_flwr

OF_THE_MEAN = ("FedAvg", "FedAvgM", "FedProx", "FedAdam", "FedAdagrad", "FedYogi")
OF_ALL = ("FedMedian", "FedTrimmedAvg", "Krum", "MultiKrum", "Bulyan", "QFedAvg", "Decaying", "Keeping")


def learner_for(spec: RunSpec) -> FlowerLearner:
    learner: Learner = learner_of(fleet_of(spec, data_for(spec)))
    assert isinstance(learner, FlowerLearner)
    return learner


@pytest.mark.parametrize("python", [NEWEST, OLDEST], ids=["newest", "oldest"])
@pytest.mark.parametrize("strategy", OF_THE_MEAN)
def test_strategies_of_the_mean_agree_to_rounding(strategy: str, python: Path, tmp_path: Path) -> None:
    config = f"strategy='{strategy}'"

    result = simulated(spec := app_spec(python=python, config=config))
    theirs = np.load(flower_itself("linear", tmp_path / "flower", python, config) / "final_weights.npy")

    assert not learner_for(spec).description.gathers
    ours = result.models["flower"].files()["final_weights.npy"]
    assert np.allclose(saved(ours), theirs, rtol=1e-5)


@pytest.mark.parametrize("python", [NEWEST, OLDEST], ids=["newest", "oldest"])
@pytest.mark.parametrize("strategy", OF_ALL)
def test_strategies_of_all_replies_give_the_same_bits_and_metrics(strategy: str, python: Path, tmp_path: Path) -> None:
    config = f"strategy='{strategy}'"

    result = simulated(spec := app_spec(python=python, config=config))
    folder = flower_itself("linear", tmp_path / "flower", python, config)

    assert learner_for(spec).description.gathers
    for name in ("final_weights.npy", "metrics.txt"):
        assert result.models["flower"].files()[name] == (folder / name).read_bytes()


def test_a_part_of_the_nodes_is_sampled_as_flower_samples_them(tmp_path: Path) -> None:
    config = ["strategy='FedMedian'", "fraction-train=0.5", "fraction-evaluate=0.5"]

    result = simulated(app_spec(config=" ".join(config)))
    folder = flower_itself("linear", tmp_path / "flower", NEWEST, *config)

    assert result.models["flower"].files()["final_weights.npy"] == (folder / "final_weights.npy").read_bytes()


def test_the_number_of_clusters_does_not_change_a_bit() -> None:
    digests = {simulated(app_spec(clusters=k)).summary["state_digest"] for k in (1, 2, 3, 6)}

    assert len(digests) == 1


def test_rounds_without_evaluation_are_not_played() -> None:
    result = simulated(app_spec(config="fraction-evaluate=0.0"))

    stages = [line.stage for line in result.records if isinstance(line, RoundClosed)]
    assert stages == ["start", *["train"] * 4]


def test_metrics_of_every_round_are_in_the_records() -> None:
    rounds = [line for line in simulated(app_spec()).records if isinstance(line, RoundClosed)]

    assert [sorted(line.metrics) for line in rounds[:3]] == [
        ["server/loss"],
        ["train/seen", "train/train_loss"],
        ["evaluate/eval_loss", "server/loss"],
    ]
    assert [line.loss for line in rounds[1::2]] == [line.metrics["train/train_loss"] for line in rounds[1::2]]
    assert all(line.present == tuple(range(6)) for line in rounds)
    # Every client has counted its rounds in its state.
    assert [line.metrics["train/seen"] for line in rounds[1::2]] == [1, 2, 3, 4]


def test_a_stage_is_named_in_a_failure_plan() -> None:
    result = simulated(app_spec(fail="head:1@train:2"))

    died = [line["round"] for line in result.summary["failures"]]  # type: ignore[attr-defined]
    assert died == [5]


@pytest.mark.parametrize("python", [NEWEST, OLDEST], ids=["newest", "oldest"])
@pytest.mark.parametrize(
    ("config", "metrics"),
    [
        ("", {"evaluate/loss"}),
        ("has-parameters=false", {"evaluate/loss"}),
        ("own-metrics=true", {"evaluate/loss", "evaluate/most-rows", "train/most-rows"}),
    ],
    ids=["mean", "parameters of a client", "gather"],
)
def test_apps_of_the_older_kind_run(config: str, metrics: set[str], python: Path) -> None:
    result = simulated(app_spec("older", python, config, fail="server@3"))

    assert set(result.summary["metrics"]) == metrics  # type: ignore[call-overload]
    losses = [
        line.metrics["evaluate/loss"]
        for line in result.records
        if isinstance(line, RoundClosed) and line.stage == "evaluate"
    ]
    assert losses == sorted(losses, reverse=True)


@pytest.mark.parametrize("python", [NEWEST, OLDEST], ids=["newest", "oldest"])
@pytest.mark.parametrize("config", ["own-metrics=false", "own-metrics=true"], ids=["mean", "gather"])
def test_apps_of_the_older_kind_measure_what_flowers_older_loop_does(config: str, python: Path, tmp_path: Path) -> None:
    theirs = json.loads((flower_itself("older", tmp_path / "flower", python, config) / "history.json").read_text())

    rounds = [line for line in simulated(app_spec("older", python, config)).records if isinstance(line, RoundClosed)]

    assert len(theirs["loss"]) == 3
    for name, values in theirs.items():
        found = [line.metrics[f"evaluate/{name}"] for line in rounds if line.stage == "evaluate"]
        assert found == pytest.approx(values, rel=1e-5)


def test_repetitions_are_the_runs_of_their_seeds() -> None:
    runs = Runs(app_spec(repetitions=2, config="strategy='Decaying'"))
    for _ in runs:
        pass

    alone = [simulated(app_spec(seed=seed, config="strategy='Decaying'")).summary["state_digest"] for seed in (0, 1)]
    assert [result.summary["state_digest"] for result in runs.results] == alone


@pytest.mark.parametrize("config", ["", "own-metrics=true"], ids=["mean", "gather"])
def test_an_app_is_a_learner_like_any_other(config: str) -> None:
    spec = app_spec("older", config=f"num-server-rounds=1 {config}", devices=3, clusters=3)
    fleet = fleet_of(spec, data_for(spec))

    # The last of the checks: all others have passed by then.
    with pytest.raises(AssertionError, match="older is a Flower app: its model scores nothing here"):
        check_learner(lambda: learner_of(fleet), [np.zeros((1, 0), np.float32)] * 3)


def test_nothing_of_flwr_is_imported_here() -> None:
    simulated(app_spec())

    assert not [name for name in sys.modules if name.partition(".")[0] == "flwr"]


def app_processes() -> set[str]:
    children = [path.read_text().split() for path in Path("/proc/self/task").glob("*/children")]
    commands = {pid: Path(f"/proc/{pid}/cmdline") for pids in children for pid in pids}
    return {pid for pid, path in commands.items() if path.exists() and b"flower/inside/run.py" in path.read_bytes()}


def test_the_process_of_an_app_ends_with_the_last_learner_that_uses_it() -> None:
    learner_for(app_spec(seed=9))  # the latest process stays
    before = app_processes()
    learners = [learner_for(app_spec(seed=seed)) for seed in (10, 11, 11)]
    assert len(app_processes() - before) == 2

    learners.clear()
    gc.collect()

    assert len(app_processes() - before) == 1


def saved(content: bytes) -> np.ndarray:
    found: np.ndarray = np.load(io.BytesIO(content))
    return found
