"""Arcsines by arithmetic alone are those of the library, to the last place or nearly."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tolfl.core.logarithm import arcsine


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=50))
def test_arcsines_are_off_by_two_units_in_the_last_place_at_most(values: list[float]) -> None:
    expected = np.arcsin(values)

    assert np.all(np.abs(arcsine(values) - expected) <= 2 * np.spacing(expected))
