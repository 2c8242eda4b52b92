"""The mean that travels: golden example A by hand, and what holds for any mean."""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tolfl.core.contribution import GLOBAL, Contribution, How, MismatchError, Part
from tolfl.core.device_set import DeviceSet

Drawn = tuple[list[int], list[list[float]]]  #: samples and gradient of each device

N_FEATURES = 3


@st.composite
def fleets(draw: st.DrawFn, min_devices: int = 1, min_samples: int = 1) -> list[Contribution]:
    n_devices = draw(st.integers(min_devices, 20))
    sizes = draw(st.lists(st.integers(min_samples, 50), min_size=n_devices, max_size=n_devices))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return [of_device(d, size, rng.normal(0, 10, N_FEATURES), float(rng.random())) for d, size in enumerate(sizes)]


def of_device(device: int, n_samples: int, gradient: object, loss: float = 0.0) -> Contribution:
    return Contribution.of_device(device, n_samples, {GLOBAL: np.asarray(gradient, dtype=float)}, loss)


def mean_of(contribution: Contribution) -> np.ndarray:
    return np.asarray(contribution.parts[GLOBAL].mean)


def running_means(contributions: list[Contribution]) -> list[Contribution]:
    """Algorithm 1, hop by hop."""
    total, hops = Contribution.empty(), []
    for contribution in contributions:
        total = Contribution.total([total, contribution])
        hops.append(total)
    return hops


# -- golden example A -------------------------------------------------------------------------------------------------

D1, D2, D3 = of_device(0, 2, [-4.0]), of_device(1, 1, [-8.0]), of_device(2, 3, [-16.0])
FAR_RIGHT = Fraction(-32, 3)

LAYOUTS = {
    "k=1": ([[D1, D2, D3]], [FAR_RIGHT]),
    "k=2 {1,2}{3}": ([[D1, D2], [D3]], [Fraction(-16, 3), FAR_RIGHT]),
    "k=2 {3,1}{2}": ([[D3, D1], [D2]], [Fraction(-56, 5), FAR_RIGHT]),
    "k=3 1,2,3": ([[D1], [D2], [D3]], [Fraction(-4), Fraction(-16, 3), FAR_RIGHT]),
    "k=3 3,1,2": ([[D3], [D1], [D2]], [Fraction(-16), Fraction(-56, 5), FAR_RIGHT]),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_running_mean_of_example_a_is_right_at_every_hop(name: str) -> None:
    clusters, expected = LAYOUTS[name]
    hops = running_means([Contribution.total(cluster) for cluster in clusters])

    assert [float(mean_of(hop)[0]) for hop in hops] == pytest.approx([float(value) for value in expected], rel=1e-15)
    assert hops[-1].n_samples == 6
    assert hops[-1].included == DeviceSet.of([0, 1, 2])


@pytest.mark.parametrize("name", ["k=2 {1,2}{3}", "k=3 1,2,3"])
def test_the_closed_form_printed_in_the_paper_is_not_what_is_computed(name: str) -> None:
    clusters, _ = LAYOUTS[name]
    heads = [Contribution.total(cluster) for cluster in clusters]
    n, printed = 0, Fraction(0)
    for place, head in enumerate(heads):
        n += head.n_samples
        r = Fraction(head.n_samples, n)
        gradients = [Fraction(float(mean_of(one)[0])).limit_denominator(1000) for one in heads]
        printed += r * gradients[place] + (1 - r) * sum(gradients[:place])

    assert printed == (-16 if len(heads) == 2 else Fraction(-70, 3))
    assert float(mean_of(Contribution.total(heads))[0]) == pytest.approx(-32 / 3, rel=1e-15)


# -- properties -------------------------------------------------------------------------------------------------------


@given(fleets(min_devices=3), st.data())
def test_merging_is_associative_and_commutative(fleet: list[Contribution], data: st.DataObject) -> None:
    order = data.draw(st.permutations(fleet))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(fleet) - 1))))
    clusters = [order[first:last] for first, last in zip([0, *cuts], [*cuts, len(fleet)], strict=True)]
    direct = Contribution.total(fleet)
    chained = reduce(
        lambda one, other: Contribution.total([one, other]), (Contribution.total(cluster) for cluster in clusters)
    )

    assert chained.included == direct.included
    assert chained.n_samples == direct.n_samples
    assert chained.loss == pytest.approx(direct.loss, rel=1e-10)
    np.testing.assert_allclose(mean_of(chained), mean_of(direct), rtol=1e-10, atol=1e-12)


