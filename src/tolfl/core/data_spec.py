"""How data become slices: which classes are typical, who gets which samples, how they are scaled."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from tolfl.core.errors import SpecError


class DatasetSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From raw samples to one slice per device; what is left open is chosen by the data set."""

    dir: str = ""  #: where to look first; then TOLFL_DATA, the user's cache, Debian's data sets
    # -- classes
    declared: int = 0  #: which of the data set's declared choices of anomalous classes
    typical: tuple[str, ...] = ()  #: typical classes of one's own choice; all others are anomalous unless named
    anomalous: tuple[str, ...] = ()  #: anomalous classes of one's own choice; all others are typical unless named
    colour: bool = False  #: CIFAR: 3,072 values instead of 1,024 grey ones
    fine: bool = False  #: CIFAR-100: 100 classes instead of 20 coarse ones
    # -- columns of a table
    device_column: str = ""
    label_column: str = ""
    time_column: str = ""
    # -- windows of a capture
    window_s: float = 1.0
    step_s: float | None = None  #: from one window's start to the next one's; None: as long as the window
    # -- training, validation, test
    split: Literal["random", "chronological"] = "random"
    test_share: float = 0.2  #: of typical samples, where the publisher has not set any aside
    validation_share: float = 0.1  #: of the typical training samples
    max_train: int | None = None  #: at most so many training samples in all, drawn evenly from the classes
    max_test: int | None = None  #: at most so many test samples in all, half of them anomalous
    # -- devices
    partition: Literal["classes", "iid", "dirichlet", "column"] | None = None  #: None: by column if there is one
    groups: int | None = None  #: groups of classes that share devices; None: the typical classes, at most 5
    alpha: float = 0.5  #: of the Dirichlet distribution: the smaller, the more unequal
    sizes: tuple[float, ...] = ()  #: relative sizes of the devices' slices (iid); (): equal
    # -- scaling
    scaling: Literal["min-max", "standard", "none"] | None = None  #: None: none for pictures, else min-max
    scaled_by: Literal["fleet", "all", "per-device"] = (
        "fleet"  #: fitted on typical training data, on all (a leak), alone
    )


def check_dataset(spec: DatasetSpec) -> None:
    """Say in one sentence what is wrong with a number."""
    for name, share in (("test_share", spec.test_share), ("validation_share", spec.validation_share)):
        if not 0 <= share < 1:
            raise SpecError(f"dataset {name} {share:g}; use at least 0 and less than 1")
    for name, number in (("max_train", spec.max_train), ("max_test", spec.max_test), ("groups", spec.groups)):
        if number is not None and number < 1:
            raise SpecError(f"dataset {name} {number}; use at least 1")
    step_s = spec.window_s if spec.step_s is None else spec.step_s
    if not 1e-9 <= spec.window_s <= step_s < math.inf:
        raise SpecError(f"dataset window_s {spec.window_s:g}, step_s {step_s:g}; the step must be at least the window")
    if spec.declared < 0:
        raise SpecError(f"dataset declared {spec.declared}; use at least 0")
    if not (spec.alpha > 0 and math.isfinite(spec.alpha)):
        raise SpecError(f"dataset alpha {spec.alpha:g}; use a number above 0")
    if any(not (size > 0 and math.isfinite(size)) for size in spec.sizes):
        raise SpecError(f"dataset sizes {spec.sizes}; use numbers above 0")
    if both := set(spec.typical) & set(spec.anomalous):
        raise SpecError(f"dataset class {min(both)!r} cannot be typical and anomalous")
