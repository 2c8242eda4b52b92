"""Order statistics of scores that never leave their devices: only counts travel, and the answer is exact.

A score is 32 bits, and floating-point numbers sort like their bits. So the value of a rank is found eight bits at a
time: every device says how many of its scores begin with each of 256 continuations of the bits known so far, the counts
are added along the chain, and after four rounds all bits are known. No range has to be agreed on first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tolfl.core.contribution import GLOBAL, Contribution
from tolfl.core.errors import DataError

Scores = NDArray[np.floating]
Counts = NDArray[np.int64]

_SIGN = np.uint32(1 << 31)
_STEPS = (24, 16, 8, 0)  #: which bits each round finds, as shifts


def order_statistics(scores: Mapping[int, Scores], ranks: Sequence[int]) -> NDArray[np.float32]:
    """Return the scores of these ranks (1 is the lowest) over all devices, as float32.

    >>> order_statistics({0: np.array([3.0, 1.0]), 4: np.array([2.0])}, [1, 3]).tolist()
    [1.0, 3.0]
    """
    keys = {device: to_keys(values).astype(np.uint64) for device, values in scores.items()}
    n_scores = sum(len(of_device) for of_device in keys.values())
    if not ranks:
        return np.empty(0, np.float32)
    if min(ranks) < 1 or max(ranks) > n_scores:
        raise DataError(f"ranks {min(ranks)} to {max(ranks)} of {n_scores} scores; give ranks from 1 to {n_scores}")
    prefixes = np.zeros(len(ranks), np.uint64)
    left = np.array(ranks, dtype=np.int64)
    for shift in _STEPS:
        known, which = np.unique(prefixes, return_inverse=True)  # many ranks begin alike: one histogram serves them
        counts = summed((device, bin_counts(of_device, known, shift)) for device, of_device in keys.items())[which]
        below = np.concatenate([np.zeros((len(ranks), 1), np.int64), np.cumsum(counts, axis=1)], axis=1)
        chosen = (below[:, 1:] < left[:, None]).sum(axis=1)
        left -= np.take_along_axis(below, chosen[:, None], axis=1)[:, 0]
        prefixes = (prefixes << np.uint64(8)) + chosen.astype(np.uint64)
    return from_keys(prefixes.astype(np.uint32))


def counts_at(scores: Mapping[int, Scores], levels: NDArray[np.float32]) -> tuple[Counts, Counts]:
    """Return how many scores of all devices are at least as high as each level, and how many are higher."""
    both = summed((device, levels_counts(values, levels)) for device, values in scores.items())
    return both[0], both[1]


def summed(counts: Iterable[tuple[int, Counts]]) -> Counts:
    """Return counts added up as the chain adds contributions, each device with weight 1: whole numbers, no rounding."""
    shape: tuple[int, ...] = ()

    def contributions() -> Iterator[Contribution]:  # one at a time: the counts of 10,000 devices are gigabytes
        nonlocal shape
        for device, of_device in counts:
            shape = of_device.shape
            yield Contribution.of_device(device, 1, {GLOBAL: of_device.ravel().astype(np.float64)})

    total = Contribution.total(contributions())
    return total.parts[GLOBAL].vector.astype(np.int64).reshape(shape)


def to_keys(scores: Scores) -> NDArray[np.uint32]:
    """Return whole numbers that sort as the scores do."""
    # Adding 0 turns -0.0 into 0.0: they are equal, and their bits are not.
    bits = (np.asarray(scores, np.float32) + np.float32(0.0)).view(np.uint32)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def from_keys(keys: NDArray[np.uint32]) -> NDArray[np.float32]:
    """Return the scores that have these keys."""
    return np.where(keys & _SIGN, keys & ~_SIGN, ~keys).astype(np.uint32).view(np.float32)


def bin_counts(keys: NDArray[np.uint64], prefixes: NDArray[np.uint64], shift: int) -> Counts:
    """Return how many keys begin with each prefix and go on with each of 256 values, shape `(n_prefixes, 256)`."""
    found = np.bincount(bin_places(keys, prefixes, shift), minlength=256 * len(prefixes))
    return found.reshape(len(prefixes), 256)


def bin_places(keys: NDArray[np.uint64], prefixes: NDArray[np.uint64], shift: int) -> Counts:
    """Return the bin of each key that begins with a prefix: 256 for the first prefix, then those of the next."""
    begun = keys >> np.uint64(shift)
    prefix, value = begun >> np.uint64(8), (begun & np.uint64(255)).astype(np.int64)
    place = np.minimum(np.searchsorted(prefixes, prefix), len(prefixes) - 1)
    matches = prefixes[place] == prefix
    places: Counts = place[matches] * 256 + value[matches]
    return places


def levels_counts(values: Scores, levels: NDArray[np.float32]) -> Counts:
    """Return how many of a device's scores are at least as high as each level, and how many higher: `(2, n_levels)`."""
    ordered = np.sort(np.asarray(values, np.float32))
    return len(ordered) - np.stack([np.searchsorted(ordered, levels, side=side) for side in ("left", "right")])
