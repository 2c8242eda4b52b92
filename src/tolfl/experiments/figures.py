"""Figures of experiments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from tolfl.experiments.comparison import Comparison, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: score, marker, colour, how far below its line, and how the legend calls it
_MARKS = (
    ("auroc", "o", "C0", 0.0, "mean over devices"),
    ("auroc_best", "^", "C1", 0.18, "best single model (oracle)"),
    ("auroc_chosen", "s", "C2", -0.18, "model chosen without labels"),
    ("auroc_all_models", "D", "C3", 0.0, "all models together"),
)


def plot_comparison(comparison: Comparison) -> Figure:
    """Return one line per row with its scores; bars are standard deviations over seeds."""
    rows = comparison.rows
    figure = Figure(figsize=(7.5, 1.6 + 0.34 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for score, marker, colour, shift, label in _MARKS:
        points = [(place, row) for place, row in enumerate(rows) if _has(row, score)]
        if points:
            _draw(axes, points, score, shift, marker, colour, label)
    _mark_reference(axes, comparison)
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    axes.invert_yaxis()
    axes.set(xlabel="AUROC on the test set")
    axes.grid(axis="x", alpha=0.3)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    what = f"failures: {comparison.fail}" if comparison.fail else "nobody fails"
    n_seeds = len(comparison.seeds)
    seeds = f"seed {comparison.seeds[0]}" if n_seeds == 1 else f"{n_seeds} seeds"
    axes.set_title(f"{comparison.data}, {comparison.rounds} rounds, {seeds}; {what}", fontsize=10, loc="left")
    if axes.containers:  # else there is no test set, and no score to show
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return figure


def _has(row: Row, score: str) -> bool:
    """Tell whether a row has a score of its own; with one model all of them are one number."""
    found, mean = row.scores.get(score), row.scores["auroc"].mean
    if found is None or found.mean is None:
        return False
    return score == "auroc" or found.mean != mean


def _draw(
    axes: Axes, points: list[tuple[int, Row]], score: str, shift: float, marker: str, colour: str, label: str
) -> None:
    means = [row.scores[score].mean or 0.0 for _, row in points]
    spreads = [row.scores[score].std or 0.0 for _, row in points]
    places = [place + shift for place, _ in points]
    axes.errorbar(means, places, xerr=spreads, fmt=marker, color=colour, markersize=6, elinewidth=1.2, label=label)


def _mark_reference(axes: Axes, comparison: Comparison) -> None:
    if comparison.reference is None:
        return
    mean = comparison[comparison.reference].scores["auroc"].mean
    if mean is not None:
        axes.axvline(mean, color="C0", linewidth=0.8, linestyle=":")
