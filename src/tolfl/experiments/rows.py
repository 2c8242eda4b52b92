"""Rows: one line of plain values per run, as results are stored and as tables, statistics and figures read them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tolfl.core.spec import RunSpec
from tolfl.experiments.report import Row
from tolfl.learners.layouts import PLAIN

_KEPT = (
    "auroc",
    "auroc_best",
    "auroc_chosen",
    "auroc_all_models",
    "average_precision",
    "train_loss",
    "clusters_in_use",
    "devices_in_last_round",
    "devices_lost_with_head",
    "rounds_done",
    "stall_s",
    "bytes",
    "model_sha256",
)


@dataclass(frozen=True)
class Method:
    """A line of a table: a scheme under a policy, and which of its scores."""

    scheme: str
    policy: str = ""
    score: str = "auroc"

    @property
    def label(self) -> str:
        """How tables call it."""
        if self.scheme in PLAIN:
            return f"{self.scheme} (plain)"
        what = {"auroc_best": "best single*", "auroc_all_models": "all models", "auroc_chosen": "chosen"}
        return " ".join(filter(None, (self.scheme, self.policy, what.get(self.score))))


def rows_of(scenario: str, spec: RunSpec, summaries: Iterable[dict[str, Any]], cell: str) -> list[dict[str, Any]]:
    """Return one row per repetition of a specification."""
    rows = []
    for index, summary in enumerate(summaries):
        one = spec.repetition(index)
        rows.append(
            {
                "scenario": scenario,
                "data": spec.data,
                "scheme": spec.scheme,
                "policy": spec.on_head_failure,
                "fail": spec.fail,
                "devices": spec.devices,
                "clusters": summary["n_clusters"],
                "rounds": spec.rounds,
                "split": index % spec.splits,
                "seed": one.seed,
                "cell": cell,
                **{name: summary[name] for name in _KEPT},
            }
        )
    return rows


def plain_rows(scenario: str, spec: RunSpec, summaries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of the plain baselines, which saw the data of a specification's repetitions."""
    return [
        {
            "scenario": scenario,
            "data": spec.data,
            "scheme": name,
            "policy": "",
            "fail": "",
            "devices": spec.devices,
            "split": index % spec.splits,
            "seed": spec.seed + index,
            "auroc": value,
        }
        for index, summary in enumerate(summaries)
        for name, value in summary["baselines"].items()
    ]


def units_of(rows: Sequence[Row], method: Method, **where: object) -> dict[Hashable, list[float]]:
    """Return a method's scores by data set and split, one per seed, in the order of the seeds."""
    units: dict[Hashable, list[tuple[int, float]]] = {}
    for row in rows:
        is_asked = all(row.get(name) == value for name, value in where.items())
        if is_asked and row["scheme"] == method.scheme and row["policy"] == method.policy:
            value = row.get(method.score)
            if value is not None:
                units.setdefault((row["data"], row["split"]), []).append((row["seed"], value))
    return {unit: [value for _, value in sorted(values)] for unit, values in sorted(units.items())}
