"""Rows of small fleets: points near a plane of their own, and anomalies off it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.detect.detector_learner import DetectorStages, detector_learner
from tolfl.detect.thresholds import Thresholds, count_bins, device_limit, limit_of
from tolfl.learners import Fleet

Rows = NDArray[np.float64]


def near_a_plane(n_rows: int, seed: int = 0, n_features: int = 6, noise: float = 0.05) -> Rows:
    """Return rows near a plane through the origin: the same plane for every seed."""
    plane = np.random.default_rng(1234).normal(size=(2, n_features))
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n_rows, 2)) @ plane + noise * rng.normal(size=(n_rows, n_features))


def off_the_plane(n_rows: int, seed: int = 0, n_features: int = 6) -> Rows:
    return near_a_plane(n_rows, seed, n_features) + np.random.default_rng(seed + 1).normal(size=(n_rows, n_features))


def fleet(sizes: tuple[int, ...], seed: int = 0) -> dict[str, Rows]:
    return {f"site-{device}": near_a_plane(size, seed + 10 * device) for device, size in enumerate(sizes)}


def detector_for(fleet: Fleet, learn: Mapping[str, object]) -> DetectorStages:
    """Return the learner of a detector with these settings."""
    run = msgspec.structs.replace(fleet.spec, learn={"what": "detector", **learn})
    return detector_learner(replace(fleet, spec=run))


def calibrate(scores: Mapping[str, NDArray[np.floating]], budget: float) -> Thresholds:
    """Return thresholds from the scores of each device's rows."""
    counts = {name: count_bins(values) for name, values in scores.items()}
    total = np.sum(list(counts.values()), axis=0)
    fleet = limit_of(total, budget)
    devices = {name: device_limit(own, fleet) for name, own in counts.items()}
    return Thresholds(fleet, "held-back rows", devices)
