"""Which step size: chosen on held-back typical samples, never on the test set.

Clean FL with three seeds that no table uses, for step sizes a factor of two apart, the smallest first. A step is too
large if a run diverges, or its loss is a tenth worse than that of a smaller step. Of those whose double is not too
large, the one with the least validation loss is taken.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from tolfl.experiments.experiment import Experiment, Options
from tolfl.experiments.paper.setups import SETUPS
from tolfl.experiments.result_rows import Row, distinct_values, rows_where
from tolfl.experiments.results import ExperimentReport, Table
from tolfl.experiments.sweep import Job, Repetition

#: Seeds of the tables start at 0.
_FIRST_SEED = 1000
_N_SEEDS = 3
#: Tried in this order, times 0.001, until one diverges or is so many times worse than the best.
_MUCH_WORSE = 1.1
_FACTORS = (0.0625, 0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64)
_NOTE = "Clean FL, mean over three seeds. Chosen: the least loss among steps whose double is not too large."


def jobs(options: Options, rows: Sequence[Row] = ()) -> list[Job]:
    """Return the next step size of every data set, until one is too large."""
    found = []
    for name in options.data:
        tried = too_large(rows_where(rows, data=name))
        for factor in _FACTORS[: len(tried) + (not any(tried))]:
            fields: dict[str, Any] = {"scheme": "fl", "seed": _FIRST_SEED, "repetitions": _N_SEEDS, "splits": _N_SEEDS}
            spec = SETUPS[name].spec(options.quick, train={"lr": 0.001 * factor}, **fields)
            found.append(Job(f"{name}, step {spec.train.lr:g}", spec))
    return found


def step_rows(job: Job, repetitions: Sequence[Repetition]) -> list[dict[str, Any]]:
    """Return one row: the validation losses of all seeds, none if one of them diverged."""
    losses = [one.summary["validation_loss"] for one in repetitions if one.summary is not None]
    is_whole = len(losses) == len(repetitions) and all(map(math.isfinite, losses))
    mean = statistics.fmean(losses) if is_whole else None
    return [
        {
            "data": job.spec.data,
            "lr": job.spec.train.lr,
            "job": repetitions[0].key,
            "losses": losses if is_whole else [],
            "loss": mean,
        }
    ]


def too_large(rows: Sequence[Row]) -> list[bool]:
    """Return for each step of one data set, the smallest first, whether it is too large.

    >>> too_large([{"loss": 4.0}, {"loss": 3.0}, {"loss": 3.2}, {"loss": 3.4}, {"loss": None}])
    [False, False, False, True, True]
    """
    found, best = [], math.inf
    for row in rows:
        found.append(row["loss"] is None or row["loss"] > _MUCH_WORSE * best)
        best = best if found[-1] else min(best, row["loss"])
    return found


def choose(rows: Sequence[Row]) -> float | None:
    """Return the best step of one data set whose double is not too large; None if there is none.

    >>> choose([{"lr": lr, "loss": loss} for lr, loss in ((0.1, 5.0), (0.2, 4.0), (0.4, 3.0), (0.8, None))])
    0.2
    """
    tried = list(zip(rows, too_large(rows), strict=True))
    limits = [row["lr"] for row, is_too_large in tried if is_too_large]
    safe = [row for row, is_too_large in tried if not is_too_large and all(2.001 * row["lr"] < lr for lr in limits)]
    return min(safe, key=lambda row: row["loss"])["lr"] if safe else None


def report(rows: Sequence[Row]) -> ExperimentReport:
    """Return the report of rows."""
    tables = []
    for name in distinct_values(rows, "data"):
        own = rows_where(rows, data=name)
        chosen, lines = choose(own), []
        for row, is_too_large in zip(own, too_large(own), strict=True):
            losses = row["losses"]
            loss = "diverges" if row["loss"] is None else f"{row['loss']:.4g}"
            ends = f"{min(losses):.4g} to {max(losses):.4g}" if losses else "-"
            text = "chosen" if row["lr"] == chosen else "too large" if is_too_large else ""
            lines.append((f"{row['lr']:g}", loss, ends, text))
        columns = ("step", "validation loss", "of three seeds", "")
        tables.append(Table(f"{name}: step size", columns, tuple(lines), (_NOTE,)))
    return ExperimentReport("step-size", "Step sizes, chosen on held-back typical samples", list(rows), tables)


EXPERIMENT = Experiment(
    "step-size",
    "how the step sizes were chosen, on held-back typical samples",
    tuple(SETUPS),
    jobs,
    step_rows,
    report,
)
