"""Drift: seldom seen where there is none, seen where there is, device by device."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ks_2samp

from tests.detect.rows import calibrate
from tolfl.core.errors import DataError
from tolfl.detect.thresholds import drift_of


def scores(seed: int, n: int = 500, factor: float = 1.0) -> np.ndarray:
    return factor * np.random.default_rng(seed).exponential(size=n)


def test_the_distance_is_that_of_kolmogorov_and_smirnov() -> None:
    old, new = scores(0, 150), scores(1, 120)
    found = drift_of({"a": new[:60], "b": new[60:]}, calibrate({"a": old}, 0.05))
    expected = ks_2samp(old.astype(np.float32), new.astype(np.float32), method="asymp")

    # Scores are told apart by their bins, which are less than 1 % wide.
    assert found.distance == pytest.approx(expected.statistic, abs=3 / 120)
    assert found.n_samples == 120


def test_without_drift_it_is_silent_for_almost_every_seed() -> None:
    alarms = [
        drift_of({"a": scores(seed + 1000)}, calibrate({"a": scores(seed)}, 0.01)).is_drifting for seed in range(100)
    ]

    assert sum(alarms) <= 2


@pytest.mark.parametrize(("factor", "is_higher"), [(2.0, True), (0.5, False)])
def test_scores_that_move_are_seen_with_their_direction(factor: float, is_higher: bool) -> None:
    found = drift_of({"a": scores(1, factor=factor)}, calibrate({"a": scores(0)}, 0.01))

    assert found.is_drifting
    assert found.is_higher == is_higher
    assert ("higher" if is_higher else "lower") in str(found)


def test_the_device_that_moves_is_named() -> None:
    new = {f"site-{place}": scores(place + 5) for place in range(9)} | {"moved": scores(3, factor=3.0)}
    found = drift_of(new, calibrate({"a": scores(0, 2000)}, 0.01))

    assert found.drifting_devices == ("moved",)


def test_nothing_cannot_drift() -> None:
    with pytest.raises(DataError, match="no device has a sample"):
        drift_of({"a": np.empty(0)}, calibrate({"a": scores(0)}, 0.01))
