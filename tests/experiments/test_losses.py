"""The loss of every closed round: worked out by hand, and against what a finished run says of itself."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from tests.sim.fleets import FULL_BATCH, Mean, columns, some_data
from tolfl.core.spec import BlobsSpec, ModelSpec, RunSpec
from tolfl.experiments.paper.losses import LossRuns, closing_times_s
from tolfl.learners import Account
from tolfl.learners.torch_module import ModuleModel
from tolfl.runs.checkpoint import Checkpoint
from tolfl.sim.simulation import run

SPEC = RunSpec(
    data="blobs",
    devices=6,
    clusters=3,
    rounds=6,
    repetitions=2,
    blobs=BlobsSpec(samples_per_device=20, n_features=8, n_groups=3, n_test=40, n_validation=0),
    model=ModelSpec(hidden=(8,), code=3),
)


def changed(**changes: object) -> RunSpec:
    return msgspec.structs.replace(SPEC, **changes)


def finished(runs: LossRuns) -> LossRuns:
    for _ in runs:
        pass
    return runs


def test_the_loss_after_one_round_is_the_one_worked_out_by_hand() -> None:
    # J(x) = (x - theta)^2 and theta_1 = 16/15, whatever the layout.
    by_hand = np.mean([(x - 16 / 15) ** 2 for x in (1, 3, 4, 6, 8, 10)])
    spec = RunSpec(scheme="sbt", devices=3, rounds=1, train=FULL_BATCH)

    runs = finished(LossRuns(spec, columns([1, 3], [4], [6, 8, 10]), ModuleModel(Mean())))

    assert by_hand == pytest.approx(27.426667)
    assert [closed.loss for closed in runs.closed[0]] == [pytest.approx(by_hand)]


@pytest.mark.parametrize(
    ("scheme", "policy", "fail"),
    [
        ("tol-fl", "elect", "server@3"),
        ("tol-fl", "drop", "server@3"),
        ("fl", "isolate", "server@3"),
        ("fl", "isolate", "server@0"),
        ("fl", "freeze", "server@3"),
        ("sbt", "", "device:2@1-4"),
        ("batch", "", ""),
    ],
)
def test_the_last_loss_is_the_training_loss_of_the_finished_run(scheme: str, policy: str, fail: str) -> None:
    spec = changed(scheme=scheme, on_head_failure=policy, fail=fail)
    runs = finished(LossRuns(spec))

    for of_seed, result in zip(runs.closed, run(spec), strict=True):
        last = max(closed.round for closed in of_seed)
        losses = [closed.loss for closed in of_seed if closed.round == last]
        assert np.mean(losses) == pytest.approx(result.summary["train_loss"], rel=1e-6)


def test_uneven_devices_that_go_on_alone_are_each_measured_in_every_round() -> None:
    # The small devices are far ahead of the large one in virtual time.
    spec = RunSpec(scheme="fl", devices=4, rounds=5, fail="server@2", train=FULL_BATCH)
    data = some_data([3, 500, 2, 40])

    runs = finished(LossRuns(spec, data, ModuleModel(Mean(3))))
    alone = sorted((closed.round, closed.device) for closed in runs.closed[0] if closed.round >= 2)

    assert alone == [(index, device) for index in (2, 3, 4) for device in (1, 2, 3)]


@pytest.mark.parametrize("scheme", ["fl", "sbt", "tol-fl"])
def test_a_run_that_goes_on_from_known_rounds_has_the_same_losses(scheme: str) -> None:
    whole = finished(LossRuns(changed(scheme=scheme, fail="client@4")))
    first = LossRuns(changed(scheme="fl", fail="server@4"))
    known = next(first.known() for rounds_done in first if rounds_done == 4)

    resumed = finished(LossRuns(changed(scheme=scheme, fail="client@4"), known=known))

    assert resumed.closed == whole.closed


@given(k=st.integers(1, 6), uplink=st.sampled_from(["serial", "parallel"]))
@examples(max_examples=10)
def test_times_of_known_rounds_are_those_of_a_run_that_trains(k: int, uplink: str) -> None:
    links = msgspec.structs.replace(SPEC.links, uplink=uplink, speed_spread=1.0)
    spec = changed(clusters=k, links=links, repetitions=1)
    data = some_data([5, 1, 9, 2, 2, 7])
    trained = finished(LossRuns(changed(scheme="fl", repetitions=1), data))
    own = finished(LossRuns(spec, data))

    times_s = closing_times_s(spec, data, trained.known().checkpoints[0])

    assert times_s == [closed.time_s for closed in own.closed[0]]


def test_rounds_that_are_not_known_are_not_trained_in_silence() -> None:
    with pytest.raises(LookupError, match="only 2 of 6 rounds are known"):
        closing_times_s(changed(repetitions=1), some_data([3] * 6, 8), Checkpoint([Account(1.0), Account(1.0)]))
