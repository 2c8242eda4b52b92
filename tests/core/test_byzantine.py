"""Byzantine devices as data: the grammar, its errors, and what tampering does to a contribution."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tolfl.core.byzantine import Tampering, parse_liars
from tolfl.core.contribution import GLOBAL, Contribution
from tolfl.core.errors import SpecError
from tolfl.core.spec import RunSpec

TRUTH = Contribution.of_device(3, 4, {GLOBAL: np.array([1.0, -2.0], dtype=np.float32)}, loss=0.5)


@pytest.mark.parametrize(
    ("text", "tampering"),
    [
        ("", {}),
        ("3:flip", {3: Tampering(-1.0)}),
        (" 3:scale=-10 ; 5 : flip,samples=7 ;", {3: Tampering(-10.0), 5: Tampering(-1.0, 7)}),
        ("0,9:scale=0", {0: Tampering(0.0), 9: Tampering(0.0)}),
        ("7:samples=1000000", {7: Tampering(1.0, 1_000_000)}),
    ],
)
def test_liars_are_read_from_text(text: str, tampering: dict[int, Tampering]) -> None:
    assert parse_liars(text, n_devices=10) == tampering


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("3", "name a device and its attack"),
        ("3:shout", "no attack 'shout'; use flip, scale=FACTOR or samples=COUNT"),
        ("3:", "no attack ''"),
        ("3:flip=2", "no attack 'flip=2'"),
        ("3:scale", "no attack 'scale'"),
        ("three:flip", "'three' is not a device id"),
        ("-1:flip", "'-1' is not a device id"),
        ("10:flip", "there is no device 10; ids go from 0 to 9"),
        ("3:flip; 3:samples=4", "device 3 is named twice"),
        ("3,3:flip", "device 3 is named twice"),
        ("3:flip,scale=2", "two attacks on the same value"),
        ("3:scale=ten", "factor 'ten'"),
        ("3:scale=nan", "factor 'nan'"),
        ("3:scale=1e9", "use a number from -1e.06 to 1e.06"),
        ("3:samples=0", "use a whole number from 1"),
        ("3:samples=1.5", "use a whole number from 1"),
    ],
)
def test_what_cannot_be_read_is_named_with_what_to_do(text: str, problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        RunSpec(liars=text).check()


@given(st.text("0123456789:,;=-. fliscalemp"))
def test_any_text_is_read_or_refused_with_a_sentence(text: str) -> None:
    try:
        found = parse_liars(text, n_devices=5)
    except SpecError as error:
        assert str(error).startswith("liars ")  # noqa: PT017  (reading it is as good)
    else:
        assert set(found) <= set(range(5))


def test_a_byzantine_device_scales_its_update_and_reports_other_counts() -> None:
    reported = parse_liars("3:scale=-10,samples=1000", n_devices=4)[3].reported(TRUTH)

    part = reported.parts[GLOBAL]
    assert (reported.n_samples, part.n_samples, part.weight, part.n_trained) == (1000, 1000, 1000, 1000)
    np.testing.assert_array_equal(part.vector, np.array([-10.0, 20.0], dtype=np.float32))
    assert part.vector.dtype == np.float32
    assert (reported.included, reported.loss) == (TRUTH.included, TRUTH.loss)


def test_a_count_of_its_own_is_reported_and_without_one_the_true_count() -> None:
    assert parse_liars("2:flip,samples=99", n_devices=4)[2].reported_count(4) == 99
    assert parse_liars("2:flip", n_devices=4)[2].reported_count(4) == 4


def test_tampering_that_changes_nothing_reports_what_was_found() -> None:
    assert Tampering().reported(TRUTH) == TRUTH
    assert Tampering().reported_count(4) == 4


def test_a_device_without_samples_has_nothing_to_report() -> None:
    nothing = Contribution.of_device(2, 0, {}, 0.0)
    (tampering,) = parse_liars("2:flip,samples=99", n_devices=4).values()

    assert tampering.reported(nothing) == nothing
    assert tampering.reported_count(0) == 0


def test_a_false_count_is_in_vain_where_every_device_counts_as_one() -> None:
    equal = Contribution.of_device(3, 4, {"0": np.array([1.0])}, loss=0.5, weight=1)
    reported = Tampering(n_samples=1000).reported(equal)

    assert (reported.parts["0"].n_samples, reported.parts["0"].weight) == (1, 1)
