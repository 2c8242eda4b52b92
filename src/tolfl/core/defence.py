"""Defences against Byzantine devices: forged updates or sample counts. All of them are off by default.

A running mean cannot be made robust: once it is summed up, its single updates are lost. So the robust rules work
where single contributions are in hand, in a cluster's head; along the chain only lengths and counts are bounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from tolfl.core.contribution import Contribution, Part, Vector
from tolfl.core.device_set import DeviceSet
from tolfl.core.spec import DefenceSpec


def combine(defence: DefenceSpec, upstream: Contribution | None, cluster: Sequence[Contribution]) -> Contribution:
    """Return the chain so far with a cluster appended; `cluster` has one contribution per device, in id order."""
    chain = [] if upstream is None else [_bounded(defence, upstream)]
    devices = _clipped(defence, [_capped(contribution, defence.max_samples) for contribution in cluster])
    if defence.inside == "mean" and not defence.chain_clip:
        # Device by device, as without a defence: where only single devices are limited the layout does not matter.
        return Contribution.total([*chain, *devices])
    block = Contribution.total(devices) if defence.inside == "mean" else _gathered(defence, devices)
    return Contribution.total([*chain, _bounded(defence, block)])


def counted(defence: DefenceSpec, n_samples: int, n_devices: int = 1) -> int:
    """Return for how many samples devices count that claim so many together.

    >>> counted(DefenceSpec(max_samples=500), 1_000_000, n_devices=2)
    1000
    """
    return min(n_samples, defence.max_samples * n_devices) if defence.max_samples else n_samples


# -- one device -------------------------------------------------------------------------------------------------


def _capped(contribution: Contribution, most: int) -> Contribution:
    """Return a device's contribution with at most so many samples; its vector is its mean, whatever weight it names."""
    n_samples = min(contribution.n_samples, most or contribution.n_samples)
    # Nobody who claims no samples has a say, and nobody says more of a model than of all together.
    parts = {key: _part_of_device(part, n_samples) for key, part in contribution.parts.items() if n_samples}
    return Contribution(contribution.included, n_samples, parts)


def _part_of_device(part: Part, most: int) -> Part:
    if part.how != "mean":
        return part
    n_samples = min(part.n_samples, most)
    return Part(n_samples, part.vector, n_samples, part.included, part.loss, min(part.n_trained, most))


def length(vector: Vector) -> float:
    """Return the Euclidean length; it is infinite where no number is large enough, never an error.

    >>> round(length(np.array([6e200, 8e200])) / 1e201, 9)
    1.0
    """
    largest = float(np.max(np.abs(vector), initial=0.0))
    if largest == 0.0:
        return 0.0
    scaled = vector.astype(np.float64) / largest
    return largest * math.sqrt(float(scaled @ scaled))


def clipped(vector: Vector, longest: float) -> Vector:
    """Return the vector, shortened where it is longer than allowed.

    >>> clipped(np.array([3.0, 4.0]), 2.5)
    array([1.5, 2. ])
    """
    own = length(vector)
    if own <= longest:
        return vector
    shorter: Vector = vector * vector.dtype.type(longest / own)
    return shorter


# -- one cluster ------------------------------------------------------------------------------------------------


def _clipped(defence: DefenceSpec, devices: Sequence[Contribution]) -> list[Contribution]:
    if not (defence.clip_norm or defence.clip_to_median):
        return list(devices)
    limits = {key: _longest(defence, parts) for key, parts in _by_model(devices).items()}
    return [
        msgspec.structs.replace(
            device,
            parts={
                key: msgspec.structs.replace(part, vector=clipped(part.vector, limits[key])) if key in limits else part
                for key, part in device.parts.items()
            },
        )
        for device in devices
    ]


