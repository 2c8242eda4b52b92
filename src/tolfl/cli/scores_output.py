"""Scores on their way out: as a table for people, as CSV, as JSON lines, as one JSON array; row by row, never all."""

from __future__ import annotations

import csv
from enum import StrEnum
from io import StringIO
from typing import IO, TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tolfl.detect.alarms import Alarm, AlarmGroup
    from tolfl.detect.explaining import FeatureShare
    from tolfl.detect.scored import ScoredRows
    from tolfl.detect.streams import ReadBatch

Line = dict[str, Any]


class ScoreFormat(StrEnum):
    """How scores are shown."""

    TABLE = "table"
    CSV = "csv"
    JSONL = "jsonl"
    JSON = "json"


class Form:
    """One way to write lines; subclasses change what a line looks like, and what comes before and after all."""

    def __init__(self, out: IO[str]) -> None:
        self.out = out
        self.n_lines = 0

    def line(self, line: Line) -> None:
        """Write one line as JSON."""
        self.out.write(msgspec.json.encode(line).decode() + "\n")
        self.n_lines += 1

    def flush(self) -> None:
        """Let others see what was written."""
        self.out.flush()

    def close(self, summary: str) -> None:
        """Write what comes after all."""


class JSONArray(Form):
    """One array with an object per row."""

    def line(self, line: Line) -> None:
        """Write one element."""
        self.out.write(("," if self.n_lines else "[") + "\n  " + msgspec.json.encode(line).decode())
        self.n_lines += 1

    def close(self, summary: str) -> None:  # noqa: ARG002
        """Close the array."""
        self.out.write("\n]\n" if self.n_lines else "[]\n")


class CSVLines(Form):
    """A header, and a line per row; features as words."""

    def line(self, line: Line) -> None:
        """Write one line, the header before the first."""
        text = StringIO()
        writer = csv.writer(text, lineterminator="\n")
        flat = {**line, "features": _in_words(line["features"])}
        if not self.n_lines:
            writer.writerow(flat)
        writer.writerow(["" if value is None else value for value in flat.values()])
        self.out.write(text.getvalue())
        self.n_lines += 1


class TableLines(Form):
    """Columns of fixed width: a table that can be read while it grows."""

    def line(self, line: Line) -> None:
        """Write one line, the names before the first."""
        cells = {name: value for name, value in line.items() if name != "features"}
        if not self.n_lines:
            self.out.write("".join(f"{name:<{_width(name)}}" for name in cells) + "features\n")
        texts = (f"{_cell(value):<{_width(name)}}" for name, value in cells.items())
        self.out.write(("".join(texts) + _in_words(line["features"])).rstrip() + "\n")
        self.n_lines += 1

    def close(self, summary: str) -> None:
        """Write what it comes to."""
        self.out.write(f"{summary}\n")


_FORMS: dict[ScoreFormat, type[Form]] = {
    ScoreFormat.TABLE: TableLines,
    ScoreFormat.CSV: CSVLines,
    ScoreFormat.JSONL: Form,
    ScoreFormat.JSON: JSONArray,
}


