"""Random generators of the simulation: one for each seed, scenario, region, use and node.

All draws are `rng_for(seed, Purpose.DATA, device=node, round_index=...)`. Other data sets draw with round index 0,
which is never used here; scenario, use and region have a field of their own in the round index: none overlap.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from tolfl.core.seeding import Purpose, rng_for

_FIRST = 2**24  #: beyond every round index that anybody else may use
_USES, _REGIONS = 16, 1024


class Scenario(IntEnum):
    """What is simulated. Numbers are part of every stored result: never renumber, only append."""

    TYPICAL = 0
    RATE = 1
    BLUETOOTH = 2
    RARE = 3


class Use(IntEnum):
    """What a draw is for. Numbers are part of every stored result: never renumber, only append."""

    TRAFFIC = 0
    TAPS = 1
    CHANNEL = 2
    BLUETOOTH = 3
    PLACE = 4
    FADING = 5
    NOISE = 6
    EMISSIONS = 7


def stream(
    seed: int, use: Use, *, region: int, node: int = 0, scenario: Scenario = Scenario.TYPICAL
) -> np.random.Generator:
    """Return the generator of one node (or of a whole region: node 0) for one use.

    >>> one, same = (stream(7, Use.TRAFFIC, region=2, node=3).integers(1000) for _ in range(2))
    >>> bool(one == same), bool(one == stream(7, Use.TRAFFIC, region=3, node=3).integers(1000))
    (True, False)
    """
    if not 0 <= region < _REGIONS:
        raise ValueError(f"region {region}; use 0 to {_REGIONS - 1}")
    index = _FIRST + (int(scenario) * _USES + int(use)) * _REGIONS + region
    return rng_for(seed, Purpose.DATA, device=node, round_index=index)
