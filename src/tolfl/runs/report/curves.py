"""Loss and AUROC over rounds as a drawing for a report: every repetition, the undisturbed run, failures marked."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tolfl.core.records import AnyRecord, Evaluated, RoundClosed
from tolfl.runs.plots import mark_stages
from tolfl.runs.report.colours import LIGHT, named

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Points = dict[int, float]
_N_LABELS = 6  #: more failures than this are lines without words


@dataclass(frozen=True)
class Curves:
    """What one run has to draw."""

    loss: Points
    auroc: Points

    @classmethod
    def of(cls, records: Sequence[AnyRecord]) -> Curves:
        """Return one value per round: the mean where several devices closed a round of their own."""
        losses: dict[int, list[float]] = {}
        aurocs: dict[int, list[float]] = {}
        for line in records:
            if isinstance(line, RoundClosed) and line.loss is not None:
                losses.setdefault(line.round or 0, []).append(line.loss)
            elif isinstance(line, Evaluated) and line.auroc is not None:
                aurocs.setdefault(line.round or 0, []).append(line.auroc)
        return cls(_means(losses), _means(aurocs))


def _means(values: dict[int, list[float]]) -> Points:
    return {index: sum(several) / len(several) for index, several in sorted(values.items())}


def draw_curves(
    runs: Sequence[Curves],
    undisturbed: Sequence[Curves],
    marks: dict[int, str],
    stages: Sequence[tuple[str, int]] = (),
) -> str:
    """Return the drawing as SVG with named colours; `marks` are failures by round, in words.

    A value that no round has is not drawn.
    """
    import matplotlib as mpl  # noqa: PLC0415  (slow to import, and not everybody draws)
    from matplotlib.figure import Figure  # noqa: PLC0415

    kinds = [what for what in ("auroc", "loss") if any(getattr(curves, what) for curves in runs)] or ["loss"]
    # Text stays text, that of a record is no formula, and the same run gives the same file.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "tolfl-report", "text.parse_math": False}):
        figure = Figure(figsize=(8, 1 + 2 * len(kinds)), layout="constrained")
        figure.patch.set_visible(False)
        axes = figure.subplots(len(kinds), 1, sharex=True, squeeze=False)[:, 0].tolist()
        for axis, what in zip(axes, kinds, strict=True):
            _draw(axis, [getattr(one, what) for one in undisturbed], LIGHT["soft"], "--", "undisturbed")
            _draw(axis, [getattr(one, what) for one in runs], LIGHT["accent"], "-", "this run")
            axis.set_ylabel("AUROC on the test set" if what == "auroc" else "training loss")
            _style(axis)
        mark_stages(axes, stages, LIGHT["soft"])
        _mark(axes, marks)
        axes[-1].set_xlabel("round")
        if undisturbed:
            axes[0].legend(frameon=False, labelcolor=LIGHT["ink"], loc="best")
        target = io.StringIO()
        figure.savefig(target, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return named(_inline(target.getvalue()))


def _draw(axis: Axes, several: Sequence[Points], colour: str, style: str, label: str) -> None:
    for number, points in enumerate(several):
        if points:
            width, marker = (1.8 if len(several) == 1 else 1.0), ("o" if len(points) == 1 else "")
            line = axis.plot(
                list(points), list(points.values()), color=colour, linestyle=style, linewidth=width, marker=marker
            )
            line[0].set_label(label if number == 0 else "_")


def _style(axis: Axes) -> None:
    axis.patch.set_visible(False)
    axis.grid(color=LIGHT["line"], linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(LIGHT["soft"])
    axis.tick_params(colors=LIGHT["soft"])
    for label in (axis.xaxis.label, axis.yaxis.label):
        label.set_color(LIGHT["ink"])
    axis.locator_params(axis="x", integer=True)


def _mark(axes: Sequence[Axes], marks: dict[int, str]) -> None:
    for place, (round_index, text) in enumerate(sorted(marks.items())):
        for axis in axes:
            # Between the last round that was closed before and the first one after.
            axis.axvline(round_index - 0.5, color=LIGHT["danger"], linestyle=":", linewidth=1.2)
        if len(marks) <= _N_LABELS:
            # Only what every font has: a missing glyph is a warning, and a tab is one.
            shown = " ".join(text.split()).encode("ascii", "replace").decode()
            shown = "".join(one if one.isprintable() else "?" for one in shown)
            is_late = round_index > sum(axes[-1].get_xlim()) / 2
            label = axes[-1].annotate(
                shown if len(shown) <= 30 else shown[:27] + "...",
                (round_index - 0.5, 0.97 - 0.1 * place),
                xytext=(-4 if is_late else 4, 0),
                textcoords="offset points",
                xycoords=axes[-1].get_xaxis_transform(),
                ha="right" if is_late else "left",
                va="top",
                fontsize=9,
                color=LIGHT["danger"],
            )
            label.set_in_layout(False)


def _inline(svg: str) -> str:
    """Return the drawing alone: without a prologue, and without names of places that nobody needs to visit."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r' xmlns(:xlink)?="[^"]*"', "", body)
    body = body.replace("xlink:href", "href")
    return (
        re.sub(r' (width|height)="[^"]*pt"', "", body, count=2)
        .replace("<svg ", '<svg style="width: 46rem" ', 1)
        .strip()
    )
