"""What both sides are measured by: rounds with the moment of their end, and the round that a kill disturbs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Round:
    """A round that has ended."""

    time_s: float
    n_devices: int
    number: int


def lengths(rounds: Sequence[Round]) -> list[float]:
    """Return how long each round took; the first one only begins."""
    return [later.time_s - earlier.time_s for earlier, later in itertools.pairwise(rounds)]


def disturbed_s(rounds: Sequence[Round], killed_s: float, n_left: int) -> float:
    """Return the longest round among those that end after a kill, up to the first one with those who are left.

    >>> rounds = [Round(1, 3, 1), Round(2, 3, 2), Round(9, 3, 3), Round(10, 2, 4), Round(30, 2, 5)]
    >>> disturbed_s(rounds, killed_s=2.5, n_left=2)
    7
    """
    taken = []
    for earlier, later in itertools.pairwise(rounds):
        if later.time_s > killed_s:
            taken.append(later.time_s - earlier.time_s)
            if later.n_devices == n_left:
                break
    return max(taken)
