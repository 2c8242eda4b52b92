"""Seconds of a capture that look like an attack: whoever learns from them takes them for usual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

#: Frames that come in numbers when somebody attacks, and hardly ever else.
_TELLING = ("deauthentications", "disassociations", "authentications", "associations")
_MANY = 20  #: in a window, and more than that above the median
_BEFORE_S, _BEHIND_S = 1.0, 11.0  #: what is near a burst: sums over ten seconds echo it
_MOST_NAMED = 8


@dataclass(frozen=True, eq=False)
class Bursts:
    """Which windows look like an attack."""

    is_near: NDArray[np.bool_]  #: in a burst, or so near that sums still have it
    sentence: str  #: what they are and when; empty: there are none


def bursts_in(names: Sequence[str], features: NDArray[np.float64], starts_s: NDArray[np.float64]) -> Bursts:
    """Return the bursts of management frames in windows of 802.11; of other captures there are none."""
    plain = [name.split(" ")[0] for name in names]
    is_burst, peaks = np.zeros(len(features), np.bool_), []
    for name in _TELLING:
        if name in plain:
            counts = features[:, plain.index(name)]
            is_many = counts > _MANY + np.median(counts)
            peaks += [f"{name} up to {counts.max():.0f}"] if is_many.any() else []
            is_burst |= is_many
    if not is_burst.any():
        return Bursts(is_burst, "")
    when = starts_s[is_burst]
    off = starts_s[:, None] - when
    is_near: NDArray[np.bool_] = np.any((off >= -_BEFORE_S) & (off <= _BEHIND_S), axis=1)
    firsts = when[np.concatenate([[True], np.diff(when) > _BEHIND_S])]
    told = ", ".join(f"{datetime.fromtimestamp(one, UTC):%H:%M:%S}" for one in firsts[:_MOST_NAMED].tolist())
    more = ", ..." if len(firsts) > _MOST_NAMED else ""
    return Bursts(
        is_near,
        f"{int(is_burst.sum())} windows hold bursts that look like attacks ({', '.join(peaks)}), "
        f"from {told}{more} (UTC)",
    )
