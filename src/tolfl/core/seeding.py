"""Randomness by purpose: nobody holds a generator, so order, layout and process cannot change a result.

There are two functions. `rng_for` gives a NumPy generator for work that happens once (data, initial weights).
`random_words` gives the raw bits of many devices at once, for work that happens in every training step; it is a
counter-based generator (SplitMix64), so a device draws the same bits alone or in a batch of thousands.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Purpose(IntEnum):
    """What a random draw is for. Numbers are part of every stored result: never renumber, only append."""

    MODEL_INIT = 1
    BATCH_ORDER = 2
    DROPOUT = 3
    DATA = 4
    PARTITION = 5
    FAILURES = 6
    MODULE = 7
    COMPUTE_SPEED = 8
    CLUSTERING = 9
    STATISTICS = 10


def rng_for(seed: int, purpose: Purpose, device: int = 0, round_index: int = 0) -> np.random.Generator:
    """Return a fresh generator that depends on nothing but its arguments.

    >>> bool(rng_for(0, Purpose.DATA).integers(100) == rng_for(0, Purpose.DATA).integers(100))
    True
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(int(purpose), device, round_index))
    return np.random.Generator(np.random.PCG64(sequence))


_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply SplitMix64's finaliser in place (Steele, Lea, Flood: Fast splittable generators, 2014)."""
    scratch = words >> np.uint64(30)
    words ^= scratch
    words *= _MIX_1
    np.right_shift(words, np.uint64(27), out=scratch)
    words ^= scratch
    words *= _MIX_2
    np.right_shift(words, np.uint64(31), out=scratch)
    words ^= scratch
    return words


def stream_keys(seeds: ArrayLike, purpose: Purpose, devices: ArrayLike, rounds: ArrayLike) -> NDArray[np.uint64]:
    """Return one 64-bit stream key for each (seed, device, round); arguments broadcast."""
    parts = np.broadcast_arrays(*(np.asarray(part, dtype=np.uint64) for part in (seeds, devices, rounds)))
    keys = np.full(parts[0].shape, np.uint64(int(purpose)), dtype=np.uint64)
    for part in parts:
        keys += _GAMMA
        keys = _mix(keys) ^ part
    return _mix(keys + _GAMMA)


def random_words(keys: NDArray[np.uint64], n_words: int, first: int = 0) -> NDArray[np.uint64]:
    """Return words `first` to `first + n_words` of every stream, shape `(n_streams, n_words)`.

    >>> keys = stream_keys(0, Purpose.DROPOUT, devices=[3, 4], rounds=7)
    >>> bool((random_words(keys, 5)[1] == random_words(keys[1:], 5)[0]).all())
    True
    """
    counters = np.arange(first + 1, first + 1 + n_words, dtype=np.uint64) * _GAMMA
    return _mix(keys[:, None] + counters[None, :])
