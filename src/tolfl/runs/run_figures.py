"""Figures of a run: loss and AUROC over rounds, and the fleet with its clusters, heads and failed devices."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING

from tolfl.core.plot_style import cycle_colour, label_ends, new_figure
from tolfl.core.records import AnyRecord, Evaluated, RoundClosed, RunStarted
from tolfl.runs.descriptions import short_label
from tolfl.runs.failure_history import DeviceState, FailureHistory

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LabelledRecords = Sequence[tuple[str, Sequence[AnyRecord]]]
Points = dict[int, float]  #: by round
_AUROC, _LOSS, _DEVICES = "AUROC on the test set", "training loss", "devices in the round"
_N_METRICS = 6  #: more than this are in the records only
_N_LABELS = 6  #: more failures than this are lines without words
#: Colours of a report on a light page; its style sheet has others for a dark one under the same names.
COLOURS = {
    "ink": "#1c2127",
    "soft": "#56606b",
    "line": "#cfd6dd",
    "page": "#fefefe",
    "panel": "#f3f5f8",
    "accent": "#1a5fb3",
    "danger": "#b3261f",
    "warn": "#8a5300",
}


# -- curves -----------------------------------------------------------------------------------------------------


def has_curves(runs: LabelledRecords) -> bool:
    """Return whether any round of these runs has a loss, was scored, or has metrics of its learner."""
    return _drawn([_curves(records) for _, records in runs]) != [_DEVICES]


def plot_curves(runs: LabelledRecords, beside: LabelledRecords = (), one_colour: str = "") -> Figure:
    """Return a figure of the loss over rounds for each labelled run, and of the AUROC where it was evaluated.

    Rounds without a loss, as those of a detector from statistics, show how many devices they have. A run whose training
    stopped goes on as a dashed line at its last value. `beside`: the same runs without failures, dashed.
    """
    everything = [records for _, records in [*runs, *beside]]
    curves = [_curves(records) for records in everything]
    names = _drawn(curves)
    figure = new_figure(7.5, 1.2 + 2.2 * len(names))
    axes = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0].tolist()
    last_round = max((round_index for one in curves for round_index in one.get(_DEVICES, ())), default=0)
    for axis, name in zip(axes, names, strict=True):
        for number, (label, _) in enumerate(beside):
            points = curves[len(runs) + number].get(name, {})
            _draw(axis, points, last_round, "_" if number else label, COLOURS["soft"], "--")
        for number, (label, _) in enumerate(runs):
            shown = "_" if one_colour and number else label
            _draw(axis, curves[number].get(name, {}), last_round, shown, one_colour or cycle_colour(number), "-")
        axis.set_ylabel(name)
        if name == _DEVICES:
            axis.set_ylim(bottom=0)
        _style(axis)
    _mark_stages(axes, next((line.stages for one in everything for line in one if isinstance(line, RunStarted)), ()))
    _mark_failures(axes, runs)
    axes[-1].set_xlabel("round")
    if beside or (1 < len(runs) <= 10 and not one_colour):
        label_ends(axes[0])
    return figure


def curves_svg(runs: LabelledRecords, beside: LabelledRecords = ()) -> str:
    """Return the curves of a run, or of its repetitions, as SVG with named colours."""
    import matplotlib as mpl  # noqa: PLC0415

    # Text stays text, that of a record is no formula, and the same run gives the same file.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "tolfl-report", "text.parse_math": False}):
        figure = plot_curves(runs, beside, one_colour=COLOURS["accent"])
        figure.patch.set_visible(False)
        target = io.StringIO()
        figure.savefig(target, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    svg = target.getvalue()
    for name, colour in COLOURS.items():
        svg = svg.replace(colour, f"var(--{name})")
    # The drawing alone: without a prologue, and without unused identifiers.
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg[svg.index("<svg") :]).replace("xlink:href", "href")
    svg = re.sub(r' (width|height)="[^"]*pt"', "", svg, count=2)
    return svg.replace("<svg ", '<svg style="width: 46rem" ', 1).strip()


def as_file(svg: str) -> str:
    """Return a drawing with names of colours as a file of its own, for a light page.

    >>> as_file('<svg viewBox="0 0 1 1"><path style="fill: var(--ink)"/></svg>')
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"><path style="fill: #1c2127"/></svg>'
    """
    coloured = re.sub(r"var\(--(\w+)\)", lambda found: COLOURS[found[1]], svg)
    return coloured.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)


def _mark_stages(axes: Sequence[Axes], stages: Sequence[tuple[str, int]]) -> None:
    """Name the stages of a run above the uppermost of its drawings, and part them by lines; one stage needs neither."""
    if len(stages) < 2 or len({name for name, _ in stages}) < len(stages):  # stages that take turns
        return
    n_rounds, first, colour = sum(of for _, of in stages), 0, COLOURS["soft"]
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


def _curves(records: Sequence[AnyRecord]) -> dict[str, Points]:
    """Return what the rounds have, by name: the mean where several devices closed a round of their own."""
    values: dict[str, dict[int, list[float]]] = {}
    for record in records:
        for name, value in _values(record):
            if value is not None and record.round is not None:
                values.setdefault(name, {}).setdefault(record.round, []).append(value)
    return {name: {index: fmean(rounds[index]) for index in sorted(rounds)} for name, rounds in values.items()}


def _values(record: AnyRecord) -> Iterator[tuple[str, float | None]]:
    match record:
        case Evaluated():
            yield _AUROC, record.auroc
        case RoundClosed():
            yield _LOSS, record.loss
            yield _DEVICES, len(record.included)
            yield from record.metrics.items()


def _drawn(curves: Sequence[Mapping[str, Points]]) -> list[str]:
    """Return what is drawn: few metrics of a learner fit a page, and one that is the loss is there already."""
    loss = [one.get(_LOSS) for one in curves]
    names = dict.fromkeys(name for one in curves for name in one if name not in {_AUROC, _LOSS, _DEVICES})
    metrics = [name for name in names if [one.get(name) for one in curves] != loss]
    return [name for name in (_AUROC, _LOSS) if any(name in one for one in curves)] + metrics[:_N_METRICS] or [_DEVICES]


def _draw(axis: Axes, points: Points, last_round: int, label: str, colour: str, style: str) -> None:
    if not points:
        return
    rounds, values = list(points), list(points.values())
    marker = "o" if len(points) == 1 else ""
    axis.plot(rounds, values, color=colour, label=label, linewidth=1.6, linestyle=style, marker=marker)
    if rounds[-1] < last_round - 1:
        axis.plot([rounds[-1], last_round], [values[-1]] * 2, color=colour, linestyle=":", linewidth=1.2)


def _style(axis: Axes) -> None:
    axis.patch.set_visible(False)
    axis.grid(color=COLOURS["line"], linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(COLOURS["soft"])
    axis.tick_params(colors=COLOURS["soft"])
    axis.xaxis.label.set_color(COLOURS["ink"])
    axis.yaxis.label.set_color(COLOURS["ink"])
    axis.locator_params(axis="x", integer=True)


def _mark_failures(axes: Sequence[Axes], runs: LabelledRecords) -> None:
    marks: dict[int, str] = {}
    for _, records in runs:
        for incident in FailureHistory.of(records).incidents:
            text = short_label(incident)
            marks[incident.round] = text if marks.get(incident.round, text) == text else "several failures"
    for place, (round_index, text) in enumerate(sorted(marks.items())):
        for axis in axes:
            # Between the last round that was closed before and the first one after.
            axis.axvline(round_index - 0.5, color=COLOURS["danger"], linestyle=":", linewidth=1.2)
        if len(marks) <= _N_LABELS:
            is_late = round_index > sum(axes[-1].get_xlim()) / 2
            label = axes[-1].annotate(
                _in_every_font(text),
                (round_index - 0.5, 0.97 - 0.1 * place),
                xytext=(-4 if is_late else 4, 0),
                textcoords="offset points",
                xycoords=axes[-1].get_xaxis_transform(),
                ha="right" if is_late else "left",
                va="top",
                fontsize=9,
                color=COLOURS["danger"],
            )
            label.set_in_layout(False)


def _in_every_font(text: str) -> str:
    """Return what every font has: a missing glyph is a warning, and a tab is one."""
    shown = " ".join(text.split()).encode("ascii", "replace").decode()
    shown = "".join(one if one.isprintable() else "?" for one in shown)
    return shown if len(shown) <= 30 else shown[:27] + "..."


# -- the fleet --------------------------------------------------------------------------------------------------

_GAP = 22.0
_WIDTH = 660.0  #: boxes that do not fit beside each other go on below
#: Of a device by its state: fill, outline, text, pattern of the outline.
_LOOKS = {
    "trains": ("page", "accent", "ink", ""),
    "alone": ("page", "warn", "ink", ""),
    "out": ("page", "soft", "soft", "stroke-dasharray: 3 3"),
    "frozen": ("panel", "soft", "soft", "stroke-dasharray: 1 3"),
    "dead": ("page", "danger", "ink", ""),
}
Place = tuple[float, float]


def fleet_svg(clusters: Sequence[Sequence[int]], states: Mapping[int, DeviceState]) -> str:
    """Return the fleet as SVG with named colours: clusters in boxes, heads on top, the chain between them."""
    has_labels = sum(map(len, clusters)) <= 60  # in a larger fleet ids would not be readable
    cell, radius = (40.0, 14.0) if has_labels else (15.0, 5.5)
    boxes: list[str] = []
    places: dict[int, Place] = {}
    chain: list[Place] = []
    x, y, row_height, width = 0.0, 0.0, 0.0, 0.0
    for cluster in clusters:
        head = next((device for device in cluster if states[device].is_head), None)
        others = [device for device in cluster if device != head]
        n_columns = max(1, min(len(others), math.ceil(math.sqrt(2 * len(others))), 40))
        box_width = n_columns * cell + 12
        box_height = (math.ceil(len(others) / n_columns) + (head is not None)) * cell + 12
        if x and x + box_width > _WIDTH:
            x, y, row_height = 0.0, y + row_height + _GAP, 0.0
        boxes.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{box_width:.1f}" height="{box_height:.1f}" rx="8" '
            'style="fill: none; stroke: var(--line)"/>'
        )
        top = x + box_width / 2, y + 6 + cell / 2
        if head is not None:
            places[head] = top
            chain.append(top)
        for index, device in enumerate(others):
            row = index // n_columns + (head is not None)
            places[device] = x + 6 + (index % n_columns + 0.5) * cell, y + 6 + (row + 0.5) * cell
            if head is not None and states[device].state == "trains" and has_labels:
                boxes.append(_line(top, places[device], "stroke: var(--line); stroke-width: 1.5"))
        x, row_height = x + box_width + _GAP, max(row_height, box_height)
        width = max(width, x - _GAP)
    tip = 9 if has_labels else 5
    for one, other in pairwise(chain):
        # A link to the next row passes over others: it steps back behind them.
        weight = "stroke-width: 2" if one[1] == other[1] else "stroke-width: 1; stroke-dasharray: 4 4; opacity: 0.6"
        boxes.append(_line(one, other, f"stroke: var(--accent); {weight}; marker-end: url(#arrow{tip})"))
    devices = [_device(one, place, states[one], radius, has_labels) for one, place in places.items()]
    view = f"-4 -4 {width + 8:.0f} {y + row_height + 8:.0f}"
    # An arrow ends where the circle of the next head begins.
    arrow = (
        f'<marker id="arrow{tip}" orient="auto" markerUnits="userSpaceOnUse" markerWidth="{tip}" markerHeight="{tip}" '
        f'viewBox="0 0 9 9" refX="{9 + 9 * (radius + 1) / tip:.1f}" refY="4.5">'
        '<path d="M0,0 L9,4.5 L0,9 Z" style="fill: var(--accent)"/></marker>'
    )
    # The chain passes over the boxes, and devices stand on top of all.
    return (
        f'<svg viewBox="{view}" style="width: {width + 8:.0f}px" font-family="system-ui, sans-serif" '
        f'font-size="12" text-anchor="middle">{arrow}'
        f"{''.join([*boxes, *devices])}</svg>"
    )


def _line(start: Place, end: Place, style: str) -> str:
    (x1, y1), (x2, y2) = start, end
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" style="{style}"/>'


def _device(device: int, place: Place, state: DeviceState, radius: float, has_labels: bool) -> str:
    fill, stroke, text, dash = _LOOKS[state.state]
    if state.is_head and state.state == "trains":
        fill, text = "accent", "page"
    style = f"fill: var(--{fill}); stroke: var(--{stroke}); stroke-width: 1.6; {dash}"
    role = "head" if state.is_head else "member"
    parts = [f"<title>device {device}: {role}, {state.state}</title>", f'<circle r="{radius}" style="{style}"/>']
    if state.is_new:
        parts.append(f'<circle r="{radius + 4}" style="fill: none; stroke: var(--accent); stroke-width: 2"/>')
    if has_labels:
        parts.append(f'<text y="4" style="fill: var(--{text})">{device}</text>')
    if state.state == "dead":
        reach = radius * 0.95
        # Thin where there is an id to be read through it.
        cross = f"stroke: var(--danger); stroke-width: {1 if has_labels else 2}; opacity: 0.75"
        parts += [_line((-reach, -reach), (reach, reach), cross), _line((-reach, reach), (reach, -reach), cross)]
    return f'<g transform="translate({place[0]:.1f} {place[1]:.1f})">{"".join(parts)}</g>'
