"""Which classes are typical: choices declared beforehand, so that nobody picks the one that flatters.

A declared choice is part of an experiment's name. Number 0 is the usual one; the others were drawn once from a fixed
seed, before anything was trained on them. `rotation` is each class against the rest.
"""

from __future__ import annotations

import numpy as np

from tolfl.core.errors import SpecError
from tolfl.core.seeding import Purpose, rng_for
from tolfl.core.spec import DatasetSpec
from tolfl.datasets.raw import RawData, in_order

#: How many choices there are for data sets with ten or more classes.
_N_DECLARED = 10
#: The usual choice: typical and anomalous classes. Upper-body garments; the first five; five coarse groups each.
_USUAL: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "fashion-mnist": (("0", "2", "3", "4", "6"), ("1", "5", "7", "8", "9")),
    "mnist": (("0", "1", "2", "3", "4"), ("5", "6", "7", "8", "9")),
    "cifar-10": (("0", "1", "2", "3", "4"), ("5", "6", "7", "8", "9")),
    "cifar-100": (("0", "1", "2", "3", "4"), ("5", "6", "7", "8", "9")),
}
#: Data sets whose classes are typical or anomalous by what they are.
_FIXED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "comms-ml": (("region-1", "region-2", "region-3"), ("rate", "bluetooth", "region-4")),
    "comms-ml-published": (("region-1", "region-2", "region-3"), ("region-4",)),
}

Choice = tuple[tuple[str, ...], tuple[str, ...]]  #: typical, anomalous


def declared_choices(name: str, classes: tuple[str, ...]) -> list[Choice]:
    """Return the declared choices of a data set; those after the first are random halves.

    >>> declared_choices("mnist", tuple("0123456789"))[0]
    (('0', '1', '2', '3', '4'), ('5', '6', '7', '8', '9'))
    """
    if name not in _USUAL:
        return [_FIXED[name]] if name in _FIXED else []
    choices = [_USUAL[name]]
    half = len(choices[0][0])
    number = 0
    while len(choices) < _N_DECLARED:
        number += 1
        order = rng_for(0, Purpose.PARTITION, device=number).permutation(len(classes))
        typical = in_order([classes[i] for i in order[:half]])
        anomalous = in_order([classes[i] for i in order[half : 2 * half]])
        if (typical, anomalous) not in choices:
            choices.append((typical, anomalous))
    return choices


def rotation(classes: tuple[str, ...]) -> list[Choice]:
    """Return one choice per class: it alone is anomalous."""
    return [(tuple(name for name in classes if name != one), (one,)) for one in classes]


def choose(raw: RawData, spec: DatasetSpec) -> Choice:
    """Return the typical and the anomalous classes of a run."""
    classes = raw.classes
    for name in (*spec.typical, *spec.anomalous):
        if name not in classes:
            raise SpecError(f"dataset class {name!r}: {raw.name} has no such class; it has {', '.join(classes)}")
    if spec.typical or spec.anomalous:
        typical = spec.typical or tuple(name for name in classes if name not in spec.anomalous)
        anomalous = spec.anomalous or tuple(name for name in classes if name not in spec.typical)
        return in_order(typical), in_order(anomalous)
    choices = declared_choices(raw.name, classes)
    if choices:
        if spec.declared >= len(choices):
            raise SpecError(f"dataset declared {spec.declared}: {raw.name} has {len(choices)} choices, from 0")
        return choices[spec.declared]
    typical = tuple(name for name in classes if is_typical_by_name(name))
    if not typical:
        raise SpecError(
            f"{raw.name} has the classes {', '.join(classes)}; say which are typical, as in --set dataset.typical="
            f"'[\"{classes[0]}\"]'"
        )
    return typical, tuple(name for name in classes if name not in typical)


def is_typical_by_name(name: str) -> bool:
    """Tell whether a class is typical by its name alone: 0, false, normal, benign, typical."""
    return name.strip().lower() in ("0", "0.0", "false", "normal", "benign", "typical")


def mask_of(labels: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """Return which labels are among the names."""
    return np.isin(labels, np.array(names, dtype=str))
