"""Robust rules as mathematics: what no minority of liars can change, and what costs honest devices nothing."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tolfl.core.contribution import GLOBAL, Contribution, Part, Vector
from tolfl.core.defence import clipped, combine, length, median, trimmed_mean
from tolfl.core.device_set import DeviceSet
from tolfl.core.spec import DefenceSpec

MEDIAN, TRIMMED = DefenceSpec("median"), DefenceSpec("trimmed-mean")
moderate = st.floats(-1e3, 1e3, width=32)
anything = st.floats(-(2.0**100), 2.0**100, width=32)


def table(n_rows: st.SearchStrategy[int], numbers: st.SearchStrategy[float] = moderate) -> st.SearchStrategy[Vector]:
    shape = st.tuples(n_rows, st.just(3))
    return shape.flatmap(lambda sides: hnp.arrays(np.float32, sides, elements=numbers))


def devices(rows: Vector, counts: list[int] | None = None, first: int = 0) -> list[Contribution]:
    counts = counts or [place + 1 for place in range(len(rows))]
    return [
        Contribution.of_device(first + place, n, {GLOBAL: row}, loss=float(place))
        for place, (row, n) in enumerate(zip(rows, counts, strict=True))
    ]


def mean_of(total: Contribution) -> Vector:
    return total.parts[GLOBAL].mean


# -- the rules --------------------------------------------------------------------------------------------------


@given(hnp.arrays(np.float32, 3, elements=anything), st.integers(1, 9), st.floats(0.01, 0.49))
def test_of_identical_updates_every_rule_gives_this_one(row: Vector, n: int, trim: float) -> None:
    rows = np.stack([row] * n)

    np.testing.assert_array_equal(median(rows), row)
    np.testing.assert_array_equal(trimmed_mean(rows, trim), row)


@given(table(st.integers(1, 9), anything), st.data())
def test_the_order_of_devices_does_not_matter(rows: Vector, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(rows))))

    np.testing.assert_array_equal(median(rows), median(rows[order]))
    np.testing.assert_array_equal(trimmed_mean(rows, 0.2), trimmed_mean(rows[order], 0.2))


@given(table(st.integers(2, 9)), st.data())
def test_a_minority_of_liars_cannot_carry_the_median_out_of_the_honest_range(
    honest: Vector, data: st.DataObject
) -> None:
    lies = data.draw(table(st.integers(0, len(honest) - 1), anything))
    found = median(np.concatenate([honest, lies]))

    assert (found >= honest.min(axis=0)).all()
    assert (found <= honest.max(axis=0)).all()


@given(table(st.integers(2, 9)), st.floats(0.05, 0.45), st.data())
def test_no_more_liars_than_are_cut_off_cannot_leave_the_honest_range(
    honest: Vector, trim: float, data: st.DataObject
) -> None:
    # The share is of all devices: so many liars that they are no larger part of them.
    most = max(n for n in range(len(honest)) if n <= trim * (n + len(honest)))
    lies = data.draw(table(st.integers(0, most), anything))
    found = trimmed_mean(np.concatenate([honest, lies]), trim)

    assert (found >= honest.min(axis=0)).all()
    assert (found <= honest.max(axis=0)).all()


@given(table(st.integers(1, 9)))
def test_the_median_is_what_numpy_calls_so(rows: Vector) -> None:
    np.testing.assert_allclose(median(rows), np.median(rows, axis=0), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("trim", "n_cut"), [(0.1, 1), (0.11, 2), (0.2, 2), (0.21, 3), (0.49, 4)])
def test_the_share_that_is_cut_off_is_rounded_up(trim: float, n_cut: int) -> None:
    rows = np.array([[2.0**place] for place in range(10)])

    assert trimmed_mean(rows, trim)[0] == pytest.approx(np.mean(rows[n_cut : 10 - n_cut]))


# -- lengths ----------------------------------------------------------------------------------------------------


@given(hnp.arrays(np.float32, 4, elements=anything), st.floats(1e-3, 1e30))
def test_clipping_never_lengthens_and_never_turns(vector: Vector, longest: float) -> None:
    shorter = clipped(vector, longest)

    assert length(shorter) <= min(length(vector), longest) * (1 + 1e-6)
    assert (np.sign(shorter) * np.sign(vector) >= 0).all()
    if length(vector) <= longest:
        assert shorter is vector


@given(hnp.arrays(np.float64, 4, elements=st.floats(-1e3, 1e3)))
def test_a_length_is_euclidean(vector: Vector) -> None:
    assert length(vector) == pytest.approx(float(np.sqrt(np.sum(vector**2))), rel=1e-12, abs=1e-150)


def test_an_update_beyond_all_numbers_is_clipped_like_any_other() -> None:
    assert length(np.full(4, 1.7e308)) == math.inf
    np.testing.assert_array_equal(clipped(np.full(4, 1.7e308), 1.0), np.zeros(4))


# -- a cluster on the chain -------------------------------------------------------------------------------------


@given(table(st.integers(1, 6)), table(st.integers(1, 6)))
def test_limits_that_nobody_reaches_change_no_bit(first: Vector, second: Vector) -> None:
    above, below = devices(first), devices(second, first=len(first))
    idle = DefenceSpec(clip_norm=1e9, clip_to_median=0.0, max_samples=10**6)

    found = combine(idle, combine(idle, None, above), below)
    plain = Contribution.appended(Contribution.total(above), below)
    assert found.parts[GLOBAL].vector.tobytes() == plain.parts[GLOBAL].vector.tobytes()
    assert (found.n_samples, found.included, found.loss) == (plain.n_samples, plain.included, plain.loss)


@pytest.mark.parametrize("defence", [MEDIAN, TRIMMED], ids=["median", "trimmed-mean"])
@given(rows=table(st.integers(1, 6)))
def test_a_cluster_counts_for_all_its_samples_and_every_device_is_inside(defence: DefenceSpec, rows: Vector) -> None:
    total = combine(defence, None, devices(rows))

    n_samples = sum(range(1, len(rows) + 1))
    part = total.parts[GLOBAL]
    assert total.n_samples == part.n_samples == part.n_trained == n_samples
    assert total.included == part.included == DeviceSet.of(range(len(rows)))
    assert total.loss == pytest.approx(part.loss)


def test_a_chain_of_two_clusters_by_hand() -> None:
    upstream = combine(MEDIAN, None, devices(np.array([[1.0], [2.0], [-900.0]]), [10, 10, 10]))
    total = combine(MEDIAN, upstream, devices(np.array([[4.0], [8.0]]), [5, 5], first=3))

    assert mean_of(upstream) == pytest.approx([1.0])
    assert total.n_samples == 40
    assert mean_of(total) == pytest.approx([(30 * 1.0 + 10 * 6.0) / 40])


def test_a_claimed_million_counts_for_the_cap() -> None:
    total = combine(DefenceSpec(max_samples=20), None, devices(np.array([[1.0], [4.0]]), [10, 1_000_000]))

    assert total.n_samples == 30
    assert mean_of(total) == pytest.approx([(10 * 1.0 + 20 * 4.0) / 30])


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=6), st.integers(1, 10**6))
def test_no_device_counts_for_more_than_the_cap(counts: list[int], cap: int) -> None:
    cluster = devices(np.zeros((len(counts), 1), dtype=np.float32), counts)

    assert combine(DefenceSpec(max_samples=cap), None, cluster).n_samples == sum(min(n, cap) for n in counts)


def test_the_longest_update_is_as_long_as_the_median_one() -> None:
    total = combine(DefenceSpec(clip_to_median=1.0), None, devices(np.array([[3.0], [2.0], [-1000.0]]), [1, 1, 1]))

    assert mean_of(total) == pytest.approx([(3.0 + 2.0 - 3.0) / 3])


def test_of_two_devices_the_shorter_update_is_the_measure() -> None:
    total = combine(DefenceSpec(clip_to_median=1.0), None, devices(np.array([[2.0], [-1000.0]]), [1, 1]))

    assert mean_of(total) == pytest.approx([0.0])


@given(table(st.integers(1, 5), anything), table(st.integers(1, 5)), st.floats(0.1, 10.0))
def test_no_hop_makes_the_mean_of_the_chain_longer_than_allowed(lies: Vector, honest: Vector, limit: float) -> None:
    defence = DefenceSpec(chain_clip=limit)
    forged = Contribution.total(devices(lies))  # a head that keeps to no rule
    total = combine(defence, forged, devices(honest, first=len(lies)))

    assert length(mean_of(total)) <= limit * (1 + 1e-5)


def test_a_forged_count_from_upstream_is_cut_to_what_its_devices_may_have() -> None:
    forged = Contribution.total(devices(np.array([[5.0]]), [10**9]))
    total = combine(DefenceSpec(max_samples=10), forged, devices(np.array([[1.0]]), [10], first=1))

    assert total.n_samples == total.parts[GLOBAL].n_samples == 20
    assert mean_of(total) == pytest.approx([3.0])


def test_a_weight_that_is_not_the_count_is_not_believed() -> None:
    (honest,) = devices(np.array([[1.0]]), [10])
    part = honest.parts[GLOBAL]
    heavy = Contribution(honest.included, 10, {GLOBAL: type(part)(10, part.vector, 10**9, part.included)})

    assert mean_of(combine(MEDIAN, None, [heavy])) == pytest.approx([1.0])


def test_who_claims_no_samples_has_no_say() -> None:
    (claims,) = devices(np.array([[1.0]]), [10])
    silent = Contribution(claims.included, 0, claims.parts)

    assert combine(MEDIAN, None, [silent]).parts == {}


def test_each_model_of_a_scheme_with_several_has_a_rule_of_its_own() -> None:
    cluster = [
        Contribution.of_device(device, 1, {key: np.array([value])}, 0.0)
        for device, (key, value) in enumerate([("a", 1.0), ("b", 5.0), ("a", 2.0), ("a", 99.0)])
    ]
    total = combine(MEDIAN, None, cluster)

    assert {key: (part.n_samples, float(part.mean[0])) for key, part in total.parts.items()} == {
        "a": (3, 2.0),
        "b": (1, 5.0),
    }


@pytest.mark.parametrize("defence", [DefenceSpec("median"), DefenceSpec(clip_norm=0.1, max_samples=1, chain_clip=0.1)])
def test_counts_are_added_as_they_are_whatever_the_defence(defence: DefenceSpec) -> None:
    counting = [
        msgspec.structs.replace(one, parts={**one.parts, "n": Part.total_of(device, np.array([10 * device]))})
        for device, one in enumerate(devices(np.array([[1.0], [2.0], [30.0]])))
    ]
    total = combine(defence, None, counting)

    assert total.parts["n"].vector.tolist() == [30]
    assert total.parts["n"].how == "sum"
