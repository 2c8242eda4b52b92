"""Scores of kept models: in the order of rounds, each once, none lost."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from itertools import count
from pathlib import Path

import pytest

from tolfl.core.contribution import GLOBAL
from tolfl.core.records import AnyRecord, Evaluated
from tolfl.core.spec import BlobsSpec, RunSpec
from tolfl.datasets import load
from tolfl.learners.registry import autoencoder_for
from tolfl.net.collect import RoundScorer
from tolfl.net.storage import DeviceStorage, kept_name
from tolfl.protocol.history import ClosedRound, Roster, Version
from tolfl.runs.outcome import fleet_of

SPEC = RunSpec(data="blobs", devices=4, clusters=2, evaluate_every=4, blobs=BlobsSpec(samples_per_device=20))
DATA = load(SPEC)


@pytest.fixture
def scorer(tmp_path: Path) -> Iterator[RoundScorer]:
    clock = count()
    one = RoundScorer(SPEC, DATA, tmp_path, lambda: float(next(clock)))
    yield one
    one.finish()


def keep(devices: Path, device: int, round_index: int) -> None:
    version = Version(100 * round_index, round_index + 1, 0, "ab")
    models = {GLOBAL: autoencoder_for(fleet_of(SPEC, DATA)).initial(seed=round_index)}
    record = ClosedRound(version, Roster(dict.fromkeys(range(4), 0)), models, "")
    DeviceStorage(devices / str(device), device).save(record, name=kept_name(version))


def rounds(lines: list[AnyRecord]) -> list[int | None]:
    assert [line.time_s for line in lines] == sorted(line.time_s for line in lines)
    return [line.round for line in lines if isinstance(line, Evaluated)]


def test_models_that_are_found_at_once_are_scored_in_the_order_of_rounds(scorer: RoundScorer, tmp_path: Path) -> None:
    for device, index in ((1, 11), (3, 3), (0, 99), (2, 7)):
        keep(tmp_path, device, index)

    assert rounds(scorer.finish()) == [3, 7, 11, 99]


def test_a_look_returns_what_is_new_and_all_looks_together_everything(scorer: RoundScorer, tmp_path: Path) -> None:
    found: list[AnyRecord] = []
    for index in (3, 7, 11):
        keep(tmp_path, 1, index)
        found += scorer.look()

    assert rounds(found + scorer.finish()) == [3, 7, 11]


def test_a_score_that_is_ready_between_two_questions_is_not_lost(scorer: RoundScorer) -> None:
    class ReadyAtTheSecondQuestion(Future[AnyRecord]):
        n_questions = 0

        def done(self) -> bool:
            self.n_questions += 1
            return self.n_questions > 1

    slow = ReadyAtTheSecondQuestion()
    slow.set_result(Evaluated(time_s=0.0, round=3, auroc=0.5))
    scorer._pending.append(slow)

    assert rounds(scorer.look() + scorer.look() + scorer.finish()) == [3]
