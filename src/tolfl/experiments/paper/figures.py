"""The paper's tables as figures: one panel per data set, our scores beside the printed ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from tolfl.experiments.drawing import BLACK, BLUE, GREEN, ORANGE, SKY, VERMILION
from tolfl.experiments.paper.printed import printed_auroc
from tolfl.experiments.paper.studies import STUDIES
from tolfl.experiments.report import Row
from tolfl.experiments.rows import Method, units_of
from tolfl.experiments.statistics import estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TITLES = {"clean": "nobody fails", "client": "a client fails half way", "server": "a server fails half way"}


def plot_scenario(scenario: str, rows: Sequence[Row], methods: Sequence[Method], names: Sequence[str]) -> Figure:
    """Return one panel per data set: means with their 95 % interval over splits, and the paper's values."""
    shown = [method for method in methods if method.score != "auroc_chosen"]
    figure = Figure(figsize=(2.2 + 1.7 * len(names), 1.3 + 0.23 * len(shown)), layout="constrained")
    panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for axes, name in zip(panels, names, strict=True):
        _panel(axes, scenario, [row for row in rows if row["data"] == name], shown, name)
    panels[0].set_yticks(range(len(shown)), [method.label for method in shown], fontsize=8)
    panels[0].invert_yaxis()
    figure.suptitle(f"AUROC, {_TITLES[scenario]}", fontsize=10)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(3, len(names)), frameon=False, fontsize=8)
    return figure


def _panel(axes: Axes, scenario: str, rows: Sequence[Row], methods: Sequence[Method], name: str) -> None:
    places, means, errors, colours, printed = [], [], [], [], []
    for place, method in enumerate(methods):
        units = units_of(rows, method)
        if units:
            found = estimate(units)
            places.append(place)
            means.append(found.mean)
            errors.append((found.mean - found.low, found.high - found.mean))
            colours.append(_colour(method))
        value = printed_auroc(scenario, name, method.scheme, method.policy, method.score)
        if value is not None:
            printed.append((value[0], place))
    label = "this project, 95 % interval over splits"
    for place, mean, error, colour in zip(places, means, errors, colours, strict=True):
        axes.errorbar(
            [mean],
            [place],
            xerr=[[max(0, error[0])], [max(0, error[1])]],
            fmt="o",
            color=colour,
            markersize=4.5,
            elinewidth=1.3,
            label=label,
        )
        label = "_"
    if printed:
        x, y = zip(*printed, strict=True)
        axes.plot(x, y, "|", color=BLACK, markersize=9, markeredgewidth=1.4, label="the paper's mean")
    axes.axvline(0.5, color="0.6", linewidth=0.8, linestyle=":", label="no better than guessing")
    axes.set_title(STUDIES[name].shown_as, fontsize=9)
    axes.grid(axis="x", alpha=0.25, linewidth=0.6)
    axes.grid(axis="y", alpha=0.12, linewidth=0.6)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8)
    axes.set_xlabel("AUROC", fontsize=8)


def _colour(method: Method) -> str:
    if method.scheme == "tol-fl":
        return BLUE
    if method.scheme == "fl":
        return VERMILION
    if method.scheme == "batch":
        return GREEN
    if method.score == "auroc_all_models":
        return ORANGE
    return SKY if method.score == "auroc_best" else "0.45"
