"""Liars as data: the grammar, its errors, and what a lie does to a contribution."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tolfl.core.byzantine import Liars, LiarsError, Lie
from tolfl.core.contribution import GLOBAL, Contribution
from tolfl.core.errors import SpecError
from tolfl.core.spec import RunSpec

TRUTH = Contribution.of_device(3, 4, {GLOBAL: np.array([1.0, -2.0], dtype=np.float32)}, loss=0.5)


@pytest.mark.parametrize(
    ("text", "lies"),
    [
        ("", {}),
        ("3:flip", {3: Lie(-1.0)}),
        (" 3:scale=-10 ; 5 : flip,samples=7 ;", {3: Lie(-10.0), 5: Lie(-1.0, 7)}),
        ("0,9:scale=0", {0: Lie(0.0), 9: Lie(0.0)}),
        ("7:samples=1000000", {7: Lie(1.0, 1_000_000)}),
    ],
)
def test_liars_are_read_from_text(text: str, lies: dict[int, Lie]) -> None:
    assert Liars.parse(text, n_devices=10).lies == lies


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("3", "say who lies and how"),
        ("3:shout", "no lie 'shout'; use flip, scale=FACTOR or samples=COUNT"),
        ("3:", "no lie ''"),
        ("3:flip=2", "no lie 'flip=2'"),
        ("3:scale", "no lie 'scale'"),
        ("three:flip", "'three' is not a device id"),
        ("-1:flip", "'-1' is not a device id"),
        ("10:flip", "there is no device 10; ids go from 0 to 9"),
        ("3:flip; 3:samples=4", "device 3 is named twice"),
        ("3,3:flip", "device 3 is named twice"),
        ("3:flip,scale=2", "two lies about one thing"),
        ("3:scale=ten", "factor 'ten'"),
        ("3:scale=nan", "factor 'nan'"),
        ("3:scale=1e9", "use a number from -1e.06 to 1e.06"),
        ("3:samples=0", "use a whole number from 1"),
        ("3:samples=1.5", "use a whole number from 1"),
    ],
)
def test_what_cannot_be_read_is_named_with_what_to_do(text: str, problem: str) -> None:
    with pytest.raises(LiarsError, match=problem):
        RunSpec(liars=text).check()


@given(st.text("0123456789:,;=-. fliscalemp"))
def test_any_text_is_read_or_refused_with_a_sentence(text: str) -> None:
    try:
        liars = Liars.parse(text, n_devices=5)
    except SpecError as error:
        assert str(error).startswith("liars ")  # noqa: PT017  (reading it is as good)
    else:
        assert set(liars.lies) <= set(range(5))


def test_a_liar_scales_its_update_and_claims_other_counts() -> None:
    (told,) = Liars.parse("3:scale=-10,samples=1000", n_devices=4).told([TRUTH])

    part = told.parts[GLOBAL]
    assert (told.n_samples, part.n_samples, part.weight, part.n_trained) == (1000, 1000, 1000, 1000)
    np.testing.assert_array_equal(part.vector, np.array([-10.0, 20.0], dtype=np.float32))
    assert part.vector.dtype == np.float32
    assert (told.included, told.loss) == (TRUTH.included, TRUTH.loss)


def test_who_does_not_lie_says_what_it_found() -> None:
    liars = Liars.parse("2:flip,samples=99", n_devices=4)

    assert liars.told([TRUTH])[0] is TRUTH
    assert liars.claimed(3, 4) == 4
    assert liars.claimed(2, 4) == 99


def test_who_has_no_samples_has_nothing_to_lie_about() -> None:
    nothing = Contribution.of_device(2, 0, {}, 0.0)
    liars = Liars.parse("2:flip,samples=99", n_devices=4)

    assert liars.told([nothing]) == [nothing]
    assert liars.claimed(2, 0) == 0


def test_a_claim_is_in_vain_where_every_device_counts_as_one() -> None:
    equal = Contribution.of_device(3, 4, {"0": np.array([1.0])}, loss=0.5, weight=1)
    (told,) = Liars.parse("3:samples=1000", n_devices=4).told([equal])

    assert (told.parts["0"].n_samples, told.parts["0"].weight) == (1, 1)
