"""Figures from run records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tolfl.core.records import AnyRecord, Evaluated, FailureHappened, RoundClosed, RunStarted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Points = dict[int, float]


def plot_records(runs: Sequence[tuple[str, list[AnyRecord]]]) -> Figure:
    """Return a figure of the loss over rounds for each labelled run, and of the AUROC where it was evaluated.

    Rounds without a loss, as those of a detector from statistics, show how many devices they have. A run whose training
    stopped goes on as a dashed line at its last value.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415  (slow to import, and not everybody draws)

    has_auroc = any(isinstance(record, Evaluated) for _, records in runs for record in records)
    figure = Figure(figsize=(7, 5.5 if has_auroc else 3.6), layout="constrained")
    axes = figure.subplots(1 + has_auroc, 1, sharex=True, squeeze=False)[:, 0].tolist()
    has_loss = any(_loss(record) is not None for _, records in runs for record in records)
    lower = [_by_round(records, _loss if has_loss else _n_devices) for _, records in runs]
    aurocs = [_by_round(records, _auroc) for _, records in runs]
    last_round = max((max(points, default=0) for points in lower), default=0)
    for number, (label, _) in enumerate(runs):
        _draw(axes[-1], lower[number], last_round, label, f"C{number}")
        if has_auroc:
            _draw(axes[0], aurocs[number], last_round, label, f"C{number}")
    stages = [record.stages for _, records in runs for record in records if isinstance(record, RunStarted)]
    mark_stages(axes, stages[0] if stages else (), "0.35")
    _mark_failures(axes, runs)
    axes[-1].set(xlabel="round", ylabel="training loss" if has_loss else "devices in the round")
    if not has_loss:
        axes[-1].set_ylim(bottom=0)
    if has_auroc:
        axes[0].set(ylabel="AUROC on the test set")
    if 1 < len(runs) <= 10:
        axes[0].legend(frameon=False, fontsize=9)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    return figure


def has_curves(runs: Sequence[tuple[str, list[AnyRecord]]]) -> bool:
    """Tell whether any round of these runs has a loss or was scored."""
    return any(one is not None for _, records in runs for line in records for one in (_loss(line), _auroc(line)))


def mark_stages(axes: Sequence[Axes], stages: Sequence[tuple[str, int]], colour: str) -> None:
    """Name the stages of a run above the uppermost of its drawings, and part them by lines; one stage needs neither."""
    if len(stages) < 2:
        return
    n_rounds, first = sum(of for _, of in stages), 0
    axes[0].set_xlim(-0.5, n_rounds - 0.5)
    for place, (name, of) in enumerate(stages):
        if first:
            for axis in axes:
                axis.axvline(first - 0.5, color=colour, linewidth=0.6)
        # In two heights: stages of one round each stand close together.
        label = axes[0].annotate(
            name,
            (first - 0.4, 1.0),
            xytext=(0, 3 + 10 * (place % 2)),
            textcoords="offset points",
            xycoords=axes[0].get_xaxis_transform(),
            fontsize=8,
            color=colour,
            annotation_clip=False,
        )
        label.set_in_layout(True)
        first += of


def _loss(record: AnyRecord) -> float | None:
    return record.loss if isinstance(record, RoundClosed) else None


def _n_devices(record: AnyRecord) -> float | None:
    return len(record.included) if isinstance(record, RoundClosed) else None


def _auroc(record: AnyRecord) -> float | None:
    return record.auroc if isinstance(record, Evaluated) else None


def _by_round(records: list[AnyRecord], value_of: Callable[[AnyRecord], float | None]) -> Points:
    """Return one value per round: the mean where several devices closed a round of their own."""
    values: dict[int, list[float]] = {}
    for record in records:
        value = value_of(record)
        if value is not None and record.round is not None:
            values.setdefault(record.round, []).append(value)
    return {round_index: sum(several) / len(several) for round_index, several in sorted(values.items())}


def _draw(axis: Axes, points: Points, last_round: int, label: str, colour: str) -> None:
    if not points:
        return
    rounds, values = list(points), list(points.values())
    axis.plot(rounds, values, color=colour, label=label, linewidth=1.5)
    if rounds[-1] < last_round - 1:
        axis.plot([rounds[-1], last_round], [values[-1]] * 2, color=colour, linestyle="--", linewidth=1.2)


def _mark_failures(axes: Sequence[Axes], runs: Sequence[tuple[str, list[AnyRecord]]]) -> None:
    marks: dict[int, set[str]] = {}
    for _, records in runs:
        for record in records:
            if isinstance(record, FailureHappened):
                who = "" if record.device is None else f"device {record.device} "
                marks.setdefault(record.round or 0, set()).add(f"{who}{record.what}")
    for round_index, what in marks.items():
        for axis in axes:
            axis.axvline(round_index, color="0.5", linestyle=":", linewidth=1)
        if len(marks) <= 5:
            text = ", ".join(sorted(what)) if len(what) <= 2 else f"{len(what)} events"
            place = (round_index, 0.98)
            axes[-1].annotate(
                f" {text}", place, xycoords=axes[-1].get_xaxis_transform(), va="top", fontsize=8, color="0.35"
            )
