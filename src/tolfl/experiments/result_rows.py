"""Rows: one line of plain values per run, as results are stored and as tables, statistics and figures read them."""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tolfl.experiments.sweep import Job, Repetition
from tolfl.learners.layouts import PLAIN

Row = Mapping[str, Any]  #: plain values, as JSON has them
Units = Mapping[Hashable, Sequence[float]]  #: by data set and split, one value per seed

SCHEME_NAMES = {
    "fl": "FL",
    "sbt": "SBT",
    "tol-fl": "Tol-FL",
    "fedgroup": "FedGroup",
    "ifca": "IFCA",
    "fesem": "FeSEM",
}
_KEPT = (
    *("auroc", "auroc_best", "auroc_chosen", "auroc_all_models", "average_precision", "train_loss", "clusters_in_use"),
    *("devices_in_last_round", "devices_lost_with_head", "rounds_done", "stall_s", "bytes", "model_sha256"),
)
_SCORES = {"auroc_best": "best single*", "auroc_all_models": "all models", "auroc_chosen": "chosen"}


@dataclass(frozen=True)
class Method:
    """A line of a table: a scheme under a policy, and which of its scores."""

    scheme: str
    policy: str = ""
    score: str = "auroc"

    @property
    def label(self) -> str:
        """Its name in tables."""
        if self.scheme in PLAIN:
            return f"{self.scheme} (plain)"
        return " ".join(filter(None, (self.scheme, self.policy, _SCORES.get(self.score))))


def scheme_label(row: Row) -> str:
    """Return the display name of a row's scheme, with its number of clusters where the scheme has a choice.

    >>> scheme_label({"scheme": "fl", "k": 1}), scheme_label({"scheme": "tol-fl", "k": 5})
    ('FL', 'Tol-FL (k = 5)')
    """
    name = SCHEME_NAMES.get(row["scheme"], str(row["scheme"]))
    return name if row["scheme"] in {"batch", "fl", "sbt"} else f"{name} (k = {row['k']})"


def rows_of(job: Job, repetitions: Sequence[Repetition]) -> list[dict[str, Any]]:
    """Return one row per repetition of a job, with the columns of the job; one that diverged has no scores."""
    rows = []
    for index, one in enumerate(repetitions):
        sizes = {"clusters": one.summary and one.summary["n_clusters"], "rounds": job.spec.rounds}
        rows.append({**_what(job, index, one), **sizes, **{name: one.summary and one.summary[name] for name in _KEPT}})
    return rows


def plain_rows(job: Job, repetitions: Sequence[Repetition]) -> list[dict[str, Any]]:
    """Return the rows of the plain baselines, which saw the data of a job's repetitions."""
    return [
        {**_what(job, index, one), "scheme": name, "policy": "", "fail": "", "auroc": value}
        for index, one in enumerate(repetitions)
        for name, value in (one.summary or {"baselines": {}})["baselines"].items()
    ]


def _what(job: Job, index: int, one: Repetition) -> dict[str, Any]:
    """Return the values that every row of a job has, with its own columns first."""
    spec = job.spec
    names = {"data": spec.data, "scheme": spec.scheme, "policy": spec.on_head_failure, "fail": spec.fail}
    split = index % spec.splits
    return {**job.tags, **names, "devices": spec.devices, "split": split, "seed": one.spec.seed, "job": one.key}


def distinct_values(rows: Iterable[Row], column: str) -> list[Any]:
    """Return the different values of a column, in order of appearance."""
    return list(dict.fromkeys(row[column] for row in rows))


def rows_where(rows: Iterable[Row], **values: object) -> list[Row]:
    """Return the rows that have these values."""
    return [row for row in rows if values.items() <= row.items()]


def by_split(rows: Iterable[Row], method: Method, **values: object) -> dict[Hashable, list[float]]:
    """Return a method's scores by data set and split, one per seed, in the order of the seeds."""
    units: dict[Hashable, list[tuple[int, float]]] = {}
    for row in rows_where(rows, scheme=method.scheme, policy=method.policy, **values):
        if row.get(method.score) is not None:
            units.setdefault((row["data"], row["split"]), []).append((row["seed"], row[method.score]))
    return {unit: [value for _, value in sorted(found)] for unit, found in sorted(units.items())}


def mean_sd(values: Iterable[float | None], form: str = ".3f") -> str:
    """Return mean and standard deviation over seeds as text; a dash where there is nothing.

    >>> mean_sd([0.5, 0.7, None]), mean_sd([0.5]), mean_sd([])
    ('0.600 ± 0.141', '0.500', '-')
    """
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    spread = f" ± {statistics.stdev(known):{form.lstrip('+')}}" if len(known) > 1 else ""
    return f"{statistics.fmean(known):{form}}{spread}"


def mean_spreads(units: Units) -> str:
    """Return the mean, the spread of splits' means and the spread of seeds inside a split, as text.

    >>> mean_spreads({0: [0.5, 0.7], 1: [0.8, 0.8]}), mean_spreads({0: [0.5, 0.7]}), mean_spreads({})
    ('0.700 ±0.141/0.100', '0.600 ±-/0.141', '-')
    """
    if not units:
        return "-"
    means = [statistics.fmean(values) for values in units.values()]
    inside = [statistics.variance(values) for values in units.values() if len(values) > 1]
    over_splits = f"{statistics.stdev(means):.3f}" if len(means) > 1 else "-"
    over_seeds = f"/{statistics.fmean(inside) ** 0.5:.3f}" if inside else ""
    spread = f" ±{over_splits}{over_seeds}" if over_splits != "-" or over_seeds else ""
    return f"{statistics.fmean(means):.3f}{spread}"


def models_in_use(rows: Sequence[Row]) -> str:
    """Return how many models of how many were in use in the last round, as text; a dash where there is no run.

    >>> models_in_use([{"clusters_in_use": used, "clusters": 3} for used in (1, 2)])
    '1 to 2 of 3; one model in 1 of 2 runs'
    """
    finished = [row for row in rows if row["clusters"] is not None]
    used = [row["clusters_in_use"] for row in finished if row["clusters_in_use"] is not None]
    if not used:
        return "1" if finished else "-"
    ones = f"; one model in {used.count(1)} of {len(used)} runs" if 1 in used else ""
    return f"{' to '.join(map(str, sorted({min(used), max(used)})))} of {finished[0]['clusters']}{ones}"
