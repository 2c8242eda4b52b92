"""Train what was asked for; with `auto`, train every kind and keep the one that tells typical from made-up samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import DivergedError, SpecError
from tolfl.datasets.federated import Samples
from tolfl.detect.choosing import Candidate, Choice, choose, possible_components, separations
from tolfl.detect.learning import Trained, learn_autoencoder, learn_pca, used_as
from tolfl.detect.mahalanobis import Distance
from tolfl.detect.network import lowest_errors
from tolfl.detect.spec import FROM_STATISTICS, ONE_MODEL, DetectorSpec

#: Products of more features than this are too much to send: 2,000 features are 16 MB.
_MAX_PCA_FEATURES = 2000
_EXPLAINED = 0.9  #: of the variance, where nothing can be compared


def choose_model(
    train: Sequence[Samples], held_back: Sequence[Samples], origin: NDArray[np.floating], spec: DetectorSpec
) -> tuple[Trained, Choice]:
    """Return the model to use and why."""
    n_features = len(origin)
    why_none = _why_no_statistics(spec, n_features)
    if spec.model == "autoencoder" or why_none:
        trained = learn_autoencoder(train, spec)
        reason = f"autoencoder: {why_none}" if why_none else "autoencoder was asked for"
        return trained, Choice("autoencoder", trained.learned.code, reason)
    statistics = learn_pca(train, spec, origin)
    if spec.model == "mahalanobis":
        return _used(statistics, Choice("mahalanobis", 0, "mahalanobis was asked for"))
    kept = {device: held_back[device] for device in statistics.survivors}
    candidates = _from_statistics(statistics, kept, spec, n_features, sum(map(len, train)))
    if candidates[0].separation is None:
        return _used(statistics, _without_comparison(statistics, spec))
    if spec.model == "pca":
        return _used(statistics, choose(candidates))
    try:
        autoencoder = learn_autoencoder(train, spec)
    except DivergedError as error:
        return _used(statistics, choose([*candidates, Candidate("autoencoder", spec.code, None, str(error))]))
    networks = list(autoencoder.learned.networks(spec).values())
    separation = separations(kept, lambda samples: lowest_errors(networks, samples)[None, :], spec.seed)
    found = None if separation is None else float(separation[0])
    choice = choose([*candidates, Candidate("autoencoder", autoencoder.learned.code, found)])
    return (autoencoder, choice) if choice.model == "autoencoder" else _used(statistics, choice)


def _used(statistics: Trained, choice: Choice) -> tuple[Trained, Choice]:
    return used_as(statistics, choice.model, choice.code), choice


def _why_no_statistics(spec: DetectorSpec, n_features: int) -> str:
    if spec.model in FROM_STATISTICS:
        return ""
    if spec.scheme not in ONE_MODEL:
        return f"scheme {spec.scheme} has several models, and PCA is one for everybody"
    if n_features > _MAX_PCA_FEATURES:
        return f"PCA would send the products of {n_features} features"
    return ""


def _from_statistics(
    statistics: Trained, kept: dict[int, Samples], spec: DetectorSpec, n_features: int, n_samples: int
) -> list[Candidate]:
    """Return what the statistics can be used as: PCA of some numbers of components and, with `auto`, the distance."""
    asked = spec.n_components
    if asked is not None and asked > n_features:
        raise SpecError(f"n_components {asked} for {n_features} features; use fewer than the features")
    numbers = possible_components(n_features, n_samples) if asked is None else [asked]
    learned = statistics.learned
    subspaces = learned.subspaces()
    # Not `learned.distances()`, which would look for the principal directions a second time.
    names = subspaces if spec.model == "auto" else ()
    distances = [Distance.of(subspaces[name], learned.n_samples[name]) for name in names]

    def errors(samples: Samples) -> NDArray[np.float64]:
        lowest: NDArray[np.float64] = np.min([one.errors(samples, numbers) for one in subspaces.values()], axis=0)
        if distances:
            lowest = np.vstack([lowest, np.min([one.squared(samples) for one in distances], axis=0)])
        return lowest

    models = [("pca", number) for number in numbers] + [("mahalanobis", 0)] * bool(distances)
    found = separations(kept, errors, spec.seed)
    values = [None] * len(models) if found is None else found.tolist()
    return [Candidate(*model, value) for model, value in zip(models, values, strict=True)]


def _without_comparison(statistics: Trained, spec: DetectorSpec) -> Choice:
    """Return what to use where too few rows are held back to compare anything."""
    if spec.model == "auto":
        return Choice("mahalanobis", 0, "mahalanobis: nothing to compare models on, and it has no number to choose")
    if spec.n_components is not None:
        return Choice("pca", spec.n_components, "pca with so many components was asked for")
    variances = next(iter(statistics.learned.subspaces().values())).variances
    n_features, total = len(variances), float(variances.sum())
    explained = np.cumsum(variances) / total if total > 0 else np.ones(n_features)
    number = min(int(np.searchsorted(explained, _EXPLAINED)) + 1, n_features - 1)
    reason = (
        f"pca: nothing to compare models on, so {number} component(s) that explain {_EXPLAINED:.0%} of the variance"
    )
    return Choice("pca", number, reason)
