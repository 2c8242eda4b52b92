"""What the rows of the server figure say: a table, verdicts, and the curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tolfl.experiments.comparison import Statistic
from tolfl.experiments.drawing import BLUE, GREEN, ORANGE, PURPLE, VERMILION, bare, draw_band
from tolfl.experiments.report import ExperimentReport, Row, Table, Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Scheme and what follows the loss of the server; the paper's own curves first.
CURVES = (("fl", "isolate"), ("sbt", "elect"), ("tol-fl", "elect"), ("tol-fl", "drop"), ("fl", "freeze"))
_NAMES = {
    ("fl", "isolate"): "FL, each device alone",
    ("sbt", "elect"): "SBT",
    ("tol-fl", "elect"): "Tol-FL, elect",
    ("tol-fl", "drop"): "Tol-FL, drop",
    ("fl", "freeze"): "FL, training stops",
}
#: Colour, line, width; the paper's own curves are the thick ones.
_STYLES = {
    ("fl", "isolate"): (VERMILION, "-", 2.0),
    ("sbt", "elect"): (GREEN, "-", 2.0),
    ("tol-fl", "elect"): (BLUE, "--", 1.3),
    ("tol-fl", "drop"): (PURPLE, "-.", 1.3),
    ("fl", "freeze"): (ORANGE, ":", 1.4),
}


def report_of(rows: Sequence[Row]) -> ExperimentReport:
    """Return the report that rows lead to."""
    names = list(dict.fromkeys(row["data"] for row in rows))
    verdicts = [verdict for name in names for verdict in _verdicts([row for row in rows if row["data"] == name])]
    title = "Server failure: the loss of those who go on alone and of those who go on together"
    return ExperimentReport(
        "server-figure", title, rows, [_table(rows)], verdicts, {"server-figure": lambda: _plot(rows)}
    )


def _curves(rows: Sequence[Row], curve: tuple[str, str]) -> list[Row]:
    return [row for row in rows if (row["scheme"], row["policy"]) == curve]


def _last(rows: Sequence[Row], curve: tuple[str, str]) -> Statistic:
    return Statistic.of([row["losses"][-1] for row in _curves(rows, curve)])


def _at_failure(rows: Sequence[Row], curve: tuple[str, str]) -> Statistic:
    return Statistic.of([row["losses"][row["failed_after"] - 1] for row in _curves(rows, curve)])


def _table(rows: Sequence[Row]) -> Table:
    shown = []
    for name in dict.fromkeys(row["data"] for row in rows):
        of_data = [row for row in rows if row["data"] == name]
        sbt = _last(of_data, ("sbt", "elect"))
        for curve in CURVES:
            last = _last(of_data, curve)
            by_device = [loss for row in _curves(of_data, curve) for loss in row["last_losses_by_device"].values()]
            extremes = f"{min(by_device):.3f} to {max(by_device):.3f}"
            layout = f" (k = {of_data[0]['k']})" if curve[0] == "tol-fl" else ""
            cells = (name, _NAMES[curve] + layout, _number(_at_failure(of_data, curve)), _number(last), extremes)
            shown.append((*cells, _number(last.minus(sbt), "+.3f")))
    first = rows[0]
    n_seeds = len({row["seed"] for row in rows})
    notes = (
        f"Loss: mean of J over all typical training samples of all {first['n_devices']} devices, the lost one's "
        f"included, dropout off; mean ± standard deviation over {n_seeds} seeds. Alone: the mean over survivors.",
        "Device 0 is lost after half of the rounds: FL's server, and the head of a cluster of Tol-FL.",
    )
    columns = ("data", "curve", "loss at the failure", "loss in the end", "lowest to highest model", "end minus SBT's")
    return Table("Loss after the server is lost", columns, tuple(shown), notes)


def _number(statistic: Statistic, form: str = ".3f") -> str:
    if statistic.mean is None:
        return "-"
    spread = "" if statistic.std is None else f" ± {statistic.std:.3f}"
    return f"{statistic.mean:{form}}{spread}"


def _verdicts(rows: Sequence[Row]) -> list[Verdict]:
    name = rows[0]["data"]
    sbt, alone = _last(rows, ("sbt", "elect")), _last(rows, ("fl", "isolate"))
    frozen, elect, drop = (
        _last(rows, ("fl", "freeze")),
        _last(rows, ("tol-fl", "elect")),
        _last(rows, ("tol-fl", "drop")),
    )
    gone_on = sbt.minus(_at_failure(rows, ("sbt", "elect")))
    largest = max(abs(value or 0.0) for value in elect.minus(sbt).values)
    return [
        _below(f"{name}: together (SBT) the loss ends below that of devices alone", sbt.minus(alone)),
        _below(f"{name}: SBT goes on learning after the failure", gone_on),
        _below(f"{name}: Tol-FL (drop, the paper's rule) ends below devices alone", drop.minus(alone)),
        _below(f"{name}: Tol-FL (drop) ends below training that stops", drop.minus(frozen)),
        Verdict(
            f"{name}: Tol-FL (elect) loses what SBT loses, one device",
            largest == 0,
            f"largest difference of the losses in the end: {largest:g}",
        ),
    ]


def _below(claim: str, differences: Statistic) -> Verdict:
    """Return a verdict on a claim that must hold for every seed."""
    n_below = sum((value or 0.0) < 0 for value in differences.values)
    evidence = f"difference {_number(differences, '+.3f')}; {n_below} of {len(differences.values)} seeds"
    return Verdict(claim, n_below == len(differences.values), evidence)


def _plot(rows: Sequence[Row]) -> Figure:
    """Return one panel per data set."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (slow to import, and not everybody draws)

    names = list(dict.fromkeys(row["data"] for row in rows))
    figure = Figure(figsize=(3.5 * max(len(names), 1.4), 3.3), layout="constrained")
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    for axes, name in zip(panels, names, strict=True):
        of_data = [row for row in rows if row["data"] == name]
        _panel(axes, of_data)
        n_seeds = len({row["seed"] for row in of_data})
        axes.set_title(f"{name}, {n_seeds} seeds", fontsize=9)
    panels[0].set_ylabel("loss J, mean over typical samples", fontsize=9)
    marks, labels = panels[0].get_legend_handles_labels()
    figure.legend(marks, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8, columnspacing=1.2)
    return figure


