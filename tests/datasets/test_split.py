"""From raw samples to slices: nothing leaks, nothing is lost, and the fleet computes what one machine would."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from tolfl.core.errors import DataError, SpecError
from tolfl.core.spec import DatasetSpec, RunSpec
from tolfl.datasets.describe import describe, plot_classes
from tolfl.datasets.federated import FederatedDataset, RawData
from tolfl.datasets.scaling import Moments, Scaler, merged
from tolfl.datasets.split import choose, declared_choices, federate, split

TYPICAL, ANOMALOUS = ("a", "b", "c"), ("x", "y")


def raw_data(sizes: dict[str, int] | None = None, seed: int = 0, **fields: object) -> RawData:
    """Return samples whose first feature is their row, so that every sample can be recognised."""
    sizes = sizes or {"a": 30, "b": 20, "c": 25, "x": 12, "y": 8}
    labels = np.repeat(list(sizes), list(sizes.values())).astype(str)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    samples = rng.normal(size=(len(labels), 3)).astype(np.float32)
    samples[:, 0] = np.arange(len(labels))
    return msgspec_free(RawData("made", samples, labels[order]), **fields)


def msgspec_free(raw: RawData, **fields: object) -> RawData:
    values = {name: getattr(raw, name) for name in raw.__dataclass_fields__}
    return RawData(**{**values, **fields})


def spec_for(n_devices: int = 6, seed: int = 0, **fields: object) -> RunSpec:
    chosen = {"typical": TYPICAL, "anomalous": ANOMALOUS, "scaling": "none", **fields}
    return RunSpec(data="blobs", devices=n_devices, seed=seed, dataset=msgspec.convert(chosen, DatasetSpec))


def rows_of(samples: np.ndarray | None) -> list[int]:
    return [] if samples is None else samples[:, 0].astype(int).tolist()


# -- no leaks ---------------------------------------------------------------------------------------------------------


@given(
    st.sampled_from(["classes", "iid", "dirichlet"]),
    st.sampled_from(["random", "chronological"]),
    st.integers(1, 12),
    st.integers(0, 99),
    st.booleans(),
)
def test_every_sample_has_one_use_and_nobody_trains_on_an_anomaly(
    partition: str, how: str, n_devices: int, seed: int, publisher_split: bool
) -> None:
    raw = raw_data()
    if publisher_split:
        raw = msgspec_free(raw, is_test=np.arange(raw.n_samples) % 4 == 0)
    data = federate(raw, spec_for(n_devices, seed, partition=partition, split=how, validation_share=0.2))
    assert data.labels is not None
    assert data.test_labels is not None
    train, test, held_back = rows_of(data.pool), rows_of(data.test), rows_of(data.validation)
    typical = np.flatnonzero(np.isin(raw.labels, TYPICAL))

    assert len(set(train) | set(test) | set(held_back)) == len(train) + len(test) + len(held_back)
    assert set(typical) <= set(train) | set(test) | set(held_back)
    assert set(data.labels) <= set(TYPICAL)
    assert raw.labels[train].tolist() == data.labels.tolist()
    assert raw.labels[test].tolist() == data.test_labels.tolist()
    assert data.is_anomalous is not None
    assert np.isin(data.test_labels, ANOMALOUS).tolist() == data.is_anomalous.tolist()
    assert set(raw.labels[held_back]) <= set(TYPICAL)
    if publisher_split:
        assert raw.is_test is not None
        assert not raw.is_test[[*train, *held_back]].any()
        assert raw.is_test[test].all()


def test_scaling_has_seen_typical_training_samples_only() -> None:
    raw = raw_data()
    data = federate(raw, spec_for(scaling="min-max"))
    wild = msgspec_free(raw, samples=raw.samples.astype(np.float32).copy())
    parts = split(raw, (TYPICAL, ANOMALOUS), spec_for().dataset, 0)
    assert parts.test is not None
    unseen = np.concatenate([parts.validation, parts.test])
    wild.samples[unseen] = 1e6
    other = federate(wild, spec_for(scaling="min-max"))

    assert np.array_equal(data.pool, other.pool)
    assert data.pool.min() == 0.0
    assert data.pool.max() == 1.0
    assert other.test is not None
    assert other.test.max() > 1000  # not clipped: it is evidence
    leaking = federate(wild, spec_for(scaling="min-max", scaled_by="all"))
    assert leaking.pool.max() < 0.001


def test_the_last_samples_in_time_are_tested_when_time_counts() -> None:
    raw = msgspec_free(raw_data(), times=np.arange(95.0)[::-1].copy())
    parts = split(raw, (TYPICAL, ANOMALOUS), DatasetSpec(split="chronological", test_share=0.2), 0)
    assert raw.times is not None
    assert parts.test is not None

    for name in TYPICAL:
        train, test = (rows[raw.labels[rows] == name] for rows in (parts.train, parts.test))
        held_back = parts.validation[raw.labels[parts.validation] == name]
        assert raw.times[train].max() < raw.times[held_back].min()
        assert raw.times[held_back].max() < raw.times[test].min()


def test_seeds_change_the_split_and_k_does_not() -> None:
    raw = raw_data()
    one, same, other = (federate(raw, spec_for(seed=seed)) for seed in (0, 0, 1))
    clusters = federate(raw, msgspec.structs.replace(spec_for(), clusters=2))

    assert np.array_equal(one.pool, same.pool)
    assert np.array_equal(one.pool, clusters.pool)
    assert not np.array_equal(one.pool, other.pool)


# -- who gets what ----------------------------------------------------------------------------------------------------


def slices(data: FederatedDataset) -> list[set[str]]:
    assert data.labels is not None
    return [set(data.labels[data.bounds[d] : data.bounds[d + 1]].tolist()) for d in range(data.n_devices)]


def sizes(data: FederatedDataset) -> list[int]:
    return [data.n_samples(device) for device in range(data.n_devices)]


def test_one_class_per_group_of_neighbouring_devices() -> None:
    data = federate(
        raw_data({"a": 40, "b": 40, "c": 40, "x": 5}), spec_for(10, typical=["a", "b", "c"], anomalous=["x"])
    )

    assert slices(data) == [{"a"}] * 4 + [{"b"}] * 3 + [{"c"}] * 3
    assert max(sizes(data)[:4]) - min(sizes(data)[:4]) <= 1
    assert max(sizes(data)[4:7]) - min(sizes(data)[4:7]) <= 1


def test_fewer_devices_than_classes_and_fewer_groups_than_classes() -> None:
    assert slices(federate(raw_data(), spec_for(2))) == [{"a", "b"}, {"c"}]
    assert slices(federate(raw_data(), spec_for(2, groups=1))) == [{"a", "b", "c"}] * 2
    assert slices(federate(raw_data(), spec_for(1))) == [{"a", "b", "c"}]


def test_iid_slices_are_equal_or_of_given_sizes() -> None:
    equal = sizes(federate(raw_data(), spec_for(7, partition="iid")))
    given_sizes = sizes(federate(raw_data(), spec_for(3, partition="iid", sizes=[1, 2, 1])))

    assert max(equal) - min(equal) <= 1
    assert given_sizes[1] == pytest.approx(2 * given_sizes[0], abs=2)
    with pytest.raises(SpecError, match="sizes has 2 numbers for 3 devices"):
        federate(raw_data(), spec_for(3, partition="iid", sizes=[1, 2]))
    with pytest.raises(SpecError, match="sizes go with partition iid"):
        federate(raw_data(), spec_for(3, sizes=[1, 2, 3]))


def test_a_small_alpha_makes_devices_unequal() -> None:
    raw = raw_data({"a": 400, "b": 400, "c": 400, "x": 5})

    def unevenness(alpha: float) -> float:
        spreads = []
        for seed in range(5):
            spec = spec_for(8, seed, typical=TYPICAL, anomalous=["x"], partition="dirichlet", alpha=alpha)
            spreads.append(np.std(sizes(federate(raw, spec))))
        return float(np.mean(spreads))

    assert unevenness(0.1) > 3 * unevenness(100.0)


def test_owners_become_devices_and_neighbours_share_one_where_there_are_fewer() -> None:
    owners = np.array([f"{i % 12}" for i in range(95)])
    raw = msgspec_free(raw_data(), owners=owners)
    exact, shared = federate(raw, spec_for(12)), federate(raw, spec_for(4))

    for device in range(12):
        assert set(owners[rows_of(exact.slice_of(device))]) <= {str(device)}
    assert set(owners[rows_of(shared.slice_of(3))]) <= {"9", "10", "11"}
    with pytest.raises(SpecError, match="13 devices, but the data have 12 owners"):
        federate(raw, spec_for(13))
    with pytest.raises(SpecError, match="does not say whose samples"):
        federate(raw_data(), spec_for(3, partition="column"))


def test_fewer_samples_are_taken_evenly_from_the_classes() -> None:
    raw = raw_data({"a": 100, "b": 10, "c": 100, "x": 40, "y": 40})
    data = federate(raw, spec_for(3, max_train=50, max_test=20, validation_share=0.0, test_share=0.3))
    described = describe(data)

    assert len(data.pool) == 50
    assert described.per_device[1] == {"b": 7}
    assert abs(described.per_device[0]["a"] - described.per_device[2]["c"]) <= 1
    assert sum(count for name, count in described.test.items() if name in ANOMALOUS) == 10
    assert sum(described.test.values()) == 20


# -- scaling ----------------------------------------------------------------------------------------------------------

values = st.lists(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=2), min_size=1, max_size=20)


@given(st.lists(values, min_size=1, max_size=5))
def test_a_fleet_scales_as_one_machine_with_all_samples_would(parts: list[list[list[float]]]) -> None:
    devices = [np.array(part) for part in parts]
    pooled = np.concatenate(devices)
    moments = merged(Moments.of(device) for device in devices)

    span = np.ptp(pooled, axis=0)
    steady = (span == 0) | (span > 1e-3)  # tiny spreads drown in rounding, in scikit-learn's scaler as in ours
    ours, theirs = Scaler.fit(moments, "min-max")(pooled), MinMaxScaler().fit_transform(pooled)
    np.testing.assert_allclose(ours[:, steady], theirs[:, steady], rtol=1e-4, atol=1e-5)
    wide = span > 1e-3
    ours, theirs = Scaler.fit(moments, "standard")(pooled), StandardScaler().fit_transform(pooled)
    np.testing.assert_allclose(ours[:, wide], theirs[:, wide], rtol=1e-3, atol=1e-3)


def test_missing_values_become_the_mean_of_what_the_fleet_knows() -> None:
    samples = np.array([[1.0, 5.0], [3.0, np.nan], [np.nan, 7.0]], np.float32)
    parts = [Moments.of(samples[:2]), Moments.of(samples[2:])]
    scaled = Scaler.fit(merged(parts), "none")(samples)

    assert scaled.tolist() == [[1.0, 5.0], [3.0, 6.0], [2.0, 7.0]]


def test_a_feature_without_spread_or_without_any_value_becomes_zero() -> None:
    samples = np.array([[4.0, 1.0, np.nan], [4.0, 2.0, np.nan]], np.float32)
    moments = Moments.of(samples)

    assert Scaler.fit(moments, "min-max")(samples)[:, [0, 2]].tolist() == [[0, 0], [0, 0]]
    assert Scaler.fit(moments, "standard")(samples)[:, [0, 2]].tolist() == [[0, 0], [0, 0]]


def test_devices_may_scale_alone() -> None:
    data = federate(raw_data(), spec_for(4, scaling="min-max", scaled_by="per-device", partition="iid"))

    for device in range(4):
        own = data.slice_of(device)
        assert own.min(axis=0).tolist() == [0, 0, 0]
        assert own.max(axis=0).tolist() == [1, 1, 1]


# -- classes ----------------------------------------------------------------------------------------------------------


def test_declared_choices_are_ten_different_halves_and_the_first_is_the_usual_one() -> None:
    digits = tuple("0123456789")
    choices = declared_choices("fashion-mnist", digits)

    assert len(set(choices)) == 10
    assert choices[0] == (("0", "2", "3", "4", "6"), ("1", "5", "7", "8", "9"))
    assert all(sorted([*typical, *anomalous]) == list(digits) for typical, anomalous in choices)
    assert choices == declared_choices("fashion-mnist", digits)


def test_classes_are_typical_by_choice_or_by_name() -> None:
    raw = raw_data({"Normal": 5, "Flooding": 3, "Blackhole": 2})

    assert choose(raw, DatasetSpec()) == (("Normal",), ("Blackhole", "Flooding"))
    assert choose(raw, DatasetSpec(anomalous=("Flooding",))) == (("Blackhole", "Normal"), ("Flooding",))
    assert choose(raw, DatasetSpec(typical=("Flooding",))) == (("Flooding",), ("Blackhole", "Normal"))
    with pytest.raises(SpecError, match="has no such class; it has Blackhole, Flooding, Normal"):
        choose(raw, DatasetSpec(typical=("normal",)))
    assert choose(raw_data({"leak": 5, "OK": 3}), DatasetSpec()) == (("OK",), ("leak",))
    with pytest.raises(SpecError, match="has the classes u, v; name the typical ones, as in --typical v"):
        choose(raw_data({"u": 2, "v": 3}), DatasetSpec())
    with pytest.raises(SpecError, match="has 10 choices, from 0"):
        choose(msgspec_free(raw_data(dict.fromkeys("0123456789", 2)), name="mnist"), DatasetSpec(declared=10))


def test_without_a_typical_sample_there_is_nothing_to_train_on() -> None:
    raw = msgspec_free(raw_data(), is_test=np.ones(95, bool))

    with pytest.raises(DataError, match="no typical row is left to train on"):
        federate(raw, spec_for())


def test_without_an_anomaly_there_is_no_test_set() -> None:
    data = federate(raw_data({"typical": 20}), RunSpec(data="blobs", devices=2))

    assert data.test is None
    assert describe(data).test == {}


@pytest.mark.parametrize("n_features", [3, 784, 1024, 3072])
def test_classes_are_drawn_as_curves_or_as_pictures(n_features: int) -> None:
    raw = raw_data()
    raw = msgspec_free(raw, samples=np.random.default_rng(0).random((95, n_features)).astype(np.float32), scale=0.5)
    figure = plot_classes(federate(raw, spec_for()))

    assert len(figure.axes) == (1 if n_features == 3 else 5 * 8)
