"""From a source of rows to lines with verdicts, as they come: what `tolfl score` and the standalone scorer both run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from tolfl.core.errors import SpecError, TolFLError
from tolfl.detect.fitted import Detector
from tolfl.detect.score_output import ScoreWriter
from tolfl.detect.scoring import TableScorer
from tolfl.tables import Block, Roles, Rows, blocks
from tolfl.tables.block_reader import STDIN

#: Sentences about rows that cannot be scored; after these, a count.
_MAX_SENTENCES = 5


class ScoreRequest(msgspec.Struct, frozen=True):
    """What to score, and how to show it."""

    data: str = STDIN
    device_column: str = ""
    time_column: str = ""
    alert_only: bool = False
    group: float | None = None  #: alarms of a device are one if no more seconds (or rows) lie between
    top: int = 3
    explain_all: bool = False
    fill_missing: bool = False
    encoding: str = ""
    format: str = "table"  #: one of `score_output.FORMS`

    def check(self) -> ScoreRequest:
        """Return the request itself, or say in one sentence what is wrong with it."""
        if self.group is not None and not self.group >= 0:
            raise SpecError(f"--group {self.group:g}; use at least 0")
        if self.data != STDIN and not Path(self.data).expanduser().exists():
            raise SpecError(f"{self.data}: no such file; score takes a table or a folder, not the name of a data set")
        return self


def score_stream(detector: Detector, request: ScoreRequest, out: IO[bytes], err: IO[str]) -> int:
    """Score all there is; return how many rows could not be. What was open when Ctrl-C came is closed first."""
    request.check()
    roles = Roles(request.device_column, "", request.time_column)
    scorer = TableScorer(
        detector, roles, request.top, explains_all=request.explain_all, fill_missing=request.fill_missing
    )
    writer = ScoreWriter(request.format, out, request.alert_only, request.group)
    n_bad = 0
    try:
        for scored in scorer.score(_blocks(scorer, request)):
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


def _blocks(scorer: TableScorer, request: ScoreRequest) -> Iterator[Block]:
    return blocks(request.data, request.encoding or scorer.schema.encoding, scorer.grid)


def _report(rows: Rows, n_bad: int, err: IO[str]) -> int:
    for row, problem in sorted(rows.errors.items()):
        n_bad += 1
        if n_bad <= _MAX_SENTENCES:
            source = Path(rows.block.source).name
            err.write(f"tolfl: {source}, row {rows.block.first + row}: {problem}; it is not scored\n")
    return n_bad
