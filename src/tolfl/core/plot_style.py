"""The style of all figures: colours for colour-blind readers, too, labels at their lines, bands, bare axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Okabe and Ito's palette: distinguished by everybody, in print too.
BLACK, BLUE, SKY, GREEN, ORANGE, VERMILION, PURPLE = (
    "#000000",
    "#0072B2",
    "#56B4E9",
    "#009E73",
    "#E69F00",
    "#D55E00",
    "#CC79A7",
)
#: For lines beside each other, in this order.
CYCLE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK)


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches, whose parts make room for each other."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (slow to import, and not everybody draws)

    return Figure(figsize=(width, height), layout="constrained")


def cycle_colour(number: int) -> str:
    """Return the colour of one of several lines."""
    return CYCLE[number % len(CYCLE)]


def label_ends(axes: Axes, room: float = 0.06) -> None:
    """Write the name of each line at its right end, in its colour; names that would overlap move apart.

    Parameters
    ----------
    room
        Of the height of the axes, what a name needs.
    """
    named = [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
    lines = [line for line in named if np.size(line.get_ydata())]
    low, high = axes.get_ylim()
    ends = sorted((float(np.asarray(line.get_ydata())[-1]), place) for place, line in enumerate(lines))
    height = -np.inf
    for value, place in ends:
        height = max((value - low) / (high - low), height + room)
        text = axes.annotate(
            str(lines[place].get_label()),
            (1.0, height),
            xytext=(6, 0),
            textcoords="offset points",
            xycoords="axes fraction",
            va="center",
            fontsize=9,
            color=lines[place].get_color(),
            annotation_clip=False,
        )
        text.set_in_layout(True)


def draw_band(
    axes: Axes,
    x: Sequence[float],
    curves: Sequence[Sequence[float]],
    colour: str,
    label: str,
    line: str = "-",
) -> None:
    """Draw the mean of curves (one per seed, all as long as `x`) and a band of one standard deviation around it."""
    values = np.array(curves, dtype=float)
    mean = values.mean(axis=0)
    axes.plot(x, mean, color=colour, label=label, linestyle=line, linewidth=1.6)
    if len(values) > 1:
        spread = values.std(axis=0, ddof=1)
        axes.fill_between(x, mean - spread, mean + spread, color=colour, alpha=0.18, linewidth=0)


def bare(axes: Axes) -> None:
    """Take away the frame where it says nothing, and let a grid lead the eye to the values."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25, linewidth=0.6)
    axes.tick_params(labelsize=8)