def _panel(axes: Axes, rows: Sequence[Row]) -> None:
    failed_after, rounds = rows[0]["failed_after"], rows[0]["rounds"]
    shared = [row["losses"][:failed_after] for row in _curves(rows, CURVES[0])]
    draw_band(axes, range(1, failed_after + 1), shared, "0.35", "before: the same for all", width=1.4)
    for curve in CURVES:
        colour, line, width = _STYLES[curve]
        curves = [_padded(row["losses"], rounds)[failed_after - 1 :] for row in _curves(rows, curve)]
        # Five bands on one spot cannot be told apart; the table has the spread of the thin lines.
        is_paper = curve in CURVES[:2]
        draw_band(axes, range(failed_after, rounds + 1), curves, colour, _NAMES[curve], line, width, is_paper)
    axes.axvline(failed_after, color="0.5", linestyle=":", linewidth=1)
    axes.annotate(
        "server lost ", (failed_after, 0.98), xycoords=axes.get_xaxis_transform(), ha="right", va="top", fontsize=8
    )
    axes.set_xlabel("rounds done", fontsize=9)
    axes.locator_params(axis="x", integer=True)
    # The first rounds may be so far up that nothing else can be seen; they are not what the figure is about.
    later = [loss for row in rows for loss in row["losses"][failed_after // 5 :]]
    axes.set_ylim(top=min(axes.get_ylim()[1], 1.2 * max(later)))
    bare(axes)


def _padded(losses: Sequence[float], rounds: int) -> list[float]:
    """Return a curve to the end: a model that nobody trains stays what it is."""
    return [*losses, *[losses[-1]] * (rounds - len(losses))]
