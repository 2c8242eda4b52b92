"""What every source of signals becomes: rows of features, one per window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)  # arrays: equality is identity
class SignalRows:
    """Neighbouring windows in order of time; none, where a live source has nothing new."""

    names: tuple[str, ...]
    """Of the features, with units in brackets."""
    start_s: NDArray[np.float64]
    """When each window starts: of captures since 1970, of recordings and simulations since their beginning."""
    features: NDArray[np.float64]
    """Shape `(n_windows, n_features)`."""
    is_partial: NDArray[np.bool_] | None = None
    """Which windows a capture holds only a part of; None: this is no capture."""
    keys: tuple[str, ...] = ()
    """The network or channel that each row is about, where rows are per network or channel."""
    labels: tuple[str, ...] = ()
    """What the annotations of a recording say of each window."""

    @property
    def is_whole(self) -> NDArray[np.bool_]:
        """Which windows are there from their beginning to their end."""
        return np.ones(len(self.start_s), np.bool_) if self.is_partial is None else ~self.is_partial
