"""Everything that training a detector depends on; stored with every detector.

The title of a field is the help of its flag in `tolfl fit`, which imports this file to start.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tolfl.core.errors import SpecError, UnknownNameError

MODELS = ("cells", "mahalanobis", "autoencoder", "pca")
#: Models that are a distance to cells; `mahalanobis` has one cell.
OF_CELLS = ("cells", "mahalanobis")
MOST_CELLS = 32
SCALINGS = ("min-max", "standard", "none")
#: Schemes with one model for everybody.
ONE_MODEL = ("tol-fl", "fl", "sbt")
#: Rounds of an autoencoder. Statistics are exact after one.
USUAL_ROUNDS = 100


class DetectorSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One detector. Defaults live here; the estimator repeats them by name.

    >>> DetectorSpec(alarms_per_day=1.0, windows_per_day=1440.0).budget == 1 / 1440
    True
    """

    model: Annotated[
        Literal["cells", "mahalanobis", "autoencoder", "pca"], Meta(title="cells, mahalanobis, autoencoder or pca.")
    ] = "cells"
    cells: Annotated[
        int | None, Meta(title="At most so many cells; never more than one for ten rows. (default: 32)")
    ] = None
    n_components: int | None = None  #: of PCA; None: as many as explain 90 % of the variance
    hidden: tuple[int, ...] = (128, 64)  #: of the autoencoder, as the three below
    code: int = 32
    dropout: float = 0.2
    lr: float | None = None  #: None: by the number of features, and smaller if training diverges
    scheme: Annotated[str, Meta(title="How devices train together.")] = "tol-fl"
    clusters: Annotated[int | None, Meta(title="How many clusters. (default: 5, or fewer devices)")] = None
    rounds: Annotated[int | None, Meta(title="How many rounds of the autoencoder. (default: 100)")] = None
    fail: str = ""  #: a failure plan over the rounds of all stages; devices are numbered in the order of their names
    on_head_failure: Annotated[str, Meta(title="elect, drop, ... (default: by scheme)")] = ""
    scaling: Literal["min-max", "standard", "none"] = "min-max"  #: of the autoencoder and PCA; cells have their own
    held_back: float = 0.2  #: share of each device's samples for the calibration set, from which thresholds are found
    trim: Annotated[
        float,
        Meta(
            title="Share of the training rows that may be anomalous: the most distant ones are left out of the cells."
        ),
    ] = 0.0
    false_alarm_rate: Annotated[float, Meta(title="Share of typical rows that may raise an alarm.")] = 0.01
    alarms_per_day: Annotated[float | None, Meta(title="In its place: so many false alarms a day ...")] = None
    windows_per_day: Annotated[float | None, Meta(title="... of so many rows a day.")] = None
    contamination: Annotated[  # as in scikit-learn
        float | Literal["auto"], Meta(title="auto, or the share of the training rows that are to be alarms.")
    ] = "auto"
    seed: int = 0

    @classmethod
    def from_fields(cls, fields: Mapping[str, object], source: str = "") -> DetectorSpec:
        """Return a specification of plain values, or say in one sentence what is wrong with one."""
        if fields.get("model") == "auto":
            raise SpecError("model 'auto' is not supported; use cells")
        for what, known in (("model", MODELS), ("scaling", SCALINGS)):
            _one_of(what, str(fields.get(what, known[0])), known)
        try:
            return msgspec.convert(dict(fields), cls).check()
        except msgspec.ValidationError as error:
            raise SpecError(f"{source}a setting of the detector is wrong: {error}") from None

    @property
    def budget(self) -> float:
        """The share of typical samples that may raise an alarm."""
        if self.alarms_per_day is None or self.windows_per_day is None:
            return self.false_alarm_rate
        return self.alarms_per_day / self.windows_per_day

    @property
    def most_cells(self) -> int:
        """How many cells there may be."""
        return 1 if self.model == "mahalanobis" else self.cells or MOST_CELLS

    def check(self) -> DetectorSpec:
        """Return the specification itself, or say in one sentence what is wrong with it."""
        from tolfl.learners.layouts import SCHEMES  # noqa: PLC0415  (the help of a command needs no learners)

        _one_of("model", self.model, MODELS)
        _one_of("scaling", self.scaling, SCALINGS)
        _one_of("scheme", self.scheme, tuple(SCHEMES))
        if self.scheme not in ONE_MODEL:
            raise SpecError(f"scheme {self.scheme} learns its own models, not a detector; use {', '.join(ONE_MODEL)}")
        if self.n_components is not None and self.n_components < 0:
            raise SpecError(f"n_components {self.n_components}; use at least 0 (the distance to the mean)")
        if self.rounds is not None and self.rounds < 1:
            raise SpecError(f"rounds {self.rounds}; use at least 1")
        for name, share in (("held_back", self.held_back), ("trim", self.trim)):
            if not 0 <= share <= 0.5:
                raise SpecError(f"{name} {share:g}; use a share from 0 to 0.5")
        if self.trim and self.model not in OF_CELLS:
            raise SpecError(f"trim {self.trim:g}: {self.model} trains on all rows; use the model cells, or trim 0")
        if self.cells is not None and not 1 <= self.cells <= 256:
            raise SpecError(f"cells {self.cells}; use from 1 to 256")
        if self.cells is not None and self.model != "cells":
            raise SpecError(f"cells {self.cells}: {self.model} has no cells to choose; use the model cells")
        if (self.alarms_per_day is None) != (self.windows_per_day is None):
            raise SpecError("alarms_per_day and windows_per_day go together; give both or neither")
        if not (0 < self.budget < 1 and math.isfinite(self.budget)):
            raise SpecError(f"a false-alarm budget of {self.budget:g} per sample; use a share above 0 and below 1")
        if self.contamination != "auto" and not 0 < self.contamination <= 0.5:
            raise SpecError(f"contamination {self.contamination:g}; use 'auto', or a share above 0 and up to 0.5")
        return self


def _one_of(what: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise UnknownNameError(what, name, list(known))
