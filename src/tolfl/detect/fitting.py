"""From each device's rows to a detector: hold back, scale, train, choose, agree on thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from tolfl.core.errors import DataError
from tolfl.core.seeding import Purpose, rng_for
from tolfl.datasets.federated import Samples
from tolfl.datasets.scaling import Moments, Scaler, merged
from tolfl.detect.choosing import name_of
from tolfl.detect.features import Features, Rows, as_rows
from tolfl.detect.fitted import Detector
from tolfl.detect.learning import Trained, learn_autoencoder, learn_pca, only_model, used_as, with_components
from tolfl.detect.model_choice import choose_model
from tolfl.detect.network import Floats32, ScoringNetwork, lowest_errors
from tolfl.detect.provenance import Training, training_of
from tolfl.detect.quantiles import order_statistics
from tolfl.detect.spec import DetectorSpec
from tolfl.detect.thresholds import Thresholds, agree

_HELD_BACK = 1  #: stream of `Purpose.PARTITION`
_TRIM_PASSES, _TRIM_COMPONENTS = 3, 4


@dataclass(frozen=True, eq=False)
class Parts:
    """Raw rows of each device: those it trains on, and those it holds back."""

    names: tuple[str, ...]
    train: list[Rows]
    held_back: list[Rows]

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """How many rows each device has of either kind."""
        return [(len(train), len(held)) for train, held in zip(self.train, self.held_back, strict=True)]


def fit_detector(slices: Mapping[str, object], spec: DetectorSpec, features: Features | None = None) -> Detector:
    """Train a detector on typical rows, one table per device.

    >>> rng = np.random.default_rng(0)
    >>> rows = {name: rng.normal(size=(200, 1)) @ [[1.0, 2.0, 3.0]] + 0.01 * rng.normal(size=(200, 3)) for name in "ab"}
    >>> detector = fit_detector(rows, DetectorSpec(model="pca"))
    >>> detector.choice.code, detector.verdicts([[1.0, 2.0, 3.0], [1.0, 2.0, -3.0]]).tolist()
    (1, [False, True])
    """
    spec.check()
    features = features or _features_of(slices)
    parts = split(_checked(slices, features), spec.held_back, spec.seed)
    if spec.trim:
        return _fit_once(
            trimmed(parts, spec), spec, features, f"the strangest {spec.trim:.1%} of the rows are left out"
        )
    return _fit_once(parts, spec, features)


def fit_more(detector: Detector, slices: Mapping[str, object], spec: DetectorSpec | None = None) -> Detector:
    """Return a detector that has gone on training on new typical rows; the one given stays as it is.

    Scaling, kind of model and size of its code stay; the thresholds are agreed on anew, by the devices at hand.
    """
    spec = (spec or detector.spec).check()
    only_model(detector.learned)
    parts = split(_checked(slices, detector.features), spec.held_back, spec.seed + len(detector.trainings))
    train = [detector.scaler(rows) for rows in parts.train]
    before = detector.learned
    if before.origin is not None:
        trained = used_as(learn_pca(train, spec, before.origin, before), before.kind, before.code)
    else:
        trained = learn_autoencoder(train, _with_architecture(spec, detector.spec), before)
    return _finished(detector, parts, trained, spec)


def split(slices: Mapping[str, Rows], share: float, seed: int) -> Parts:
    """Return which rows of each device train and which are held back, drawn at random; a single row trains."""
    train, held = [], []
    for device, rows in enumerate(slices.values()):
        order = rng_for(seed, Purpose.PARTITION, device, _HELD_BACK).permutation(len(rows))
        n_held = int(len(rows) * share)
        train.append(rows[np.sort(order[n_held:])])
        held.append(rows[np.sort(order[:n_held])])
    return Parts(tuple(slices), train, held)


def _fit_once(parts: Parts, spec: DetectorSpec, features: Features, note: str = "") -> Detector:
    scaler, origin = _scaling(parts, spec)
    train, held_back = [scaler(rows) for rows in parts.train], [scaler(rows) for rows in parts.held_back]
    trained, choice = choose_model(train, held_back, origin, spec)
    if note:
        trained = replace(trained, notes=(*trained.notes, note))
    networks = trained.learned.networks(spec)
    training = _training(parts, trained, spec)
    thresholds = _thresholds(parts, trained, networks, scaler, spec)
    return Detector(spec, features, scaler, trained.learned, networks, thresholds, choice, (training,))


def _finished(detector: Detector, parts: Parts, trained: Trained, spec: DetectorSpec) -> Detector:
    networks = trained.learned.networks(_with_architecture(spec, detector.spec))
    return replace(
        detector,
        learned=trained.learned,
        networks=networks,
        thresholds=_thresholds(parts, trained, networks, detector.scaler, spec),
        trainings=(*detector.trainings, _training(parts, trained, spec)),
    )


def _training(parts: Parts, trained: Trained, spec: DetectorSpec) -> Training:
    model = name_of(trained.learned.kind, trained.learned.code)
    return training_of(trained.records, parts.names, parts.sizes, model, spec.scheme, trained.notes)


def _thresholds(
    parts: Parts, trained: Trained, networks: Mapping[str, ScoringNetwork], scaler: Scaler, spec: DetectorSpec
) -> Thresholds:
    """Agree on thresholds: those who are left do, on what they held back (or on all they have)."""
    alive = [device for device in trained.survivors if len(parts.train[device]) + len(parts.held_back[device])]
    if not alive:
        raise DataError("nobody who is left has a sample to agree on thresholds with")
    has_held_back = any(len(parts.held_back[device]) for device in alive)

    def scores(*groups: list[Rows]) -> dict[str, Floats32]:
        rows = {device: np.concatenate([group[device] for group in groups]) for device in alive}
        models = list(networks.values())
        return {parts.names[device]: lowest_errors(models, scaler(of_device)) for device, of_device in rows.items()}

    if spec.contamination != "auto":
        of_all = scores(parts.train, parts.held_back)
        n_rows = sum(map(len, of_all.values()))
        rank = max(1, n_rows - round(spec.contamination * n_rows))
        return agree(of_all, spec.contamination, "all samples", rank)
    if has_held_back:
        # What was trimmed was not drawn at random: the budget is no longer a promise.
        calibrated_on = "held-back samples, trimmed" if spec.trim else "held-back samples"
        return agree(scores(parts.held_back), spec.budget, calibrated_on)
    return agree(scores(parts.train), spec.budget, "training samples")


def trimmed(parts: Parts, spec: DetectorSpec) -> Parts:
    """Leave out the strangest rows, by a PCA of few components that is fitted to the rest, a few times over.

    Few, because anomalies among the rows take components of a wide model for themselves. The cut is a quantile over the
    fleet, which takes counts alone. All this is done before training, when nobody has failed yet.
    """
    narrow = msgspec.structs.replace(spec, scheme="tol-fl", clusters=None, fail="", on_head_failure="", rounds=1)
    kept = parts
    for _ in range(_TRIM_PASSES):
        scaler, origin = _scaling(kept, spec)
        trained = learn_pca([scaler(rows) for rows in kept.train], narrow, origin)
        n_components = min(_TRIM_COMPONENTS, len(origin) - 1)
        networks = list(with_components(trained, n_components).learned.networks(spec).values())
        both = [[lowest_errors(networks, scaler(rows)) for rows in group] for group in (parts.train, parts.held_back)]
        kept = _below_the_cut(parts, both, spec.trim)
    return kept


def _below_the_cut(parts: Parts, both: list[list[Floats32]], share: float) -> Parts:
    scores = {device: np.concatenate(pair) for device, pair in enumerate(zip(*both, strict=True))}
    n_rows = sum(map(len, scores.values()))
    cut = order_statistics(scores, [max(1, n_rows - round(share * n_rows))])[0]
    train, held = (
        [rows[values <= cut] for rows, values in zip(group, of_group, strict=True)]
        for group, of_group in zip((parts.train, parts.held_back), both, strict=True)
    )
    return Parts(parts.names, train, held)


def _scaling(parts: Parts, spec: DetectorSpec) -> tuple[Scaler, Samples]:
    """Return the scaling that the devices' moments lead to, and where it puts their mean."""
    moments = merged(Moments.of(rows) for rows in parts.train if len(rows))
    scaler = Scaler.fit(moments, spec.scaling)
    return scaler, scaler(moments.means[None, :])[0]


def _with_architecture(spec: DetectorSpec, of: DetectorSpec) -> DetectorSpec:
    return msgspec.structs.replace(spec, hidden=of.hidden, code=of.code, dropout=of.dropout)


def _features_of(slices: Mapping[str, object]) -> Features:
    for X in slices.values():
        return Features.of(X, as_rows(X).shape[1])
    raise DataError("no device has data; give at least one table")


def _checked(slices: Mapping[str, object], features: Features) -> dict[str, Rows]:
    checked = {name: features.check(X) for name, X in slices.items()}
    if not any(map(len, checked.values())):
        raise DataError("no device has a single row to train on")
    return checked
