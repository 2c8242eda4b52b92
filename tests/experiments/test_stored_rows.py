"""A row of every results file, drawn at random: its specification, run again, gives its numbers.

Another processor may differ in the last bits, and in the digest of a model with them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tolfl.core.errors import MissingDataError
from tolfl.core.spec import RunSpec
from tolfl.experiments.catalogue import EXPERIMENTS
from tolfl.experiments.experiment import Options
from tolfl.experiments.results import read_results
from tolfl.experiments.sweep import Job, Sweep, spec_hash

ROOT = Path(__file__).resolve().parents[2]
#: Files whose rows take a second or two; of the others one repetition takes up to a few minutes.
QUICK_ONES = ("communication", "samples")
_NOT_COMPARED = ("job", "seconds", "split", "fail", "model_sha256")
NAMES = [
    pytest.param(path.stem, marks=[] if path.stem in QUICK_ONES else [pytest.mark.slow, pytest.mark.timeout(1800)])
    for path in sorted((ROOT / "results").glob("*.json"))
]


def computed(name: str, row: dict[str, Any], spec: RunSpec) -> Iterator[dict[str, Any]]:
    """Compute the rows of a row's job again; of one with repetitions, only the row's own where that is the same."""
    (tags,) = [job.tags for job in tagged(name, row)][:1] or [{}]
    is_of_all = "seed" not in row or name == "timing"
    index = 0 if is_of_all else row["seed"] - spec.seed
    own = spec if is_of_all or spec.repetitions == 1 else spec.repetition(index)
    job = Job("again", own, tags)
    sweep = Sweep([job])
    list(sweep)
    yield from EXPERIMENTS[name].rows(job, sweep.results[job.key])


def tagged(name: str, row: dict[str, Any]) -> list[Job]:
    """Return the jobs of an experiment that have the columns of a row."""
    jobs = EXPERIMENTS[name].jobs(Options(EXPERIMENTS[name].data), [])
    return [job for job in jobs if all(row.get(column) == value for column, value in job.tags.items())]


def values(row: dict[str, Any]) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the numbers and the texts that must come out again, flat."""
    found = dict(flat({key: value for key, value in row.items() if key not in _NOT_COMPARED}))
    numbers = {key: value for key, value in found.items() if isinstance(value, float | int)}
    return numbers, {key: value for key, value in found.items() if key not in numbers}


def flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Take lists and dictionaries apart."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from flat(inner, f"{name}.{key}")
    else:
        yield name, value


@pytest.mark.parametrize("name", NAMES)
def test_a_row_that_is_run_again_has_its_numbers(name: str) -> None:
    content = read_results(ROOT / "results" / f"{name}.json")
    row = random.Random(2022 + len(content["rows"])).choice(content["rows"])
    spec = RunSpec.from_fields(content["specs"][row["job"]])

    assert spec_hash(spec) == row["job"]
    try:
        again = list(computed(name, row, spec))
    except MissingDataError as error:
        pytest.skip(str(error))
    (one,) = [
        one for one in again if all(one.get(name) == row.get(name) for name in ("class", "seed", "kind", "scheme"))
    ]
    (expected, texts), (numbers, texts_again) = values(row), values(one)
    assert numbers == pytest.approx(expected, rel=0.001, abs=0.0005)  # to the digits that tables print
    assert texts_again == texts


@pytest.mark.parametrize("name", [path.stem for path in sorted((ROOT / "results").glob("*.json"))])
def test_the_stored_rows_are_those_that_the_experiment_asks_for(name: str) -> None:
    content = read_results(ROOT / "results" / f"{name}.json")
    assert content["is_quick"] is False, "quick results belong into runs/quick"
    jobs = EXPERIMENTS[name].jobs(Options(EXPERIMENTS[name].data), content["rows"])
    stored, keys = set(content["specs"]), {job.key for job in jobs}
    # Of a batch in which a repetition diverged, each has a specification of its own.
    batches = [job.spec for job in jobs if job.key not in stored]
    assert stored - keys == {spec_hash(spec.repetition(index)) for spec in batches for index in range(spec.repetitions)}
