"""From a source of rows to lines with verdicts, as they come: what `tolfl score` and the standalone scorer both run."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from tolfl.core.errors import SpecError, TolFLError
from tolfl.detect.detector import Detector
from tolfl.detect.features import FeatureShare
from tolfl.detect.scoring import ScoredRows, TableScorer
from tolfl.tables import Roles, Rows, blocks
from tolfl.tables.block_reader import INTERFACE, STDIN

if TYPE_CHECKING:
    from tolfl.signals.wlan import Networks

Columns = dict[str, list[Any]]  #: by name; the last one, `features`, has the features that make each score
_WIDTHS = {"time": 27, "from": 27, "to": 27, "device": 16, "verdict": 12, "row": 9}


# -- forms ---------------------------------------------------------------------------------------------------------


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
    scores, p_values = scored.scores[places], scored.p_values[places]
    is_scored = ~np.isnan(scores)
    verdicts = np.where(scored.is_notice[places], "notice", np.where(scored.is_alarm[places], "alarm", "typical"))
    verdicts = np.where(is_scored, verdicts, "not scored")
    columns |= _of_windows(scored, places)
    return {
        **columns,
        "score": scores.tolist() if is_scored.all() else [None if np.isnan(one) else one for one in scores.tolist()],
        "p_value": p_values.tolist() if is_scored.all() else [None if np.isnan(p) else p for p in p_values.tolist()],
        "verdict": verdicts.tolist(),
        "features": [scored.top.get(place, ()) for place in places.tolist()],
    }


def _of_windows(scored: ScoredRows, places: NDArray[np.int64]) -> Columns:
    """Return what windows of captures have beside: network or channel, whether they are whole, how novel they are."""
    block, columns = scored.rows.block, Columns()
    if "key" in block.beside:
        columns["key"] = block.table["key"].take(places).tolist()
    if block.is_partial is not None:
        columns["partial"] = block.is_partial[places].tolist()
    if np.isfinite(scored.novelty).any():
        columns["novelty"] = [None if np.isnan(one) else one for one in scored.novelty[places].tolist()]
    return columns


def _alarm(scored: ScoredRows, place: int, when: float, device: str) -> Alarm:
    rows = scored.rows
    text = "" if rows.time_texts is None else rows.time_texts[place] or ""
    score, p_value = float(scored.scores[place]), float(scored.p_values[place])
    return Alarm(device, when, int(rows.numbers[place]), score, p_value, scored.top.get(place, ()), text)


def _in_words(features: tuple[FeatureShare, ...]) -> str:
    return "; ".join(_share(one) for one in features) if features else ""


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
