"""One family: every error is a `TolFLError` and the built-in that a caller would expect, and says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tolfl.core import errors
from tolfl.core.errors import (
    DataError,
    DivergedError,
    PlanError,
    RunDirectoryError,
    SpecError,
    TolFLError,
    UnknownNameError,
)


@pytest.mark.parametrize(
    ("error", "built_in"),
    [
        (SpecError("x"), ValueError),
        (UnknownNameError("scheme", "x", ["a"]), ValueError),
        (PlanError("x", "y"), ValueError),
        (DataError("x"), ValueError),
        (DivergedError.of_loss(3, 7), ArithmeticError),
        (RunDirectoryError(Path("runs/a"), "is full"), OSError),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_is_caught_by_its_family_and_by_its_built_in(error: TolFLError, built_in: type[Exception]) -> None:
    assert isinstance(error, TolFLError)
    assert isinstance(error, built_in)
    assert len(str(error).splitlines()) == 1


def test_no_error_stands_outside_the_family() -> None:
    found = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]

    assert len(found) > 7
    assert all(issubclass(error, TolFLError) for error in found)
    assert all(error.__doc__ for error in found)


def test_a_diverged_device_is_named_with_what_to_do() -> None:
    error = DivergedError.of_loss(device=3, round_index=7)

    assert (error.device, error.round_index) == (3, 7)
    assert "device 3 in round 7" in str(error)
    assert "use a smaller step (--lr" in str(error)


def test_a_model_that_diverged_is_named_by_its_round() -> None:
    error = DivergedError.of_model(round_index=7)

    assert (error.device, error.round_index) == (None, 7)
    assert str(error).startswith("the model after round 7 is not finite: training diverged; use a smaller step")


def test_a_run_directory_is_named() -> None:
    error = RunDirectoryError(Path("runs/a"), "is full")

    assert str(error) == "run directory runs/a: is full"
    assert (error.path, error.problem) == (Path("runs/a"), "is full")
