"""Scores on their way out: as a table for people, as CSV, as JSON lines, as one JSON array; a block at a time."""

from __future__ import annotations

from typing import IO, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from tolfl.detect.alarms import Alarm, AlarmGroup, AlarmGroups
from tolfl.detect.explaining import FeatureShare
from tolfl.detect.scoring import ScoredRows

Columns = dict[str, list[Any]]  #: by name; the last one, `features`, has the features that make each score
_WIDTHS = {"time": 27, "from": 27, "to": 27, "device": 16, "verdict": 12, "row": 9}


class JSONLines:
    """One object per line; other forms change what a block looks like, and what comes before and after all."""

    def __init__(self, out: IO[bytes]) -> None:
        self.out, self.n_lines = out, 0

    def write(self, columns: Columns) -> None:
        """Write a block."""
        names = tuple(columns)
        rows = [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        self.out.write(self.encoded(rows))
        self.n_lines += len(rows)

    def encoded(self, rows: list[dict[str, Any]]) -> bytes:
        """Return rows as text."""
        return msgspec.json.Encoder().encode_lines(rows)

    def close(self, summary: str) -> None:
        """Write what comes after all."""


class JSONArray(JSONLines):
    """One array with an object per row."""

    def encoded(self, rows: list[dict[str, Any]]) -> bytes:
        """Return the elements of a block."""
        start = b",\n  " if self.n_lines else b"[\n  "
        return start + b",\n  ".join(map(msgspec.json.encode, rows)) if rows else b""

    def close(self, summary: str) -> None:  # noqa: ARG002
        """Close the array."""
        self.out.write(b"\n]\n" if self.n_lines else b"[]\n")


class CSVLines(JSONLines):
    """A header, and a line per row; features as words."""

    def write(self, columns: Columns) -> None:
        """Write a block, the header before the first."""
        features = [_in_words(one) for one in columns["features"]]
        table = pa.table({**columns, "features": pa.array(features, pa.string())})
        if table.num_rows and not self.n_lines:
            self.out.write((",".join(columns) + "\n").encode())
        if table.num_rows:
            pa_csv.write_csv(table, self.out, pa_csv.WriteOptions(include_header=False))
        self.n_lines += table.num_rows


class TableLines(JSONLines):
    """Columns of fixed width: a table that can be read while it grows."""

    def write(self, columns: Columns) -> None:
        """Write a block, the names before the first."""
        widths = {name: _WIDTHS.get(name, 11) for name in columns if name != "features"}
        lines = []
        if not self.n_lines and columns["features"]:
            lines.append("".join(f"{name:<{width}}" for name, width in widths.items()) + "features")
        cells = [[f"{_cell(value):<{width}}" for value in columns[name]] for name, width in widths.items()]
        cells.append([_in_words(one) for one in columns["features"]])
        lines += ["".join(row).rstrip() for row in zip(*cells, strict=True)]
        if lines:
            self.out.write(("\n".join(lines) + "\n").encode())
        self.n_lines += len(columns["features"])

    def close(self, summary: str) -> None:
        """Write what it comes to."""
        self.out.write(f"{summary}\n".encode())


FORMS: dict[str, type[JSONLines]] = {"table": TableLines, "csv": CSVLines, "jsonl": JSONLines, "json": JSONArray}


class ScoreWriter:
    """Turns scored rows into lines: all rows, alarms only, or groups of alarms."""

    def __init__(self, shown: str, out: IO[bytes], alert_only: bool, gap: float | None) -> None:
        self._form, self._out, self._alert_only = FORMS[shown](out), out, alert_only
        self._groups = None if gap is None else AlarmGroups(gap)
        self.n_rows = self.n_alarms = self._n_groups = 0

    def write(self, scored: ScoredRows) -> None:
        """Write a block; a row that could not be scored has a line without a score."""
        self.n_rows += int(scored.is_scored.sum())
        self.n_alarms += int(scored.is_alarm.sum())
        if self._groups is not None:
            self._group(scored)
        else:
            places = np.flatnonzero(scored.is_alarm) if self._alert_only else np.arange(len(scored.scores))
            self._form.write(_columns(scored, places))
        self._out.flush()

    def _group(self, scored: ScoredRows) -> None:
        assert self._groups is not None
        rows = scored.rows
        when = rows.numbers.astype(np.float64) if rows.times is None else rows.times
        devices = np.full(len(when), "") if rows.devices is None else rows.devices
        for place in np.flatnonzero(scored.is_alarm).tolist():
            self._show(self._groups.add(_alarm(scored, place, float(when[place]), str(devices[place]))))
        for device in self._groups.open_devices:
            own = when[scored.is_scored & (devices == device)]
            self._show(self._groups.passed(device, float(np.max(own, initial=-np.inf))))

    def _show(self, groups: list[AlarmGroup]) -> None:
        for group in groups:
            self._n_groups += 1
            times = {"from": group.first_time, "to": group.last_time} if group.first_time else {}
            rows = {"first_row": group.first_row, "last_row": group.last_row, "alarms": group.n_alarms}
            who = {"device": group.device} if group.device else {}
            peak = {"peak": group.peak.score, "p_value": group.peak.p_value}
            line = {**times, **who, **rows, **peak, "features": group.peak.features}
            self._form.write({name: [value] for name, value in line.items()})

    def close(self) -> None:
        """Write groups that are still open, and the end."""
        self._show(self._groups.close() if self._groups is not None else [])
        rate = f" ({self.n_alarms / self.n_rows:.2%})" if self.n_rows else ""
        groups = f" in {self._n_groups} group(s)" if self._groups is not None else ""
        self._form.close(f"{self.n_rows} row(s), {self.n_alarms} alarm(s){rate}{groups}")
        self._out.flush()


def _columns(scored: ScoredRows, places: NDArray[np.int64]) -> Columns:
    rows = scored.rows
    columns: Columns = {"row": rows.numbers[places].tolist()}
    if rows.time_texts is not None:
        columns["time"] = rows.time_texts.take(places).to_pylist()
    if rows.devices is not None:
        columns["device"] = rows.devices[places].tolist()
    scores, p_values = scored.scores[places], scored.p_values[places]
    is_scored = ~np.isnan(scores)
    verdicts = np.where(is_scored, np.where(scored.is_alarm[places], "alarm", "typical"), "not scored")
    return {
        **columns,
        "score": scores.tolist() if is_scored.all() else [None if np.isnan(one) else one for one in scores.tolist()],
        "p_value": p_values.tolist() if is_scored.all() else [None if np.isnan(p) else p for p in p_values.tolist()],
        "verdict": verdicts.tolist(),
        "features": [scored.top.get(place, ()) for place in places.tolist()],
    }


def _alarm(scored: ScoredRows, place: int, when: float, device: str) -> Alarm:
    rows = scored.rows
    text = "" if rows.time_texts is None else rows.time_texts[place].as_py() or ""
    score, p_value = float(scored.scores[place]), float(scored.p_values[place])
    return Alarm(device, when, int(rows.numbers[place]), score, p_value, scored.top.get(place, ()), text)


def _in_words(features: tuple[FeatureShare, ...]) -> str:
    return "; ".join(_share(one) for one in features) if features else ""


def _share(one: FeatureShare) -> str:
    if one.value != one.value:  # a word: there is no number to name
        return f"{one.name} ({one.share:.0%})"
    unit = f" {one.unit}" if one.unit else ""
    return f"{one.name} {one.value:.4g} instead of {one.expected:.4g}{unit} ({one.share:.0%})"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