class Writer:
    """Turns scored rows into lines: all rows, alarms only, or groups of alarms."""

    def __init__(self, form: Form, alert_only: bool, gap: float | None) -> None:
        from tolfl.detect.alarms import AlarmGroups

        self._form, self._alert_only = form, alert_only
        self._groups = None if gap is None else AlarmGroups(gap)
        self.n_rows = self.n_alarms = self._n_groups = 0

    @property
    def only_alarms(self) -> bool:
        """Whether nobody will see rows that are no alarm."""
        return self._alert_only or self._groups is not None

    def write(self, batch: ReadBatch, scored: ScoredRows) -> None:
        """Write a batch; a row that could not be scored has a line without a score."""
        import numpy as np

        self.n_rows += len(scored.scores)
        self.n_alarms += int(scored.is_alarm.sum())
        rows = np.flatnonzero(batch.is_good)
        if self._groups is not None:
            self._group(batch, scored, rows)
        elif self._alert_only:
            for place in np.flatnonzero(scored.is_alarm).tolist():
                self._form.line({**_where(batch, int(rows[place])), **_said(scored, place)})
        else:
            places = dict(zip(rows.tolist(), range(len(rows)), strict=True))
            for row in range(len(batch.rows)):
                said = _said(scored, places[row]) if row in places else _NOT_SCORED
                self._form.line({**_where(batch, row), **said})
        self._form.flush()

    def _group(self, batch: ReadBatch, scored: ScoredRows, rows: NDArray[np.int64]) -> None:
        import numpy as np

        assert self._groups is not None
        places = batch.numbers.astype(np.float64) if batch.times is None else batch.times
        devices = np.full(len(batch.rows), "") if batch.devices is None else batch.devices
        for place in np.flatnonzero(scored.is_alarm).tolist():
            for group in self._groups.add(_alarm(batch, scored, place, int(rows[place]), float(places[rows[place]]))):
                self._show(group)
        for device in self._groups.open_devices:
            own = places[rows][devices[rows] == device]
            for group in self._groups.passed(device, float(np.max(own, initial=-np.inf))):
                self._show(group)

    def _show(self, group: AlarmGroup) -> None:
        self._n_groups += 1
        times = {"from": group.first_time, "to": group.last_time} if group.first_time else {}
        rows = {"first_row": group.first_row, "last_row": group.last_row, "alarms": group.n_alarms}
        who = {"device": group.device} if group.device else {}
        peak = {"peak": group.peak.score, "p_value": group.peak.p_value}
        self._form.line({**times, **who, **rows, **peak, "features": _plain(group.peak.features)})

    def close(self) -> None:
        """Write groups that are still open, and the end."""
        for group in self._groups.close() if self._groups is not None else ():
            self._show(group)
        rate = f" ({self.n_alarms / self.n_rows:.2%})" if self.n_rows else ""
        groups = f" in {self._n_groups} group(s)" if self._groups is not None else ""
        self._form.close(f"{self.n_rows} row(s), {self.n_alarms} alarm(s){rate}{groups}")
        self._form.flush()


def writer_for(shown: ScoreFormat, out: IO[str], alert_only: bool, gap: float | None) -> Writer:
    """Return a writer in the form that was asked for."""
    return Writer(_FORMS[shown](out), alert_only, gap)


_NOT_SCORED: Line = {"score": None, "p_value": None, "verdict": "not scored", "features": []}


def _where(batch: ReadBatch, row: int) -> Line:
    line: Line = {"row": int(batch.numbers[row])}
    if batch.time_texts is not None:
        line["time"] = batch.time_texts[row]
    if batch.devices is not None:
        line["device"] = str(batch.devices[row])
    return line


def _alarm(batch: ReadBatch, scored: ScoredRows, place: int, row: int, when: float) -> Alarm:
    from tolfl.detect.alarms import Alarm

    device = "" if batch.devices is None else str(batch.devices[row])
    text = "" if batch.time_texts is None else batch.time_texts[row]
    score, p_value = float(scored.scores[place]), float(scored.p_values[place])
    return Alarm(device, when, int(batch.numbers[row]), score, p_value, scored.top_features(place), text)


def _said(scored: ScoredRows, place: int) -> Line:
    return {
        "score": float(scored.scores[place]),
        "p_value": float(scored.p_values[place]),
        "verdict": "alarm" if scored.is_alarm[place] else "typical",
        "features": _plain(scored.top_features(place)),
    }


def _plain(features: tuple[FeatureShare, ...]) -> list[Line]:
    return [msgspec.to_builtins(feature) for feature in features]


def _in_words(features: list[Line]) -> str:
    return "; ".join(
        f"{one['name']} {one['value']:.4g} instead of {one['expected']:.4g}{' ' * bool(one['unit'])}{one['unit']} "
        f"({one['share']:.0%})"
        for one in features
    )


def _width(name: str) -> int:
    return {"time": 27, "from": 27, "to": 27, "device": 16, "verdict": 12, "row": 9}.get(name, 11)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
