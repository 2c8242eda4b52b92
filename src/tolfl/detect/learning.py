"""Training a model on a fleet's scaled samples: through the simulator, with its scheme, its rounds and its failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tolfl.core.contribution import Vector
from tolfl.core.errors import DataError, DivergedError
from tolfl.core.records import AnyRecord, RoundClosed
from tolfl.core.spec import RunSpec, TrainSpec
from tolfl.datasets import FederatedDataset
from tolfl.detect.mahalanobis import Distance
from tolfl.detect.network import ScoringNetwork
from tolfl.detect.pca import PCAModel, Subspace
from tolfl.detect.problems import NoModelError
from tolfl.detect.spec import DetectorSpec
from tolfl.detect.watching import run_watched
from tolfl.learners.training import TrainedModel
from tolfl.models import Autoencoder, Model
from tolfl.runs.outcome import fleet_of
from tolfl.sim.run import Result

#: Where training diverges, the step is divided by this, and training starts again.
_STEP_DIVISOR, _MAX_TRIES = 10.0, 4


@dataclass(frozen=True, eq=False)
class Learned:
    """What devices agree on after training: parameters by model (one, unless devices went on alone)."""

    kind: str  #: `pca`, `mahalanobis` or `autoencoder`
    params: dict[str, Vector]
    code: int  #: components, or the width of the code; the distance has none
    n_samples: dict[str, int]  #: behind the parameters of each model
    origin: NDArray[np.float64] | None = None  #: of the statistics of PCA and of the distance

    def networks(self, spec: DetectorSpec) -> dict[str, ScoringNetwork]:
        """Return the models, ready to score."""
        if self.kind == "pca":
            return {name: subspace.network(self.code) for name, subspace in self.subspaces().items()}
        if self.kind == "mahalanobis":
            return {name: distance.network() for name, distance in self.distances().items()}
        n_features = autoencoder_features(next(iter(self.params.values())), spec, self.code)
        model = _autoencoder(n_features, spec, self.code)
        return {name: ScoringNetwork.of_autoencoder(model, params) for name, params in self.params.items()}

    def subspaces(self) -> dict[str, Subspace]:
        """Return the principal directions of each model."""
        if self.origin is None:
            raise LookupError("an autoencoder has no principal directions")
        model = PCAModel(self.origin, self.code)
        return {name: model.subspace(params) for name, params in self.params.items()}

    def distances(self) -> dict[str, Distance]:
        """Return the distance to the mean of each model's samples."""
        return {name: Distance.of(subspace, self.n_samples[name]) for name, subspace in self.subspaces().items()}


@dataclass(frozen=True, eq=False)
class Trained:
    """What was learned, and what happened meanwhile."""

    learned: Learned
    records: list[AnyRecord]
    survivors: tuple[int, ...]
    notes: tuple[str, ...] = ()


class _Continued(Autoencoder):
    """An autoencoder that starts where another training ended."""

    def __init__(self, start: Vector, n_features: int, spec: DetectorSpec, code: int) -> None:
        super().__init__(n_features, spec.hidden, code, spec.dropout)
        self._start = start

    def initial(self, seed: int) -> Vector:  # noqa: ARG002  (everybody holds the model already)
        """Return the parameters to go on from."""
        return self._start.copy()


def learn_pca(
    train: Sequence[NDArray[np.floating]],
    spec: DetectorSpec,
    origin: NDArray[np.floating],
    before: Learned | None = None,
) -> Trained:
    """Work out the statistics of all samples; those that were known `before` are merged in."""
    data = FederatedDataset.from_arrays(train)
    model = PCAModel(origin if before is None or before.origin is None else before.origin, 0)
    result = _run(spec, data, model, spec.rounds_for("pca"))
    params = {name: one.params for name, one in result.models.items() if isinstance(one, TrainedModel)}
    n_samples = _samples_behind(result)
    if before is not None:
        old, n_before = only_model(before), _known_samples(before)
        # The same running mean as along the chain, with the known statistics as one more contribution.
        shares = {name: n_new / (n_new + n_before) for name, n_new in n_samples.items()}
        params = {name: shares[name] * new + (1.0 - shares[name]) * old for name, new in params.items()}
        n_samples = {name: n_new + n_before for name, n_new in n_samples.items()}
    learned = Learned("pca", params, 0, n_samples, model.origin)
    return Trained(learned, result.records, _survivors(result))


