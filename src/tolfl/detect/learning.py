"""What a fleet has learned: parameters by model, and the principal directions or distances that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tolfl.core.contribution import Vector
from tolfl.detect.mahalanobis import Distance
from tolfl.detect.pca import Subspace, subspace_of
from tolfl.detect.spec import DetectorSpec

if TYPE_CHECKING:
    from tolfl.learners.autoencoder import Autoencoder


@dataclass(frozen=True, eq=False)
class Learned:
    """What devices agree on after training: parameters by model."""

    kind: str  #: `pca`, `mahalanobis` or `autoencoder`
    params: dict[str, Vector]
    code: int  #: components, or the width of the code; the distance has none
    n_samples: dict[str, int]  #: behind the parameters of each model
    origin: NDArray[np.float64] | None = None  #: of the statistics of PCA and of the distance

    def subspaces(self) -> dict[str, Subspace]:
        """Return the principal directions of each model."""
        if self.origin is None:
            raise LookupError("an autoencoder has no principal directions")
        return {name: subspace_of(params, self.origin) for name, params in self.params.items()}

    def distances(self) -> dict[str, Distance]:
        """Return the distance to the mean of each model's samples."""
        return {name: Distance.of(subspace, self.n_samples[name]) for name, subspace in self.subspaces().items()}


def autoencoder_for(n_features: int, spec: DetectorSpec) -> Autoencoder:
    """Return the autoencoder; its code is half of the features at most, or there is nothing to learn."""
    from tolfl.learners.autoencoder import Autoencoder  # noqa: PLC0415  (the exported scorer does without it)

    return Autoencoder(n_features, spec.hidden, code_for(n_features, spec), spec.dropout)


def code_for(n_features: int, spec: DetectorSpec) -> int:
    """Return the width of the code.

    >>> code_for(10, DetectorSpec(code=32)), code_for(100, DetectorSpec(code=32))
    (5, 32)
    """
    return min(spec.code, max(1, n_features // 2))
