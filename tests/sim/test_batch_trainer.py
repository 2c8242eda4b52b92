"""Training on threads and in pieces gives the numbers of training in one go."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from tests.sim.fleets import params
from tolfl.core.spec import BlobsSpec, ModelSpec, RunSpec
from tolfl.learners import threads
from tolfl.learners.learner import LearnerError
from tolfl.sim import batch_trainer
from tolfl.sim.simulation import run

SPEC = RunSpec(
    data="blobs",
    devices=130,
    clusters=7,
    rounds=2,
    model=ModelSpec(hidden=(8,), code=3),
    blobs=BlobsSpec(samples_per_device=5, n_features=6, n_test=20),
)


@pytest.mark.parametrize(("n_threads", "at_once"), [(2, 50), (2, 130), (1, 7), (1, 1000)])
def test_threads_and_pieces_do_not_change_the_model(
    n_threads: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = params(run(SPEC)[0])
    monkeypatch.setattr(batch_trainer, "_TURNS_AT_ONCE", at_once)
    with ThreadPoolExecutor(n_threads) as pool:
        monkeypatch.setattr(threads, "_pool", lambda: pool)
        other = params(run(SPEC)[0])

    np.testing.assert_array_equal(other, usual)


@pytest.mark.parametrize("scheme", ["tol-fl", "batch", "fedgroup", "ifca", "fesem"])
def test_repetitions_that_are_computed_at_a_time_are_those_computed_alone(scheme: str) -> None:
    together = replace(SPEC, scheme=scheme, devices=6, clusters=3, repetitions=5)

    runs = run(together)

    for index, one in enumerate(runs):
        (alone,) = run(together.repetition(index))
        assert one.summary["model_sha256"] == alone.summary["model_sha256"]
        assert one.records[:-1] == alone.records[:-1]


WRONG = """
import numpy as np
from tolfl.learners import Learner

class Mean(Learner):
    rounds = 2
    def __init__(self, fleet): self.n_features = fleet.n_features
    def start(self, state): return {start}
    def contribute(self, turns): return {contribute}
    def apply(self, state, total, closing): return {apply}
"""
RIGHT = {
    "start": "{**state, 'centre': np.zeros(self.n_features)}",
    "contribute": "[{'x': turn.mean(turn.rows.mean(axis=0))} for turn in turns]",
    "apply": "{**state, 'centre': total.parts['x'].mean}",
}


MEAN = "turn.rows.mean(axis=0)"


@pytest.mark.parametrize(
    ("method", "does", "sentence"),
    [
        (
            "contribute",
            f"[{{'x': turn.mean({MEAN}[: 2 + turn.device % 2])}} for turn in turns]",
            r"^round 0: part 'x' is a mean of 3 numbers \(f4\) for some devices and a mean of 2 numbers \(f4\) here",
        ),
        (
            "contribute",
            f"[{{'x': turn.mean({MEAN} * np.nan)}} for turn in turns]",
            "'x' has numbers that are not finite",
        ),
        ("contribute", "[{'x': turn.mean(turn.rows)} for turn in turns]", "'x' is float32 of shape"),
        ("contribute", f"[{{'x': turn.mean({MEAN}.tolist())}} for turn in turns]", "device 0, .*: part 'x' is list"),
        (
            "contribute",
            f"[{{'x': turn.mean({MEAN}.astype('>f4'))}} for turn in turns]",
            "'x' is >f4, the bytes of another",
        ),
        (
            "contribute",
            f"[{{'x': turns[0].mean({MEAN})}} for turn in turns]",
            "device 1, .*part 'x' is of other devices",
        ),
        ("contribute", "[1 / 0 for turn in turns]", r"round 0: contribute failed \(.*line 9: ZeroDivisionError"),
        ("contribute", "[exit(3) for turn in turns]", r"round 0: contribute failed \(.*SystemExit: 3"),
        ("contribute", "[]", "contribute gave 0 contributions for 3 turns"),
        ("contribute", "[None for turn in turns]", "device 0, round 0: contribute gave NoneType; give parts by name"),
        ("contribute", f"[{{'x': {MEAN}}} for turn in turns]", "contribute gave a dict of ndarray; give parts by name"),
        ("contribute", f"[{{'y': turn.mean({MEAN})}} for turn in turns]", r"apply failed \(.*KeyError: 'x'"),
        ("apply", "None", "round 0: apply gives NoneType; give a dict of arrays by name"),
        ("apply", "{'centre': 3.0}", "round 0: apply gives 'centre' as float; keep flat arrays"),
        ("apply", "{'centre': np.zeros((2, 2))}", "apply gives 'centre' as float64 of shape .2, 2.; keep flat arrays"),
        ("start", "np.zeros(3)", "round 0: start gives ndarray; give a dict of arrays by name"),
        ("start", "{1: np.zeros(3)}", "round 0: start gives the key 1; give names"),
        ("start", "1 / 0", r"round 0: start failed \(.*line 8: ZeroDivisionError"),
    ],
)
def test_whatever_a_learner_does_wrong_is_one_sentence(method: str, does: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(WRONG.format(**{**RIGHT, method: does}))
    spec = RunSpec(data="blobs", devices=3, learn={"what": f"{file}:Mean"})

    with pytest.raises(LearnerError, match=sentence):
        run(spec)
