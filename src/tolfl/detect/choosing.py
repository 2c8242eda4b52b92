"""`model="auto"`: PCA of how many components, the Mahalanobis distance, or the autoencoder? Decided without labels.

The error of held-back typical samples cannot decide: the widest model has the least, and one that reconstructs
everything detects nothing. So each device makes up samples that are almost typical: half of a held-back sample, a run
of neighbouring features, is exchanged for that of another sample of the same device. Every value is one that the device
has seen; what no longer holds is how the halves go together, and a model that has learned that scores them higher. What
counts is how often (an AUROC, worked out on each device; the mean over samples travels). Too few components have not
learned enough, too many reconstruct the made-up samples as well.

Among models within `_TOLERANCE` of the best, the one with the smallest code is taken: the curve is flat near its top,
and a code is what a model forgives. However far out a sample lies along it, there is no error, and made-up samples,
whose values are all usual, never show that. The Mahalanobis distance forgives nothing: its code is 0, as that of the
distance to the mean. What it has to estimate instead is shrunk, and tried on held-back samples like everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from tolfl.core.contribution import GLOBAL, Contribution
from tolfl.core.seeding import Purpose, rng_for
from tolfl.datasets.federated import Samples

Score = Callable[[Samples], NDArray[np.floating]]

_TOLERANCE = 0.01
_MAX_COMPONENTS = 64
_MADE_UP = 2  #: stream of `Purpose.PARTITION`
_ROWS_PER_DEVICE = 2000  #: enough for an AUROC


class Candidate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model that could be used."""

    model: str
    code: int  #: components, or the width of the code; 0 for the distance, which has none
    separation: float | None  #: AUROC of made-up against held-back samples; None: it could not be tried
    note: str = ""

    @property
    def name(self) -> str:
        """What tables call it."""
        return name_of(self.model, self.code)


class Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was chosen, among what, and why."""

    model: str
    code: int
    reason: str
    candidates: tuple[Candidate, ...] = ()

    @property
    def name(self) -> str:
        """What tables call it."""
        return name_of(self.model, self.code)


def name_of(model: str, code: int) -> str:
    """Return what tables call a model.

    >>> name_of("pca", 16), name_of("mahalanobis", 0)
    ('pca-16', 'mahalanobis')
    """
    return model if model == "mahalanobis" else f"{model}-{code}"


def possible_components(n_features: int, n_samples: int) -> list[int]:
    """Return numbers of components worth trying: 0 is the distance to the mean; all of them would explain everything.

    >>> possible_components(10, 100)
    [0, 1, 2, 3, 4, 6, 8]
    """
    most = min(n_features - 1, n_samples - 1, _MAX_COMPONENTS)
    powers = [2**exponent for exponent in range(7)]
    return sorted({0} | {n for power in powers for n in (power, 3 * power // 2) if n <= most})


def made_up(samples: Samples, seed: int, device: int) -> Samples:
    """Return samples of which half, a run of features, is that of another one."""
    rng = rng_for(seed, Purpose.PARTITION, device, _MADE_UP)
    n_rows, n_features = samples.shape
    length = max(1, n_features // 2)
    # A shift by at least one: nobody is mixed with itself.
    others = samples[(np.arange(n_rows) + rng.integers(1, max(2, n_rows), n_rows)) % n_rows]
    first = rng.integers(0, n_features - length + 1, n_rows)[:, None]
    column = np.arange(n_features)[None, :]
    return np.where((column >= first) & (column < first + length), others, samples)


def separations(
    held_back: Mapping[int, Samples], scores: Callable[[Samples], NDArray[np.floating]], seed: int
) -> NDArray[np.float64] | None:
    """Return how well made-up samples are told from held-back ones, one number per row that `scores` returns.

    `scores` takes samples and returns `(n_models, n_samples)`. None where no device has two held-back samples.
    """
    told = []
    for device, samples in held_back.items():
        if len(samples) >= 2 and samples.shape[1] >= 2:
            rows = samples[:_ROWS_PER_DEVICE]
            typical, strange = scores(rows), scores(made_up(rows, seed, device))
            values = _aurocs(typical, strange)
            told.append(Contribution.of_device(device, len(rows), {GLOBAL: values}))
    if not told:
        return None
    return np.asarray(Contribution.total(told).parts[GLOBAL].mean, dtype=np.float64)


def choose(candidates: Sequence[Candidate]) -> Choice:
    """Return the smallest code among the best."""
    tried = [candidate for candidate in candidates if candidate.separation is not None]
    best = max(tried, key=_separation)
    good = [candidate for candidate in tried if _separation(candidate) >= _separation(best) - _TOLERANCE]
    chosen = min(good, key=lambda candidate: (candidate.code, -_separation(candidate)))
    reason = (
        f"{chosen.name} tells made-up from held-back samples with an AUROC of {_separation(chosen):.3f}; "
        f"the best of {len(tried)}, {best.name}, with {_separation(best):.3f}"
    )
    if chosen is not best:
        taken = "the smaller code" if chosen.code else "the one without a code"
        reason += f": no more than {_TOLERANCE:g} apart, so {taken} is taken"
    return Choice(chosen.model, chosen.code, reason, tuple(candidates))


def _separation(candidate: Candidate) -> float:
    return -1.0 if candidate.separation is None else candidate.separation


def _aurocs(typical: NDArray[np.floating], strange: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return row by row the odds that a strange score is above a typical one, ties one half (Mann, Whitney)."""
    ranks = rankdata(np.concatenate([typical, strange], axis=1), axis=1)
    n_typical, n_strange = typical.shape[1], strange.shape[1]
    above = ranks[:, n_typical:].sum(axis=1) - n_strange * (n_strange + 1) / 2
    return np.asarray(above / (n_typical * n_strange), dtype=np.float64)
