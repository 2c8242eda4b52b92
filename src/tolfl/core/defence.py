"""Defences against devices that lie about their updates or their sample counts; all of them are off unless asked for.

A running mean cannot be made robust: once it is summed up, nobody can tell who is inside. So the robust rules work
where single contributions are in hand, in a cluster's head; along the chain only lengths and counts are bounded.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from tolfl.core.errors import SpecError

Inside = Literal["mean", "median", "trimmed-mean"]


class DefenceSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a head does with its members' updates before it passes their mean on.

    With `median`, `trimmed-mean`, `clip_to_median` or `chain_clip` the model depends on who is in which cluster: that
    any number of clusters gives the same model is then not promised.

    >>> DefenceSpec().is_on, DefenceSpec(max_samples=500).depends_on_layout, DefenceSpec("median").depends_on_layout
    (False, False, True)
    """

    inside: Inside = "mean"  #: of a cluster, by coordinate; median and trimmed mean give each device one vote
    trim: float = 0.2  #: trimmed-mean: this share of the devices is cut off at each end, rounded up
    clip_norm: float = 0.0  #: an update that is longer is shortened to this length; 0: off
    clip_to_median: float = 0.0  #: the same in multiples of the median length in its cluster; 0: off
    max_samples: int = 0  #: no device counts for more samples; 0: off
    chain_clip: float = 0.0  #: the longest mean update that a cluster may add to the chain; 0: off

    @property
    def is_on(self) -> bool:
        """Whether anything differs from plain sums."""
        return self.depends_on_layout or bool(self.clip_norm or self.max_samples)

    @property
    def depends_on_layout(self) -> bool:
        """Whether another number of clusters gives another model."""
        return self.inside != "mean" or bool(self.clip_to_median or self.chain_clip)

    def __str__(self) -> str:
        """Say what is on, and what is then not promised.

        >>> str(DefenceSpec("trimmed-mean", max_samples=500))
        'trimmed-mean (0.2), max_samples 500; the model depends on the clusters'
        """
        rule = {"mean": "", "median": "median", "trimmed-mean": f"trimmed-mean ({self.trim:g})"}[self.inside]
        numbers = ("clip_norm", "clip_to_median", "max_samples", "chain_clip")
        limits = [f"{name} {getattr(self, name):g}" for name in numbers if getattr(self, name)]
        note = "; the model depends on the clusters" if self.depends_on_layout else ""
        return ", ".join(filter(None, [rule, *limits])) + note

    def check(self) -> None:
        """Say in one sentence what is wrong with a number."""
        if not 0 < self.trim < 0.5:
            raise SpecError(f"defence trim {self.trim:g}; use a share above 0 and below 0.5")
        for name in ("clip_norm", "clip_to_median", "max_samples", "chain_clip"):
            number = getattr(self, name)
            if not 0 <= number < math.inf:
                raise SpecError(f"defence {name} {number:g}; use a number above 0, or 0 for none")