@given(fleets())
def test_a_running_mean_lies_between_the_lowest_and_highest_seen_and_counts_every_sample(
    fleet: list[Contribution],
) -> None:
    for place, hop in enumerate(running_means(fleet), start=1):
        seen = np.stack([mean_of(one) for one in fleet[:place]])

        assert hop.n_samples == sum(one.n_samples for one in fleet[:place])
        assert (mean_of(hop) >= seen.min(axis=0) - 1e-12).all()
        assert (mean_of(hop) <= seen.max(axis=0) + 1e-12).all()


@given(fleets(), st.integers(1, 1000))
def test_scaling_all_sample_counts_changes_nothing(fleet: list[Contribution], factor: int) -> None:
    scaled = [of_device(d, one.n_samples * factor, mean_of(one), one.loss or 0.0) for d, one in enumerate(fleet)]
    plain, larger = Contribution.total(fleet), Contribution.total(scaled)

    np.testing.assert_allclose(mean_of(larger), mean_of(plain), rtol=1e-10, atol=1e-12)
    assert larger.loss == pytest.approx(plain.loss, rel=1e-10)


@given(fleets(), st.data())
def test_splitting_a_device_in_two_changes_nothing(fleet: list[Contribution], data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    gradients = rng.normal(0, 5, (10, N_FEATURES))
    whole = of_device(50, 10, gradients.mean(axis=0))
    halves = [of_device(50, 4, gradients[:4].mean(axis=0)), of_device(51, 6, gradients[4:].mean(axis=0))]

    np.testing.assert_allclose(
        mean_of(Contribution.total([*fleet, *halves])),
        mean_of(Contribution.total([*fleet, whole])),
        rtol=1e-10,
        atol=1e-12,
    )


@given(fleets(), st.integers(0, 20))
def test_a_contribution_without_samples_changes_nothing_but_is_named(fleet: list[Contribution], place: int) -> None:
    nobody = Contribution.of_device(99, 0, {GLOBAL: np.full(N_FEATURES, 1e9)}, loss=7.0)
    plain, total = Contribution.total(fleet), Contribution.total([*fleet[:place], nobody, *fleet[place:]])

    assert np.array_equal(mean_of(total), mean_of(plain))
    assert total.loss == pytest.approx(plain.loss, rel=1e-15)
    assert total.included - plain.included == DeviceSet.of([99])


def test_nothing_at_all_has_no_mean_and_no_loss() -> None:
    nothing = Contribution.total([Contribution.empty(), Contribution.of_device(3, 0, {}, 0.0)])

    assert (nothing.parts, nothing.n_samples, nothing.loss) == ({}, 0, None)
    assert list(nothing.included) == [3]


def test_a_sample_is_never_counted_twice() -> None:
    with pytest.raises(ValueError, match="counted twice"):
        Contribution.total([D1, D2, D1])


def test_models_by_key_are_averaged_each_over_its_own_samples() -> None:
    left = Contribution.of_device(0, 2, {"a": np.array([1.0]), "b": np.array([10.0])}, loss=1.0)
    right = Contribution.of_device(1, 6, {"a": np.array([5.0])}, loss=2.0)
    both = Contribution.total([left, right])

    assert (both.parts["a"].n_samples, float(both.parts["a"].mean[0])) == (8, 4.0)
    assert (both.parts["b"].n_samples, float(both.parts["b"].mean[0])) == (2, 10.0)
    assert both.loss == 1.6  # a sample counts once for every model that it trained


@settings(max_examples=30)
@given(st.integers(1, 200), st.integers(0, 10_000))
def test_rows_of_one_block_give_the_same_mean_as_vectors_of_their_own(n_devices: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    block = rng.normal(size=(n_devices, 4)).astype(np.float32)
    sizes = rng.integers(1, 9, n_devices)
    rows = [of_row(d, int(size), block[d]) for d, size in enumerate(sizes)]
    copies = [of_row(d, int(size), block[d].copy()) for d, size in enumerate(sizes)]
    shuffled = [rows[d] for d in rng.permutation(n_devices)]
    expected = np.average(block.astype(float), axis=0, weights=sizes)

    for contributions in (rows, copies, shuffled):
        assert mean_of(Contribution.total(contributions)).dtype == np.float32
        np.testing.assert_allclose(mean_of(Contribution.total(contributions)), expected, rtol=1e-5, atol=1e-5)


def of_row(device: int, n_samples: int, row: np.ndarray) -> Contribution:
    return Contribution.of_device(device, n_samples, {GLOBAL: row}, 0.0)


def test_every_order_of_three_devices_gives_the_same_total() -> None:
    means = [float(mean_of(Contribution.total(order))[0]) for order in permutations([D1, D2, D3])]

    assert means == pytest.approx([-32 / 3] * 6, rel=1e-15)


# -- groups that train models of their own ----------------------------------------------------------------------------


def test_devices_may_weigh_the_same_whatever_their_samples_and_their_losses_do_not() -> None:
    few = Contribution.of_device(0, 1, {"a": np.array([2.0])}, loss=8.0, weight=1)
    many = Contribution.of_device(1, 3, {"a": np.array([6.0])}, loss=4.0, weight=1)
    both = Contribution.total([few, many])

    assert float(both.parts["a"].mean[0]) == 4.0
    assert both.n_samples == 4
    assert both.loss == 5.0


def test_a_part_says_whose_updates_are_inside() -> None:
    left = Contribution.of_device(0, 2, {"a": np.array([1.0])}, 0.0)
    middle = Contribution.of_device(4, 2, {"a": np.array([1.0]), "b": np.array([1.0])}, 0.0)
    nobody = Contribution.of_device(5, 0, {"b": np.array([1.0])}, 0.0)
    total = Contribution.total([left, middle, nobody])

    assert list(total.parts["a"].included) == [0, 4]
    assert list(total.parts["b"].included) == [4]
    assert list(total.included) == [0, 4, 5]


@given(fleets(), st.data())
def test_equal_weights_give_the_plain_mean_in_any_order_and_grouping(
    fleet: list[Contribution], data: st.DataObject
) -> None:
    equal = [
        Contribution.of_device(d, one.n_samples, {GLOBAL: mean_of(one)}, one.loss, weight=1)
        for d, one in enumerate(fleet)
    ]
    order = data.draw(st.permutations(equal))
    cut = data.draw(st.integers(0, len(order)))
    total = Contribution.total([Contribution.total(order[:cut]), Contribution.total(order[cut:])])

    np.testing.assert_allclose(mean_of(total), np.mean([mean_of(one) for one in fleet], axis=0), atol=1e-10)
    assert total.n_samples == sum(one.n_samples for one in fleet)
    assert total.parts[GLOBAL].included == total.included


# -- sums and extremes ------------------------------------------------------------------------------------------------


def total_of(device: int, numbers: object, how: How = "sum") -> Contribution:
    part = Part.total_of(device, np.asarray(numbers), how)
    return Contribution(DeviceSet.of([device]), device + 1, {"x": part})


@pytest.mark.parametrize(("how", "expected"), [("sum", [9, -1]), ("min", [2, -6]), ("max", [4, 5])])
def test_a_total_is_a_sum_or_the_lowest_or_the_highest_whatever_devices_weigh(how: How, expected: list[int]) -> None:
    total = Contribution.total([total_of(d, x, how) for d, x in enumerate([[3, 5], [2, 0], [4, -6]])])

    assert total.parts["x"].vector.tolist() == expected
    assert (total.parts["x"].how, list(total.parts["x"].included), total.loss) == (how, [0, 1, 2], None)


@given(st.lists(st.lists(st.integers(-(2**40), 2**40), min_size=2, max_size=2), min_size=1, max_size=8), st.data())
def test_counts_are_exact_in_any_order_and_grouping(rows: list[list[int]], data: st.DataObject) -> None:
    order = data.draw(st.permutations([total_of(d, row) for d, row in enumerate(rows)]))
    cut = data.draw(st.integers(0, len(order)))
    total = Contribution.total([Contribution.total(order[:cut]), Contribution.total(order[cut:])])

    assert total.parts["x"].vector.tolist() == np.sum(rows, axis=0).tolist()
    assert total.parts["x"].vector.dtype == np.int64


@pytest.mark.parametrize(
    ("other", "how"),
    [([1.0], "sum"), ([1.0, 2.0, 3.0], "sum"), ([1, 2], "sum"), ([1.0, 2.0], "max"), ([1.0, 2.0], "mean")],
)
def test_parts_that_differ_in_length_kind_or_way_of_merging_are_never_added(other: list[float], how: How) -> None:
    with pytest.raises(MismatchError, match=r"part 'x' is .* for some devices and .* here"):
        Contribution.total([total_of(0, [1.0, 2.0]), total_of(1, other, how)])