def learn_autoencoder(
    train: Sequence[NDArray[np.floating]], spec: DetectorSpec, before: Learned | None = None
) -> Trained:
    """Train the autoencoder, or go on training it; without a given step, divergence leads to a smaller one."""
    data = FederatedDataset.from_arrays(train)
    code = code_for(data.n_features, spec) if before is None else before.code
    model: Model = _autoencoder(data.n_features, spec, code)
    if before is not None:
        model = _Continued(only_model(before), data.n_features, spec, code)
    lr, notes = spec.lr, []
    for attempt in range(1, _MAX_TRIES + 1):
        try:
            result = _run(spec, data, model, spec.rounds_for("autoencoder"), lr)
            break
        except DivergedError:
            if spec.lr is not None or attempt == _MAX_TRIES:
                raise
            lr = (lr or _usual_lr(spec, data)) / _STEP_DIVISOR
            notes.append(f"training diverged, and started again with a step of {lr:g}")
    params = {name: one.params for name, one in result.models.items() if isinstance(one, TrainedModel)}
    n_before = 0 if before is None else _known_samples(before)
    n_samples = {name: n_new + n_before for name, n_new in _samples_behind(result).items()}
    learned = Learned("autoencoder", params, code, n_samples)
    return Trained(learned, result.records, _survivors(result), tuple(notes))


def with_components(trained: Trained, n_components: int) -> Trained:
    """Return PCA with so many components: the statistics do not depend on it."""
    return used_as(trained, "pca", n_components)


def used_as(trained: Trained, kind: str, code: int) -> Trained:
    """Return PCA's statistics as PCA with so many components, or as the Mahalanobis distance."""
    return replace(trained, learned=replace(trained.learned, kind=kind, code=code))


def only_model(learned: Learned) -> Vector:
    """Return the one model there is; where there are several, nobody can say which to go on from."""
    if len(learned.params) != 1:
        raise DataError(f"training left {len(learned.params)} models; to go on there must be one: fit anew")
    return next(iter(learned.params.values()))


def code_for(n_features: int, spec: DetectorSpec) -> int:
    """Return the width of the code: half of the features at most, or there is nothing to learn."""
    return min(spec.code, max(1, n_features // 2))


def autoencoder_features(params: Vector, spec: DetectorSpec, code: int) -> int:
    """Return how many features an autoencoder with these parameters takes: each adds as many of them.

    >>> model = Autoencoder(5, (8,), 2)
    >>> autoencoder_features(model.initial(0), DetectorSpec(hidden=(8,)), 2)
    5
    """
    one, two = (_autoencoder(n, spec, code).n_params for n in (1, 2))
    return int((params.size - one) // (two - one)) + 1


def _autoencoder(n_features: int, spec: DetectorSpec, code: int) -> Autoencoder:
    return Autoencoder(n_features, spec.hidden, code, spec.dropout)


def _run(spec: DetectorSpec, data: FederatedDataset, model: Model, rounds: int, lr: float | None = None) -> Result:
    asked = _run_spec(spec, data, rounds, lr)
    result = run_watched(asked, data, model)
    if not result.models or not any(isinstance(record, RoundClosed) for record in result.records):
        raise NoModelError(str(result.summary["ended"]))
    return result


def _run_spec(spec: DetectorSpec, data: FederatedDataset, rounds: int, lr: float | None = None) -> RunSpec:
    return RunSpec(
        scheme=spec.scheme,
        data=data.name,
        devices=data.n_devices,
        clusters=spec.clusters,
        rounds=rounds,
        fail=spec.fail,
        on_head_failure=spec.on_head_failure,
        seed=spec.seed,
        train=TrainSpec(lr=lr),
    )


def _usual_lr(spec: DetectorSpec, data: FederatedDataset) -> float:
    return TrainSpec().settle(data.n_features, fleet_of(_run_spec(spec, data, 1), data).usual_rows).lr


def _samples_behind(result: Result) -> dict[str, int]:
    """Return how many samples are in each model's last round."""
    closed = [record for record in result.records if isinstance(record, RoundClosed)]
    own = {f"device-{record.device}": record.n_samples for record in closed}  # the last one of each counts
    # Halves of a fleet that was cut in two close rounds side by side, and the model is that of the most work.
    n_devices = result.summary["devices_in_last_round"]
    together = [record for record in closed if len(record.included) == n_devices] or closed
    last = max(reversed(together), key=_work)
    return {name: own.get(name, last.n_samples) for name in result.models}


def _work(closed: RoundClosed) -> int:
    return int(str(closed.version).partition(".")[0])


def _known_samples(before: Learned) -> int:
    return sum(before.n_samples.values())


def _survivors(result: Result) -> tuple[int, ...]:
    survivors = result.summary["survivors"]
    return tuple(survivors) if isinstance(survivors, list) else ()