def _longest(defence: DefenceSpec, parts: Sequence[Part]) -> float:
    longest = defence.clip_norm or math.inf
    if not defence.clip_to_median:
        return longest
    lengths = sorted(length(part.vector) for part in parts)
    # The lower median: of two devices the shorter one is the measure, so that one Byzantine device cannot raise it.
    return min(longest, defence.clip_to_median * lengths[(len(lengths) - 1) // 2])


def _by_model(devices: Sequence[Contribution]) -> dict[str, list[Part]]:
    """Return the means that a defence is about, by key; sums and extremes are none of its business."""
    found: dict[str, list[Part]] = {}
    for device in devices:
        for key, part in device.parts.items():
            if part.how == "mean":
                found.setdefault(key, []).append(part)
    return found


def _gathered(defence: DefenceSpec, devices: Sequence[Contribution]) -> Contribution:
    """Return a cluster as one: its vectors by the robust rule, its counts as the sum."""
    means = {key: _part_of_cluster(defence, parts) for key, parts in _by_model(devices).items()}
    rest = [
        msgspec.structs.replace(device, parts={key: part for key, part in device.parts.items() if key not in means})
        for device in devices
    ]
    total = Contribution.total(rest)
    return msgspec.structs.replace(total, parts=dict(sorted({**total.parts, **means}.items())))


def _part_of_cluster(defence: DefenceSpec, parts: Sequence[Part]) -> Part:
    rows = np.stack([part.vector for part in parts])
    vector = median(rows) if defence.inside == "median" else trimmed_mean(rows, defence.trim)
    n_samples, n_trained = sum(part.n_samples for part in parts), sum(part.n_trained for part in parts)
    loss = sum(part.loss * part.n_trained for part in parts) / n_trained if n_trained else 0.0
    included = DeviceSet()
    for part in parts:
        included |= part.included
    return Part(n_samples, vector, n_samples, included, loss, n_trained)


def median(rows: Vector) -> Vector:
    """Return the median of each column of (n_devices, n_params); of an even number the mean of the middle two.

    >>> median(np.array([[1.0, 9.0], [2.0, 8.0], [300.0, -700.0]]))
    array([2., 8.])
    """
    return _middle(rows, (len(rows) - 1) // 2)


def trimmed_mean(rows: Vector, trim: float) -> Vector:
    """Return the mean of each column of (n_devices, n_params) without a share of the devices at each end.

    The share is rounded up, so that so many liars are really cut off; at least one or two values stay.

    >>> trimmed_mean(np.array([[1.0], [2.0], [4.0], [900.0]]), 0.2)
    array([3.])
    """
    # Without the small number 0.1 of 10 devices could be more than one.
    n_cut = math.ceil(trim * len(rows) - 1e-9)
    return _middle(rows, min(n_cut, (len(rows) - 1) // 2))


def _middle(rows: Vector, n_cut: int) -> Vector:
    kept = np.sort(rows, axis=0)[n_cut : len(rows) - n_cut]
    # Divided first: the sum of two of the largest numbers there are would not be one.
    mean = np.sum(kept.astype(np.float64) / len(kept), axis=0)
    # Rounding must not carry the mean out of the range of what it is the mean of.
    within: Vector = np.clip(mean.astype(rows.dtype), kept[0], kept[-1])
    return within


# -- the chain --------------------------------------------------------------------------------------------------


def _bounded(defence: DefenceSpec, total: Contribution) -> Contribution:
    """Return what clusters add together, with as many samples and as long a mean as its devices may have at most.

    A head does this to its own cluster and to what it gets from upstream: a mean of vectors that are short enough is
    short enough itself, so honest heads lose nothing by the second look.
    """
    parts = {key: _bounded_part(defence, part) for key, part in total.parts.items()}
    n_samples = counted(defence, total.n_samples, len(total.included))
    return Contribution(total.included, n_samples, parts)


def _bounded_part(defence: DefenceSpec, part: Part) -> Part:
    if part.how != "mean":
        return part
    n_samples = counted(defence, part.n_samples, len(part.included))
    is_short = not defence.chain_clip or length(part.mean) <= defence.chain_clip
    if n_samples == part.n_samples and is_short:
        return part
    vector = part.mean if is_short else clipped(part.mean, defence.chain_clip)
    n_trained = min(part.n_trained, counted(defence, part.n_trained, len(part.included)))
    return Part(n_samples, vector, n_samples, part.included, part.loss, n_trained)
