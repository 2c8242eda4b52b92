"""The figure of a plan: expected AUROC by k for each policy, and what a round takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from tolfl.experiments.drawing import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, bare
from tolfl.experiments.planning.costs import UPLINKS, usual_clusters

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tolfl.experiments.planning.plan import Plan

#: Of each policy its marker, colour and name.
_POLICIES = {
    "elect": ("o", BLUE, "Tol-FL, elect"),
    "drop": ("s", ORANGE, "Tol-FL, drop"),
    "freeze": ("^", GREEN, "FL, freeze"),
    "isolate": ("v", VERMILION, "FL, isolate"),
}
_UPLINKS = {"serial": ("-", PURPLE), "parallel": ("--", SKY)}


def plot_plan(plan: Plan) -> Figure:
    """Return two panels over k, as wide as a column of text; a ring marks what is recommended."""
    figure = Figure(figsize=(3.6, 4.6), layout="constrained")
    worth, pace = figure.subplots(2, 1, sharex=True)
    _draw_aurocs(worth, plan)
    _draw_times(pace, plan)
    for axes in (worth, pace):
        bare(axes)
    ks = sorted({row.layout.clusters for row in plan.rows})
    pace.set_xscale("log")
    # On a logarithmic axis the labels of many k would run into each other at its upper end.
    marked = ks if len(ks) <= 8 else [k for k in ks if k in usual_clusters(max(ks))]
    pace.set_xticks(marked, [str(k) for k in marked])
    pace.xaxis.set_minor_locator(NullLocator())
    pace.set_xlabel(f"clusters k of {plan.question.n_devices} devices", fontsize=8)
    return figure


def _draw_aurocs(axes: Axes, plan: Plan) -> None:
    for policy, (marker, colour, label) in _POLICIES.items():
        rows = [row for row in plan.rows if row.layout.policy == policy]
        if rows:
            ks, values = [row.layout.clusters for row in rows], [row.expected_auroc for row in rows]
            axes.plot(ks, values, marker=marker, color=colour, markersize=4, linewidth=1.2, label=label)
    chosen = plan.recommended
    axes.plot(
        [chosen.layout.clusters],
        [chosen.expected_auroc],
        marker="o",
        markersize=11,
        markerfacecolor="none",
        markeredgecolor=BLACK,
        linestyle="none",
        label="recommended",
    )
    axes.margins(y=0.15)
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.set_ylabel("expected AUROC", fontsize=8)
    axes.legend(fontsize=7, frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.45, 1.0), columnspacing=0.8)


def _draw_times(axes: Axes, plan: Plan) -> None:
    by_k = {row.layout.clusters: row.round_s for row in plan.rows}
    for uplink in UPLINKS:
        line, colour = _UPLINKS[uplink]
        ks = sorted(by_k)
        values = [by_k[k][uplink] for k in ks]
        axes.plot(ks, values, line, marker="o", color=colour, markersize=4, linewidth=1.2, label=f"{uplink} uplinks")
    if plan.question.deadline_s is not None:
        axes.axhline(plan.question.deadline_s, color=BLACK, linewidth=0.8, linestyle=":", label="deadline")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("time per round, s", fontsize=8)
    axes.legend(fontsize=7, frameon=False)
