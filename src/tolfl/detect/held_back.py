"""Which rows of a device train, and which are held back for thresholds and choices."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tolfl.core.seeding import Purpose, rng_for

Places = NDArray[np.int32]

_HELD_BACK = 1  #: stream of `Purpose.PARTITION`


@lru_cache(maxsize=2**14)  # every round splits the rows of every device again
def split(n_rows: int, share: float, seed: int, device: int) -> tuple[Places, Places]:
    """Return the places of a device's rows that train and of those held back, both ascending; a single row trains.

    They are drawn by seed, device and number of rows.

    >>> [places.tolist() for places in split(5, 0.4, seed=0, device=0)]
    [[0, 1, 3], [2, 4]]
    """
    order = rng_for(seed, Purpose.PARTITION, device, _HELD_BACK).permutation(n_rows).astype(np.int32)
    n_held_back = int(n_rows * share)
    return np.sort(order[n_held_back:]), np.sort(order[:n_held_back])
