"""Which step size: chosen on held-back typical samples, never on the test set.

Clean FL with three seeds that no table uses, for step sizes a factor of two apart. A step diverges if a loss is not
finite or no better than that of the mean vector. Of those whose double does not diverge, the one with the least
validation loss is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from tolfl.core.errors import NonFiniteLossError, NonFiniteModelError
from tolfl.core.spec import RunSpec
from tolfl.datasets import FederatedDataset
from tolfl.experiments.paper.studies import Study, with_place
from tolfl.experiments.report import Report, Row, Table
from tolfl.experiments.steps import Step
from tolfl.sim.run import Runs

#: Seeds of the tables start at 0.
_FIRST_SEED = 1000
_N_SEEDS = 3
#: Tried in this order around 0.001, until one diverges or is so much worse than the best.
_MUCH_WORSE = 1.1
_FACTORS = (0.0625, 0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64)


class StepSizes:
    """The choice at work, one data set after the other. Iterate to make it go on."""

    def __init__(self, studies: Sequence[Study], quick: bool = False, data_dir: str = "") -> None:
        self._studies, self._quick, self._data_dir = studies, quick, data_dir
        self.rows: list[dict[str, Any]] = []

    def __iter__(self) -> Iterator[Step]:
        """Try step after step."""
        total = len(self._studies) * len(_FACTORS)
        for place, study in enumerate(self._studies):
            best = math.inf
            for tried, factor in enumerate(_FACTORS):
                lr = 0.001 * factor
                yield Step(f"{study.data}, step {lr:g}", place * len(_FACTORS) + tried, total)
                row = self._try(study, lr)
                self.rows.append(row)
                if row["diverged"] or row["loss"] > _MUCH_WORSE * best:
                    break
                best = min(best, row["loss"])

    def _try(self, study: Study, lr: float) -> dict[str, Any]:
        spec = study.spec(self._quick, scheme="fl", seed=_FIRST_SEED, repetitions=_N_SEEDS, splits=_N_SEEDS)
        spec = with_place(RunSpec.from_fields(_with_lr(spec, lr)), self._data_dir)
        runs = Runs(spec)
        try:
            for _ in runs:
                pass
        except (NonFiniteLossError, NonFiniteModelError):
            return {"data": study.data, "lr": lr, "diverged": True, "losses": [], "loss": None}
        losses = [_validation_loss(result.models["global"].anomaly_score, result.data) for result in runs.results]
        plain = [mean_vector_loss(result.data) for result in runs.results]
        diverged = any(not math.isfinite(loss) or loss >= limit for loss, limit in zip(losses, plain, strict=True))
        mean = float(np.mean(losses))
        return {"data": study.data, "lr": lr, "diverged": diverged, "losses": losses, "loss": mean, "plain": plain}

    @property
    def report(self) -> Report:
        """The choice for each data set, with all that was tried."""
        return report_of(self.rows)


def _with_lr(spec: RunSpec, lr: float) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(spec)
    fields["train"]["lr"] = lr
    return fields


def _validation_loss(score: Any, data: FederatedDataset) -> float:
    samples = data.pool if data.validation is None else data.validation
    return float(np.mean(score(samples), dtype=np.float64))


def mean_vector_loss(data: FederatedDataset) -> float:
    """Return the loss of always answering with the mean of the training samples."""
    samples = data.pool if data.validation is None else data.validation
    return float(np.mean(((samples - data.pool.mean(0)) ** 2).sum(1), dtype=np.float64))


def choose(rows: Sequence[Row]) -> float | None:
    """Return the best step of one data set whose double does not diverge; None if there is none.

    >>> tried = [(0.1, 5.0, False), (0.2, 4.0, False), (0.4, 3.0, False), (0.8, None, True)]
    >>> choose([{"lr": lr, "loss": loss, "diverged": diverged} for lr, loss, diverged in tried])
    0.2
    """
    diverged = [row["lr"] for row in rows if row["diverged"]]
    safe = [row for row in rows if not row["diverged"] and all(2.001 * row["lr"] < lr for lr in diverged)]
    return min(safe, key=lambda row: row["loss"])["lr"] if safe else None


def report_of(rows: Sequence[Row]) -> Report:
    """Return the report of stored rows."""
    names = list(dict.fromkeys(row["data"] for row in rows))
    tables = []
    for name in names:
        own = [row for row in rows if row["data"] == name]
        chosen = choose(own)
        cells = tuple(
            (
                f"{row['lr']:g}",
                "diverges" if row["diverged"] else f"{row['loss']:.4g}",
                "*" if row["lr"] == chosen else "",
            )
            for row in own
        )
        notes = ("mean over three seeds of clean FL; chosen: the least loss whose double does not diverge",)
        tables.append(Table(f"{name}: step size", ("step", "validation loss", "chosen"), cells, notes))
    return Report("step-size", "Step sizes, chosen on held-back typical samples", list(rows), tables)
