"""Training on threads and in pieces gives the numbers of training in one go."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

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


WRONG = """
import numpy as np
from tolfl.learners import Learner

class Mean(Learner):
    rounds = 2
    def __init__(self, fleet): self.n_features = fleet.n_features
    def start(self, state): return {{**state, "centre": np.zeros(self.n_features)}}
    def contribute(self, turns): return {contribute}
    def apply(self, state, total, closing): return {{**state, "centre": total.parts["x"].mean}}
"""


@pytest.mark.parametrize(
    ("contribute", "sentence"),
    [
        ("[{'x': turn.mean(turn.rows.mean(axis=0)[: 2 + turn.device % 2])} for turn in turns]", "adding up failed .*"),
        (
            "[{'x': turn.mean(turn.rows.mean(axis=0) * np.nan)} for turn in turns]",
            "'x' has numbers that are not finite",
        ),
        ("[{'x': turn.mean(turn.rows)} for turn in turns]", "'x' is float32 of shape"),
        ("[1 / 0 for turn in turns]", r"round 0: contribute failed \(.*line 9: ZeroDivisionError"),
        ("[]", "contribute gave 0 contributions for 3 turns"),
        ("[{'y': turn.mean(turn.rows.mean(axis=0))} for turn in turns]", r"apply failed \(.*KeyError: 'x'"),
    ],
)
def test_whatever_a_learner_does_wrong_is_one_sentence(contribute: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(WRONG.format(contribute=contribute))
    spec = RunSpec(data="blobs", devices=3, learn={"what": f"{file}:Mean"})

    with pytest.raises(LearnerError, match=sentence):
        run(spec)
