"""Logarithms, exponentials and arcsines by arithmetic alone are those of the library, to the last place or nearly."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tolfl.core.logarithm import arcsine, exp, log


@given(st.lists(st.floats(2.0**-1074, 1.7e308), min_size=1, max_size=40))
@settings(max_examples=200)
def test_logarithms_are_off_by_one_unit_in_the_last_place_at_most(values: list[float]) -> None:
    right = np.array([math.log(value) for value in values])

    assert (np.abs(log(values) - right) <= 2 * np.spacing(np.abs(right))).all()


@given(st.floats(-700, 700))
def test_exponentials_are_those_of_the_library_nearly(value: float) -> None:
    assert float(exp(value)) == pytest.approx(math.exp(value), rel=1e-14)


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=50))
def test_arcsines_are_off_by_two_units_in_the_last_place_at_most(values: list[float]) -> None:
    expected = np.arcsin(values)

    assert np.all(np.abs(arcsine(values) - expected) <= 2 * np.spacing(expected))
