"""Figures of the questions beyond the paper: AUROC over what is varied, one line per method."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from tolfl.experiments.drawing import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, bare
from tolfl.experiments.report import Row
from tolfl.experiments.rows import Method, units_of
from tolfl.experiments.statistics import estimate

_STYLES = {
    ("tol-fl", "elect"): (BLUE, "o", "-"),
    ("tol-fl", "drop"): (SKY, "s", "--"),
    ("fl", "freeze"): (VERMILION, "^", "-"),
    ("fl", "isolate"): (ORANGE, "v", "--"),
    ("tol-fl", ""): (BLUE, "o", ":"),
    ("fl", ""): (VERMILION, "^", ":"),
}
_OTHERS = ((GREEN, "D", "-"), (PURPLE, "P", "-"), (BLACK, "X", "-"))


def plot_question(
    title: str, varied: str, rows: Sequence[Row], methods: Sequence[Method], is_scale: bool = True
) -> Figure:
    """Return a figure: means and their 95 % intervals over splits, at each value; joined on a scale."""
    values = list(dict.fromkeys(row["varied"] for row in rows))
    figure = Figure(figsize=(max(4.2, 1.6 + 0.5 * len(values)), 3.0), layout="constrained")
    axes = figure.subplots()
    n = len(methods)
    for index, method in enumerate(methods):
        colour, marker, line = _STYLES.get((method.scheme, method.policy), _OTHERS[index % len(_OTHERS)])
        points = []
        for place, value in enumerate(values):
            units = units_of([row for row in rows if row["varied"] == value], method)
            if units:
                points.append((place + (0.06 if is_scale else 0.12) * (index - (n - 1) / 2), estimate(units)))
        if points:
            x, found = zip(*points, strict=True)
            errors = [[max(0.0, e.mean - e.low) for e in found], [max(0.0, e.high - e.mean) for e in found]]
            means = [e.mean for e in found]
            axes.errorbar(
                x,
                means,
                yerr=errors,
                color=colour,
                marker=marker,
                linestyle=line if is_scale else "none",
                markersize=4.5,
                linewidth=1.2,
                label=method.label,
            )
    axes.set_xticks(range(len(values)), values)
    axes.set_xlabel(varied, fontsize=9)
    axes.set_ylabel("AUROC", fontsize=9)
    axes.set_title(title, fontsize=10, loc="left")
    bare(axes)
    figure.legend(loc="outside lower center", ncols=min(4, n), frameon=False, fontsize=8)
    return figure
