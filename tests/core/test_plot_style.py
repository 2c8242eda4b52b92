"""What all figures have in common."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from tolfl.core.plot_style import CYCLE, cycle_colour, label_ends


@given(st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=6))
def test_names_at_the_ends_of_lines_never_overlap(ends: list[float]) -> None:
    axes = Figure().subplots()
    for number, end in enumerate(ends):
        axes.plot([0, 1], [0.0, end], label=f"line {number}", color=cycle_colour(number))
    label_ends(axes, room=0.1)

    heights = sorted(text.xy[1] for text in axes.texts if isinstance(text, Annotation))
    assert len(heights) == len(ends)
    assert all(upper - lower > 0.0999 for lower, upper in pairwise(heights))
    assert {text.get_text(): text.get_color() for text in axes.texts} == {
        f"line {number}": CYCLE[number] for number in range(len(ends))
    }
