"""Train what was asked for; with `auto`, train every kind and keep the one that tells typical from made-up samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import NonFiniteLossError, NonFiniteModelError, SpecError
from tolfl.datasets.federated import Samples
from tolfl.detect.choosing import Candidate, Choice, choose, possible_components, separations
from tolfl.detect.learning import Trained, learn_autoencoder, learn_pca, with_components
from tolfl.detect.network import lowest_errors
from tolfl.detect.spec import ONE_MODEL, DetectorSpec

#: Products of more features than this are too much to send: 2,000 features are 16 MB.
_MAX_PCA_FEATURES = 2000
_EXPLAINED = 0.9  #: of the variance, where nothing can be compared


def choose_model(
    train: Sequence[Samples], held_back: Sequence[Samples], origin: NDArray[np.floating], spec: DetectorSpec
) -> tuple[Trained, Choice]:
    """Return the model to use and why."""
    n_features = len(origin)
    why_no_pca = _why_no_pca(spec, n_features)
    if spec.model == "autoencoder" or why_no_pca:
        trained = learn_autoencoder(train, spec)
        reason = f"autoencoder: {why_no_pca}" if why_no_pca else "autoencoder was asked for"
        return trained, Choice("autoencoder", trained.learned.code, reason)
    pca = learn_pca(train, spec, origin)
    kept = {device: held_back[device] for device in pca.survivors}
    candidates = _pca_candidates(pca, kept, spec, n_features, sum(map(len, train)))
    if candidates[0].separation is None:
        return _pca_without_comparison(pca, spec)
    if spec.model == "pca":
        choice = choose(candidates)
        return with_components(pca, choice.code), choice
    try:
        autoencoder = learn_autoencoder(train, spec)
    except (NonFiniteLossError, NonFiniteModelError) as error:
        choice = choose([*candidates, Candidate("autoencoder", spec.code, None, str(error))])
        return with_components(pca, choice.code), choice
    networks = list(autoencoder.learned.networks(spec).values())
    separation = separations(kept, lambda samples: lowest_errors(networks, samples)[None, :], spec.seed)
    found = None if separation is None else float(separation[0])
    choice = choose([*candidates, Candidate("autoencoder", autoencoder.learned.code, found)])
    if choice.model == "autoencoder":
        return autoencoder, choice
    return with_components(pca, choice.code), choice


def _why_no_pca(spec: DetectorSpec, n_features: int) -> str:
    if spec.model == "pca":
        return ""
    if spec.scheme not in ONE_MODEL:
        return f"scheme {spec.scheme} has several models, and PCA is one for everybody"
    if n_features > _MAX_PCA_FEATURES:
        return f"PCA would send the products of {n_features} features"
    return ""


def _pca_candidates(
    pca: Trained, kept: dict[int, Samples], spec: DetectorSpec, n_features: int, n_samples: int
) -> list[Candidate]:
    asked = spec.n_components
    if asked is not None and asked > n_features:
        raise SpecError(f"n_components {asked} for {n_features} features; use fewer than the features")
    numbers = possible_components(n_features, n_samples) if asked is None else [asked]
    subspaces = list(pca.learned.subspaces().values())

    def errors(samples: Samples) -> NDArray[np.float64]:
        lowest: NDArray[np.float64] = np.min([one.errors(samples, numbers) for one in subspaces], axis=0)
        return lowest

    found = separations(kept, errors, spec.seed)
    values = [None] * len(numbers) if found is None else found.tolist()
    return [Candidate("pca", number, value) for number, value in zip(numbers, values, strict=True)]


def _pca_without_comparison(pca: Trained, spec: DetectorSpec) -> tuple[Trained, Choice]:
    """Return PCA with components that explain most of the variance: too few rows are held back to compare anything."""
    if spec.n_components is not None:
        reason = "pca with so many components was asked for"
        return with_components(pca, spec.n_components), Choice("pca", spec.n_components, reason)
    variances = next(iter(pca.learned.subspaces().values())).variances
    n_features, total = len(variances), float(variances.sum())
    explained = np.cumsum(variances) / total if total > 0 else np.ones(n_features)
    number = min(int(np.searchsorted(explained, _EXPLAINED)) + 1, n_features - 1)
    reason = (
        f"pca: nothing to compare models on, so {number} component(s) that explain {_EXPLAINED:.0%} of the variance"
    )
    return with_components(pca, number), Choice("pca", number, reason)
