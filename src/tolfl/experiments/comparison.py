"""Schemes side by side: rows of scores over paired seeds, as data, as JSON and as a figure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: What the models of a run are worth, in the order of the table's columns, and what each number is.
SCORES = {
    "auroc": "mean over devices of the model that each uses",
    "auroc_best": "the best single model, chosen on the test set: an oracle",
    "auroc_chosen": "the single model that held-back typical samples would choose",
    "auroc_all_models": "all models together: each sample gets the least of their scores",
}
_COUNTS = ("devices_in_last_round", "devices_lost_with_head", "clusters_in_use", "bytes", "stall_s", "train_loss")

Summary = Mapping[str, Any]


@dataclass(frozen=True)
class Statistic:
    """A number over seeds: its mean, its spread (standard deviation, ddof 1) and each value, None where there is none.

    >>> Statistic.of([0.5, 0.7, None]).mean
    0.6
    """

    mean: float | None
    std: float | None
    values: tuple[float | None, ...]

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Statistic:
        """Return the statistic of one value per seed."""
        known = [value for value in values if value is not None]
        mean = statistics.fmean(known) if known else None
        return cls(mean, statistics.stdev(known) if len(known) > 1 else None, tuple(values))

    def minus(self, other: Statistic) -> Statistic:
        """Return the differences, seed by seed."""
        pairs = zip(self.values, other.values, strict=True)
        return Statistic.of([None if a is None or b is None else a - b for a, b in pairs])


@dataclass(frozen=True)
class Row:
    """One scheme under one policy, or a plain baseline."""

    label: str
    scheme: str
    policy: str
    scores: dict[str, Statistic]
    differences: dict[str, Statistic]  #: to the reference row's `auroc`, seed by seed; empty without a reference
    counts: dict[str, float | None]  #: means over seeds
    is_plain: bool = False


@dataclass(frozen=True)
class Comparison:
    """A finished comparison."""

    data: str
    fail: str
    rounds: int
    seeds: tuple[int, ...]
    reference: str | None  #: the label of the row that the others are compared with
    rows: tuple[Row, ...]
    chosen_by: str | None

    def __getitem__(self, label: str) -> Row:
        """Return the row with a label."""
        for row in self.rows:
            if row.label == label:
                return row
        raise KeyError(f"no row {label!r}; there are {', '.join(row.label for row in self.rows)}")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as `--format json` shows them."""
        return {
            "data": self.data,
            "fail": self.fail,
            "rounds": self.rounds,
            "seeds": list(self.seeds),
            "reference": self.reference,
            "chosen_by": self.chosen_by,
            "scores": SCORES,
            "rows": [_row_fields(row) for row in self.rows],
        }

    def plot(self) -> Figure:
        """Return a figure: one line per row, its scores as points with their spread over seeds."""
        from tolfl.experiments.figures import plot_comparison  # noqa: PLC0415  (matplotlib is slow to import)

        return plot_comparison(self)


def _row_fields(row: Row) -> dict[str, Any]:
    def fields(values: Mapping[str, Statistic]) -> dict[str, Any]:
        return {name: {"mean": s.mean, "std": s.std, "values": list(s.values)} for name, s in values.items()}

    return {
        "label": row.label,
        "scheme": row.scheme,
        "policy": row.policy,
        "is_plain": row.is_plain,
        **fields(row.scores),
        "difference_to_reference": fields(row.differences),
        **row.counts,
    }


def compared(
    runs: Sequence[tuple[str, str, str, Sequence[Summary]]], reference_scheme: str = "tol-fl"
) -> tuple[tuple[Row, ...], str | None]:
    """Return the rows of runs (label, scheme, policy, one summary per seed) and which of them is the reference.

    The reference is the first row of Tol-FL; the plain baselines follow as rows of their own.
    """
    scores = [{name: Statistic.of([s[name] for s in summaries]) for name in SCORES} for *_, summaries in runs]
    place = next((place for place, (_, scheme, *_) in enumerate(runs) if scheme == reference_scheme), None)
    reference = None if place is None else scores[place]["auroc"]
    rows = [
        Row(label, scheme, policy, of_run, _differences(of_run, reference), _counts(summaries))
        for (label, scheme, policy, summaries), of_run in zip(runs, scores, strict=True)
    ]
    baselines = [summary["baselines"] for summary in runs[0][3]]
    for name in baselines[0]:
        plain = {"auroc": Statistic.of([of_seed[name] for of_seed in baselines])}
        rows.append(Row(f"{name} (plain)", name, "", plain, _differences(plain, reference), {}, is_plain=True))
    return tuple(rows), None if place is None else runs[place][0]


def _differences(scores: Mapping[str, Statistic], reference: Statistic | None) -> dict[str, Statistic]:
    return {} if reference is None else {name: score.minus(reference) for name, score in scores.items()}


def _counts(summaries: Sequence[Summary]) -> dict[str, float | None]:
    return {name: Statistic.of([summary[name] for summary in summaries]).mean for name in _COUNTS}
