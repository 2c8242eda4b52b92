"""Rows of any source scored block by block, and written as lines as they come: files of any size, endless streams.

`tolfl score` and the standalone scorer run `score_stream`; whoever watches or evaluates takes the verdicts themselves.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import SpecError, TolFLError
from tolfl.detect.cells import Floats, measures_of
from tolfl.detect.detector import Detector
from tolfl.detect.features import FeatureShare
from tolfl.tables import Block, Reading, Roles, Rows, Schema, blocks
from tolfl.tables.block_reader import INTERFACE, STDIN
from tolfl.tables.schema import value_features, word_column

if TYPE_CHECKING:
    from tolfl.signals.wlan import Networks


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


_SHOWN_DEVICES = 5  #: in a note


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
            shown = _some(list(self._unknown), _SHOWN_DEVICES)
            notes.append(f"devices without a threshold of their own, the fleet's is used: {shown}")
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
        if len(self._unknown) <= _SHOWN_DEVICES:  # a stream of weeks may name any number
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


# -- as lines ---------------------------------------------------------------------------------------------------------

Columns = dict[str, list[Any]]  #: by name; the last one, `features`, has the features that make each score
_WIDTHS = {"time": 27, "from": 27, "to": 27, "device": 16, "verdict": 12, "row": 9}


def _json_lines(columns: Columns, is_first: bool) -> bytes:  # noqa: ARG001
    """Return one object per line."""
    return msgspec.json.Encoder().encode_lines(_objects(columns))


def _json_array(columns: Columns, is_first: bool) -> bytes:
    """Return elements of one array of objects."""
    return (b"[\n  " if is_first else b",\n  ") + b",\n  ".join(map(msgspec.json.encode, _objects(columns)))


def _objects(columns: Columns) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _csv(columns: Columns, is_first: bool) -> bytes:
    """Return a line per row, after a header; features as words."""
    import pyarrow as pa  # noqa: PLC0415  (an extra)
    import pyarrow.csv as pa_csv  # noqa: PLC0415  (as above)

    features = pa.array([_in_words(one) for one in columns["features"]], pa.string())
    lines = io.BytesIO()
    pa_csv.write_csv(pa.table({**columns, "features": features}), lines, pa_csv.WriteOptions(include_header=False))
    return (",".join(columns) + "\n").encode() * is_first + lines.getvalue()


def _table(columns: Columns, is_first: bool) -> bytes:
    """Return columns of fixed width: a table that can be read while it grows."""
    widths = {name: _WIDTHS.get(name, 11) for name in columns if name != "features"}
    names = "".join(f"{name:<{width}}" for name, width in widths.items()) + "features"
    cells = [[f"{_cell(value):<{width}}" for value in columns[name]] for name, width in widths.items()]
    cells.append([_in_words(one) for one in columns["features"]])
    lines = ["".join(row).rstrip() for row in zip(*cells, strict=True)]
    return ("\n".join([names] * is_first + lines) + "\n").encode()


#: How rows are written; whether they are the first changes what comes before them.
FORMS: dict[str, Callable[[Columns, bool], bytes]] = {
    "table": _table, "csv": _csv, "jsonl": _json_lines, "json": _json_array,
}  # fmt: skip


# -- alarms grouped in time: an hour of alarms is one event to an operator, not sixty ------------------------


class Alarm(msgspec.Struct, frozen=True):
    """One row above its threshold."""

    device: str
    place: float  #: seconds, or the number of the row where there is no time
    row: int
    score: float
    p_value: float
    features: tuple[FeatureShare, ...] = ()
    time: str = ""  #: as it was given


@dataclass
class AlarmGroup:
    """Alarms of one device that follow each other closely."""

    n_alarms: int
    first: Alarm
    last: Alarm
    peak: Alarm  #: the one with the highest score


class AlarmGroups:
    """Groups alarms as they come; a group is closed after `gap` without an alarm of its device.

    >>> groups = AlarmGroups(gap=10)
    >>> alarms = [Alarm("a", place, row, 1.0, 0.01) for row, place in enumerate([0.0, 5.0, 30.0])]
    >>> [group.n_alarms for alarm in alarms for group in groups.add(alarm)], [g.n_alarms for g in groups.close()]
    ([2], [1])
    """

    def __init__(self, gap: float) -> None:
        self.gap = gap
        self.open: dict[str, AlarmGroup] = {}  #: the last one of each device, which may be still open

    def add(self, alarm: Alarm) -> list[AlarmGroup]:
        """Take an alarm in; return the group before it, if it is over."""
        over = self.passed(alarm.device, alarm.place)
        group = self.open.get(alarm.device)
        if group is None:
            self.open[alarm.device] = AlarmGroup(1, alarm, alarm, alarm)
            return over
        group.n_alarms += 1
        # Rows may come late: a group spans all of its alarms, in whatever order.
        group.first = min(group.first, alarm, key=lambda one: one.place)
        group.last = max(group.last, alarm, key=lambda one: one.place)
        group.peak = max(group.peak, alarm, key=lambda one: one.score)
        return over

    def passed(self, device: str, place: float) -> list[AlarmGroup]:
        """Note the time or row that a device has reached; return its group, if that is over."""
        group = self.open.get(device)
        if group is None or place - group.last.place <= self.gap:
            return []
        return [self.open.pop(device)]

    def close(self) -> list[AlarmGroup]:
        """Return what is still open, the first one first."""
        groups, self.open = list(self.open.values()), {}
        return sorted(groups, key=lambda group: group.first.place)


# -- what is shown of a source ------------------------------------------------------------------------------------


class ScoreWriter:
    """Turns scored rows into lines: all rows, alarms only, or groups of alarms."""

    def __init__(self, shown: str, out: IO[bytes], alert_only: bool, gap: float | None) -> None:
        self._shown, self._out, self._alert_only = shown, out, alert_only
        self._groups = None if gap is None else AlarmGroups(gap)
        self.n_rows = self.n_alarms = self._n_groups = self._n_lines = 0

    def write(self, scored: ScoredRows) -> None:
        """Write a block; a row that could not be scored has a line without a score."""
        self.n_rows += int(scored.is_scored.sum())
        self.n_alarms += int(scored.is_alarm.sum())
        if self._groups is not None:
            self._group(scored)
        else:
            places = np.flatnonzero(scored.is_alarm) if self._alert_only else np.arange(len(scored.scores))
            self._write(_columns(scored, places))
        self._out.flush()

    def _group(self, scored: ScoredRows) -> None:
        assert self._groups is not None
        rows = scored.rows
        when = rows.numbers.astype(np.float64) if rows.times is None else rows.times
        devices = np.full(len(when), "") if rows.devices is None else rows.devices
        for place in np.flatnonzero(scored.is_alarm).tolist():
            self._show(self._groups.add(_alarm(scored, place, float(when[place]), str(devices[place]))))
        for device in list(self._groups.open):
            own = when[scored.is_scored & (devices == device)]
            self._show(self._groups.passed(device, float(np.max(own, initial=-np.inf))))

    def _show(self, groups: list[AlarmGroup]) -> None:
        for group in groups:
            self._n_groups += 1
            first, last, worst = group.first, group.last, group.peak
            times = {"from": first.time, "to": last.time} if first.time else {}
            rows = {"first_row": first.row, "last_row": last.row, "alarms": group.n_alarms}
            who = {"device": first.device} if first.device else {}
            peak = {"peak": worst.score, "p_value": worst.p_value}
            line = {**times, **who, **rows, **peak, "features": worst.features}
            self._write({name: [value] for name, value in line.items()})

    def _write(self, columns: Columns) -> None:
        if n_lines := len(columns["features"]):
            self._out.write(FORMS[self._shown](columns, not self._n_lines))
            self._n_lines += n_lines

    def close(self) -> None:
        """Write groups that are still open, and the end."""
        self._show(self._groups.close() if self._groups is not None else [])
        rate = f" ({self.n_alarms / self.n_rows:.2%})" if self.n_rows else ""
        groups = f" in {self._n_groups} group(s)" if self._groups is not None else ""
        if self._shown == "table":
            self._out.write(f"{self.n_rows} row(s), {self.n_alarms} alarm(s){rate}{groups}\n".encode())
        if self._shown == "json":
            self._out.write(b"\n]\n" if self._n_lines else b"[]\n")
        self._out.flush()


def _columns(scored: ScoredRows, places: NDArray[np.int64]) -> Columns:
    rows = scored.rows
    columns: Columns = {"row": rows.numbers[places].tolist()}
    if rows.time_texts is not None:
        columns["time"] = [rows.time_texts[place] for place in places]
    if rows.devices is not None:
        columns["device"] = rows.devices[places].tolist()
    # Of windows of captures: network or channel, whether they are whole, how novel they are.
    if "key" in rows.block.beside:
        columns["key"] = rows.block.table["key"].take(places).tolist()
    if rows.block.is_partial is not None:
        columns["partial"] = rows.block.is_partial[places].tolist()
    if np.isfinite(scored.novelty).any():
        columns["novelty"] = _or_none(scored.novelty[places])
    verdicts = np.where(scored.is_notice[places], "notice", np.where(scored.is_alarm[places], "alarm", "typical"))
    return {
        **columns,
        "score": _or_none(scored.scores[places]),
        "p_value": _or_none(scored.p_values[places]),
        "verdict": np.where(scored.is_scored[places], verdicts, "not scored").tolist(),
        "features": [scored.top.get(place, ()) for place in places.tolist()],
    }


def _or_none(values: Floats) -> list[float | None]:
    is_missing = np.isnan(values)
    return [None if value != value else value for value in values.tolist()] if is_missing.any() else values.tolist()  # noqa: PLR0124  (NaN)


def _alarm(scored: ScoredRows, place: int, when: float, device: str) -> Alarm:
    rows = scored.rows
    text = "" if rows.time_texts is None else rows.time_texts[place] or ""
    score, p_value = float(scored.scores[place]), float(scored.p_values[place])
    return Alarm(device, when, int(rows.numbers[place]), score, p_value, scored.top.get(place, ()), text)


def _in_words(features: tuple[FeatureShare, ...]) -> str:
    return "; ".join(map(_share, features))


def _share(one: FeatureShare) -> str:
    if one.has_no_number:
        return f"{one.name} ({one.share:.0%})"
    if one.low is not None:
        return one.usual
    unit = f" {one.unit}" if one.unit else ""
    return f"{one.name} {one.value:.4g} instead of {one.expected:.4g}{unit} ({one.share:.0%})"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


#: Sentences about rows that cannot be scored; after these, a count.
_MAX_SENTENCES = 5


class ScoreRequest(msgspec.Struct, frozen=True):
    """What to score, and how to show it."""

    data: str = STDIN
    device_column: str = ""
    time_column: str = ""
    alert_only: bool = False
    group: float | None = None  #: alarms of a device are one group if at most so many seconds (or rows) lie between
    top: int = 3
    explain_all: bool = False
    fill_missing: bool = False
    encoding: str = ""
    format: str = "table"  #: one of `FORMS`
    follow: bool = False  #: whether a capture file is still being written
    raw: str = ""  #: what samples of a receiver on standard input are: cu8, cs8, cs16, cf32

    def check(self) -> ScoreRequest:
        """Return the request itself, or say in one sentence what is wrong with it."""
        if self.group is not None and not self.group >= 0:
            raise SpecError(f"--group {self.group:g}; use at least 0")
        if self.data != STDIN and not self.data.startswith(INTERFACE) and not Path(self.data).expanduser().exists():
            raise SpecError(f"{self.data}: no such file; score takes a table or a folder, not the name of a data set")
        return self


def score_stream(
    detector: Detector, request: ScoreRequest, out: IO[bytes], err: IO[str], known: Networks | None = None
) -> int:
    """Score all there is; return how many rows could not be. Groups that are open on Ctrl-C are closed first.

    `known` are the networks that are not new, in captures of 802.11.
    """
    request.check()
    roles = Roles(request.device_column, "", request.time_column)
    scorer = TableScorer(
        detector, roles, request.top, explains_all=request.explain_all, fill_missing=request.fill_missing
    )
    how = scorer.reading(request.raw, follow=request.follow, known=known)
    if request.encoding:
        how = replace(how, encoding=request.encoding)
    writer = ScoreWriter(request.format, out, request.alert_only, request.group)
    n_bad = 0
    try:
        for scored in scorer.score(blocks(request.data, how)):
            writer.write(scored)
            n_bad = _report(scored.rows, n_bad, err)
    except TolFLError:
        if writer.n_rows:
            writer.close()
        raise
    except KeyboardInterrupt:
        writer.close()
        raise
    writer.close()
    notes = list(scorer.notes)
    if n_bad > _MAX_SENTENCES:
        notes.append(f"{n_bad} rows could not be scored")
    if not writer.n_rows and not n_bad:
        notes.append("there was no row to score")
    for note in notes:
        err.write(f"tolfl: {note}\n")
    return n_bad


def _report(rows: Rows, n_bad: int, err: IO[str]) -> int:
    for row, problem in sorted(rows.errors.items()):
        n_bad += 1
        if n_bad <= _MAX_SENTENCES:
            source = Path(rows.block.source).name
            err.write(f"tolfl: {source}, row {rows.block.first + row}: {problem}; it is not scored\n")
    return n_bad
