"""Rows of any source scored block by block: files that do not fit into memory, and streams that never end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import SpecError
from tolfl.detect.cells import measures_of
from tolfl.detect.detector import Detector
from tolfl.detect.features import FeatureShare
from tolfl.tables import Block, Reading, Roles, Rows, Schema
from tolfl.tables.schema import value_features, word_column

if TYPE_CHECKING:
    from tolfl.signals.wlan import Networks

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """Scores and verdicts of a block's rows; NaN where a row could not be scored."""

    rows: Rows
    scores: Floats
    p_values: Floats
    thresholds: Floats
    #: By place: the features that make an alarm, the largest share first; those with a usual range make it novel.
    top: dict[int, tuple[FeatureShare, ...]]
    is_alarm: NDArray[np.bool_]  #: by the joint score, or by novelty
    is_notice: NDArray[np.bool_]  #: above a threshold that was extrapolated, and not novel
    novelty: Floats  #: NaN: the detector has none

    @property
    def is_scored(self) -> NDArray[np.bool_]:
        """Which rows have a score."""
        return ~np.isnan(self.scores)


class TableScorer:
    """Scores blocks with one detector; collects notes for the end.

    Parameters
    ----------
    detector
        Whose columns are looked for.
    roles
        Columns that say whose, what and when, where they are not those of training. Those of training are used where
        they are there; labels are read only if asked for: new rows have none.
    n_top
        How many features to name for a row.
    explains_all
        Whether features are named for all rows; else for alarms only.
    fill_missing
        Whether a row with missing values is scored by its other values; else it is not scored.
    """

    def __init__(
        self,
        detector: Detector,
        roles: Roles | None = None,
        n_top: int = 3,
        *,
        explains_all: bool = False,
        fill_missing: bool = False,
    ) -> None:
        self.detector, self._asked = detector, roles or Roles()
        self.schema = detector.columns.with_roles(self._asked)
        self._n_top, self._explains_all = n_top, explains_all
        self._fills = fill_missing or self.schema.fill_missing
        self._known = frozenset(detector.thresholds.devices)
        self._unused: dict[str, None] = {}
        self._unknown: dict[str, None] = {}
        self._lost: dict[str, str] = {}
        self._n_missing = 0
        #: What is measured may be missing: no signal strength of a second without a frame.
        self._may_miss = measures_of(detector.features.full) > 0
        self._value_features = value_features(detector.features.names)

    def reading(self, raw: str = "", *, follow: bool = False, known: Networks | None = None) -> Reading:
        """Return how a source is read as in training: encoding, windows of captures, tuning of receivers.

        `raw` is the type of samples that standard input has, `known` are networks that are not new.
        """
        names, grid, per, tuning = self.detector.features.names, None, "", None
        if any(" every " in name or "per " in name for name in names):
            from tolfl.signals.capture_rows import grid_of, per_of  # noqa: PLC0415  (only captures have windows)

            found, per = grid_of(names), per_of(names)
            grid = (found.duration_s, found.interval_s)
        if any(" Hz" in name for name in names):
            from tolfl.signals.receiver import Tuning, tuning_of  # noqa: PLC0415  (only receivers are tuned)

            tuning = Tuning(*tuning_of(names), raw)
        elif raw:
            raise SpecError("the detector was not trained on samples of a receiver; leave --raw out")
        return Reading(self.schema.encoding, grid, per, tuning, follow, known)

    @property
    def notes(self) -> list[str]:
        """Notes for the user about the columns, in sentences."""
        notes = []
        if self._unused:
            notes.append(f"columns that the detector does not use: {_some(list(self._unused), 8)}")
        for name, role in self._lost.items():
            what = ": each row is compared with the fleet's threshold" if role == "device" else ""
            notes.append(f"there is no column {name!r}, which was the {role} in training{what}")
        if self._unknown:
            notes.append(
                f"devices without a threshold of their own, the fleet's is used: {_some(list(self._unknown), 5)}"
            )
        if self._n_missing:
            notes.append(f"{self._n_missing} missing values are taken as the usual value of their column")
        return notes

    def score(self, blocks: Iterable[Block]) -> Iterator[ScoredRows]:
        """Yield the verdicts of each block."""
        for block in blocks:
            if block.n_rows:
                yield self._scored(self.rows(block))

    def rows(self, block: Block) -> Rows:
        """Return a block's rows as the detector takes them; without filling, a missing value is an error of its row."""
        if not self._unused and not block.is_ragged:
            schema = self.schema
            used = {*(column.name for column in schema.columns), *schema.roles.columns, *schema.left_out, *block.beside}
            names = [name for name in block.table.column_names if name.split(" [")[0] not in used and name not in used]
            self._unused |= dict.fromkeys(names if block.has_names else ())
        rows = self._schema_for(block).rows(block)
        self._take_missing(rows)
        if rows.devices is not None:
            rows.devices = self._devices(rows.devices)
        return rows

    def _schema_for(self, block: Block) -> Schema:
        """Return the schema with the roles that are asked for, and those of training that the block has columns for."""
        roles, columns = self.schema.roles, block.table.column_names
        used = {role: getattr(self._asked, role) for role in ("device", "label", "time")}
        for role in ("device", "time"):
            name = getattr(roles, role)
            if not name or used[role] or name in columns:
                used[role] = name
            elif not (role == "device" and block.device):
                self._lost[name] = role
        return msgspec.structs.replace(self.schema, roles=Roles(**used))

    def _take_missing(self, rows: Rows) -> None:
        is_missing = np.isnan(rows.values) & ~self._may_miss
        if not is_missing.any():
            return
        bad = list(rows.errors)
        if self._fills:
            is_missing[bad] = False
            self._n_missing += int(is_missing[:, self._value_features].sum())
            return
        for row in np.flatnonzero(is_missing.any(axis=1)).tolist():
            feature = self.detector.features.names[int(np.argmax(is_missing[row]))]
            rows.errors.setdefault(row, f"{(word_column(feature) or feature)!r} is missing")

    def _devices(self, devices: NDArray[np.str_]) -> NDArray[np.str_]:
        """Return devices by the names they had in training; as a number, 07 and 7.0 are 7."""
        names, which = np.unique(devices, return_inverse=True)
        known = [self._name_in_training(name) for name in names.tolist()]
        self._unknown |= dict.fromkeys(name for name in known if name and name not in self._known)
        return np.array(known, dtype=str)[which]

    def _name_in_training(self, name: str) -> str:
        if name in self._known:
            return name
        try:
            number = float(name)
        except ValueError:
            return name
        short = str(int(number)) if number.is_integer() else name
        return short if short in self._known else name

    def _scored(self, rows: Rows) -> ScoredRows:
        detector, good = self.detector, rows.is_good
        values = rows.values if good.all() else rows.values[good]
        devices = None if rows.devices is None else rows.devices[good]
        scores, p_values, thresholds, novelty = (np.full(len(rows.values), np.nan) for _ in range(4))
        is_alarm, is_notice = np.zeros(len(scores), np.bool_), np.zeros(len(scores), np.bool_)
        partial = rows.block.is_partial
        found = detector.scores_of(values, devices).astype(np.float64)
        scores[good], thresholds[good] = found, detector.thresholds.limits(len(values), devices)
        p_values[good] = detector.thresholds.p_values(found, devices)
        judged = detector.alarms_of(values, found, devices, None if partial is None else partial[good])
        is_alarm[good], is_notice[good], novelty[good] = judged
        top: dict[int, tuple[FeatureShare, ...]] = {}
        named = np.flatnonzero(good if self._explains_all else is_alarm | is_notice)
        if self._n_top and len(named):
            devices = None if rows.devices is None else rows.devices[named]
            is_partial = None if partial is None else partial[named]
            shares = detector.top_features(rows.values[named], novelty[named], self._n_top, devices, is_partial)
            top = dict(zip(named.tolist(), shares, strict=True))
        return ScoredRows(rows, scores, p_values, thresholds, top, is_alarm, is_notice, novelty)


def _some(names: list[str], most: int) -> str:
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")
