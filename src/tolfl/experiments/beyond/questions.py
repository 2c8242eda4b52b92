"""The questions: each varies one thing.

All of them are on Comms-ML but for the rotation of anomalous classes, which needs pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tolfl.core.spec import RunSpec

_OURS_AND_FL = ("tol-fl", "fl")


@dataclass(frozen=True)
class Question:
    """One thing that is varied, and what it is called."""

    name: str
    title: str
    varied: str
    specs: Callable[[RunSpec], Mapping[str, RunSpec]]  #: from the usual run, by value of what is varied
    schemes: tuple[str, ...] = _OURS_AND_FL
    data: str = "comms-ml"
    is_scale: bool = True  #: its values have an order, so that a line may join them


def changed(spec: RunSpec, **fields: Any) -> RunSpec:
    """Return a specification with other fields."""
    return msgspec.structs.replace(spec, **fields)


def _dataset(spec: RunSpec, **fields: Any) -> RunSpec:
    return changed(spec, dataset=msgspec.structs.replace(spec.dataset, **fields))


def _half(spec: RunSpec) -> int:
    return spec.rounds // 2


def _early(spec: RunSpec) -> dict[str, RunSpec]:
    rounds = sorted({max(1, spec.rounds * share // 100) for share in (5, 10, 25, 50)})
    return {str(at): changed(spec, fail=f"server@{at}") for at in rounds}


def _clusters(spec: RunSpec) -> dict[str, RunSpec]:
    return {str(k): changed(spec, clusters=k, fail=f"server@{_half(spec)}") for k in range(1, spec.devices + 1)}


def _victims(spec: RunSpec) -> dict[str, RunSpec]:
    return {str(d): changed(spec, fail=f"device:{d}@{_half(spec)}") for d in range(spec.devices)}


def _dirichlet(spec: RunSpec) -> dict[str, RunSpec]:
    fails = changed(spec, fail=f"server@{_half(spec)}")
    found = {f"{alpha:g}": _dataset(fails, partition="dirichlet", alpha=alpha) for alpha in (0.05, 0.2, 1.0, 10.0)}
    return {"classes": fails} | found | {"iid": _dataset(fails, partition="iid")}


def _several(spec: RunSpec) -> dict[str, RunSpec]:
    # The heads of three clusters of ten devices, one after the other.
    half, later = _half(spec), max(1, spec.rounds // 10)
    plan = [f"device:{head}@{half + place * later}" for place, head in enumerate((0, 4, 7))]
    return {str(n): changed(spec, fail="; ".join(plan[:n])) for n in (1, 2, 3)}


def _random(spec: RunSpec) -> dict[str, RunSpec]:
    return {f"{odds:g}": changed(spec, fail=f"random:{odds:g}") for odds in (0.001, 0.003, 0.01)}


def _newcomer(spec: RunSpec) -> dict[str, RunSpec]:
    # The devices of the last region are away until the server has failed: their class is new to the model.
    half = _half(spec)
    return {
        "yes": changed(spec, fail=f"cluster:2@0-{half + 1}; server@{half}"),
        "no": changed(spec, fail=f"server@{half}"),
    }


def _dropout(spec: RunSpec) -> dict[str, RunSpec]:
    fails = changed(spec, fail=f"server@{_half(spec)}")
    return {
        f"{share:g}": changed(fails, model=msgspec.structs.replace(spec.model, dropout=share)) for share in (0.0, 0.2)
    }


def _rehomed(spec: RunSpec) -> dict[str, RunSpec]:
    return {"server": changed(spec, fail=f"server@{_half(spec)}")}


def _nobody(spec: RunSpec) -> dict[str, RunSpec]:
    return {"nobody": spec}


def _rotated(spec: RunSpec) -> dict[str, RunSpec]:
    fails = changed(spec, fail=f"server@{_half(spec)}", repetitions=1, splits=1)
    return {
        str(c): _dataset(fails, anomalous=(str(c),), max_train=min(5000, spec.dataset.max_train or 5000))
        for c in range(10)
    }


QUESTIONS = (
    Question("early", "The server fails early or late", "round of the failure", _early),
    Question("clusters", "How many clusters", "clusters (k)", _clusters),
    Question("victim", "Which device fails", "device that fails", _victims, is_scale=False),
    Question("several", "One, two or three heads fail", "heads lost", _several),
    Question("random", "Devices fail at random", "odds per device and round", _random),
    Question(
        "newcomer", "A new typical class appears after the failure", "a new class appears", _newcomer, is_scale=False
    ),
    Question(
        "dirichlet", "How unequal the devices' data are", "one class each, Dirichlet alpha, or at random", _dirichlet
    ),
    Question("dropout", "With and without dropout", "dropout", _dropout),
    Question("rehome", "Rivals whose devices find another model", "failure", _rehomed, ("fedgroup", "ifca", "fesem")),
    Question("batch-size", "Batch training with a device's batch size", "failure", _nobody, ("batch", "batch-small")),
    Question(
        "rotation",
        "Each class anomalous in turn (Fashion-MNIST)",
        "anomalous class",
        _rotated,
        data="fashion-mnist",
        is_scale=False,
    ),
    Question(
        "rotation-cifar",
        "Each class anomalous in turn (CIFAR-10)",
        "anomalous class",
        _rotated,
        data="cifar-10",
        is_scale=False,
    ),
)
