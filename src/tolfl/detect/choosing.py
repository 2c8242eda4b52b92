"""PCA of how many components? Decided without labels.

The error of held-back typical samples cannot decide: the widest model has the least, and one that reconstructs
everything detects nothing. So each device makes up samples that are almost typical: half of a held-back sample, a run
of neighbouring features, is exchanged for that of another sample of the same device. Every value is one that the device
has seen; what no longer holds is how the halves go together, and a model that has learned that scores them higher. What
counts is how often (an AUROC, worked out on each device; the mean over samples travels). Too few components have not
learned enough, too many reconstruct the made-up samples as well.

Among numbers within `_TOLERANCE` of the best, the smallest is taken: the curve is flat near its top, and a code is what
a model forgives. However far out a sample lies along it, there is no error, and made-up samples, whose values are all
usual, never show that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.core.seeding import Purpose, rng_for
from tolfl.datasets.federated import Samples

Score = Callable[[Samples], NDArray[np.floating]]

_TOLERANCE = 0.01
_MAX_COMPONENTS = 64
_MADE_UP = 2  #: stream of `Purpose.PARTITION`
_ROWS_PER_DEVICE = 2000  #: enough for an AUROC
EXPLAINED = 0.9  #: of the variance, where nothing can be compared


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


def most_components(n_features: int) -> int:
    """Return the largest number of components worth trying: all of them would explain everything."""
    return max(0, min(n_features - 1, _MAX_COMPONENTS))


def possible_components(n_features: int, n_samples: int) -> list[int]:
    """Return numbers of components worth trying; 0 is the distance to the mean.

    >>> possible_components(10, 100)
    [0, 1, 2, 3, 4, 6, 8]
    """
    most = min(most_components(n_features), n_samples - 1)
    powers = [2**exponent for exponent in range(7)]
    return sorted({0} | {n for power in powers for n in (power, 3 * power // 2) if n <= most})


def components_that_explain(variances: NDArray[np.float64], share: float = EXPLAINED) -> int:
    """Return how many components have this share of the variance: where there is nothing to compare numbers on.

    >>> components_that_explain(np.array([8.0, 1.5, 0.5]))
    2
    """
    n_features, total = len(variances), float(variances.sum())
    explained = np.cumsum(variances) / total if total > 0 else np.ones(n_features)
    return min(int(np.searchsorted(explained, share)) + 1, n_features - 1)


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


def n_compared(held_back: Samples) -> int:
    """Return how many held-back samples of a device are compared with made-up ones."""
    return min(len(held_back), _ROWS_PER_DEVICE)


def separations(held_back: Samples, scores: Score, seed: int, device: int) -> NDArray[np.float64] | None:
    """Return how well a device's made-up samples are told from its held-back ones, one number for each model.

    `scores` takes samples and returns `(n_models, n_samples)`. None where there are not two samples, or features.
    """
    if min(held_back.shape) < 2:
        return None
    rows = held_back[:_ROWS_PER_DEVICE]
    return _aurocs(scores(rows), scores(made_up(rows, seed, device)))


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
    from scipy.stats import rankdata  # noqa: PLC0415  (only training chooses)

    ranks = rankdata(np.concatenate([typical, strange], axis=1), axis=1)
    n_typical, n_strange = typical.shape[1], strange.shape[1]
    above = ranks[:, n_typical:].sum(axis=1) - n_strange * (n_strange + 1) / 2
    return np.asarray(above / (n_typical * n_strange), dtype=np.float64)
