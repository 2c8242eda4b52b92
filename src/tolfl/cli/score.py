"""`tolfl score`: what a detector says of rows, from files of any size or from a pipe, as they come."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tolfl.cli import options
from tolfl.cli.fit import FillMissing
from tolfl.cli.inspect_model import Model
from tolfl.cli.scores_output import ScoreFormat, Writer, writer_for
from tolfl.core.errors import SpecError, TolFLError

if TYPE_CHECKING:
    from tolfl.detect import Detector
    from tolfl.detect.streams import ReadBatch, Reader, Table

#: Sentences about rows that cannot be scored; after these, a count.
_MAX_SENTENCES = 5


def score(  # noqa: PLR0913, PLR0917  (one parameter per flag)
    model: Model,
    data: Annotated[
        str | None,
        typer.Argument(help="CSV, Parquet, JSON lines, NPZ, pcap, SigMF, a folder of these; -: standard input."),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Read CSV or JSON lines from standard input, and answer line by line."),
    ] = False,
    device_column: Annotated[
        str | None, typer.Option(help="Whose row it is: that device's own threshold is used.")
    ] = None,
    time_column: options.TimeColumn = None,
    alert_only: Annotated[bool, typer.Option("--alert-only", help="Show rows above the threshold only.")] = False,
    group: Annotated[
        float | None,
        typer.Option(help="Show alarms of a device as one if no more seconds (without a time: rows) lie between."),
    ] = None,
    top: Annotated[int, typer.Option(min=0, help="So many features that make the score.")] = 3,
    fill_missing: FillMissing = False,
    format: Annotated[ScoreFormat, typer.Option(help="How to show the scores.")] = ScoreFormat.TABLE,
) -> None:
    """Score rows: how strange, how likely that is for a typical row, the verdict, and which features make it.

    Columns are matched by name; others are ignored. A row that cannot be scored gets a sentence on standard error, all
    others are scored, and the exit code is 1.

    Example: tolfl score model november.csv --device-column building --alert-only

    Example: tolfl score model november.csv --time-column time --group 600 --format csv

    Example: tail -f readings.jsonl | tolfl score model --follow --format jsonl
    """
    if data is None and not follow:
        raise SpecError("say what to score: a file, or - (or --follow) for standard input")
    if follow and data not in {None, "-"}:
        raise SpecError(f"--follow reads standard input, not {data}; leave one of them out")
    if group is not None and not group >= 0:
        raise SpecError(f"--group {group:g}; use at least 0")
    from tolfl.detect import Detector
    from tolfl.detect.streams import ColumnRoles, Reader

    detector = Detector.load(model)
    reader = Reader(detector, ColumnRoles(device_column or "", "", time_column or ""), fill_missing)
    writer = writer_for(format, sys.stdout, alert_only, group)
    n_bad = _score(detector, reader, _tables(data, reader), writer, top)
    if n_bad:
        raise typer.Exit(1)


def _tables(data: str | None, reader: Reader) -> Iterator[Table]:
    from tolfl.datasets import is_path
    from tolfl.detect.sources import tables_from, tables_in

    if data in {None, "-"}:
        return tables_from(sys.stdin.buffer)
    if not is_path(str(data)) and not Path(str(data)).exists():
        raise SpecError(f"{data}: no such file; score takes a table or a folder, not the name of a data set")
    return tables_in(Path(str(data)), reader)


def _score(detector: Detector, reader: Reader, tables: Iterator[Table], writer: Writer, n_top: int) -> int:
    """Score all there is; return how many rows could not be. What was open when Ctrl-C came is closed first."""
    from tolfl.detect.scored import score_rows

    n_bad = 0
    try:
        for batch in reader.batches(tables):
            good = batch.is_good
            devices = None if batch.devices is None else batch.devices[good]
            writer.write(batch, score_rows(detector, batch.rows[good], devices, n_top, writer.only_alarms))
            n_bad = _say(batch, n_bad)
    except TolFLError:
        if writer.n_rows:
            writer.close()
        raise
    except KeyboardInterrupt:
        writer.close()
        raise
    writer.close()
    for note in reader.notes:
        typer.echo(f"tolfl: {note}", err=True)
    if n_bad > _MAX_SENTENCES:
        typer.echo(f"tolfl: {n_bad} rows could not be scored", err=True)
    if not writer.n_rows and not n_bad:
        typer.echo("tolfl: there was no row to score", err=True)
    return n_bad


def _say(batch: ReadBatch, n_bad: int) -> int:
    for row, problem in sorted(batch.problems.items()):
        n_bad += 1
        if n_bad <= _MAX_SENTENCES:
            typer.echo(f"tolfl: {batch.source}, row {batch.numbers[row]}: {problem}; it is not scored", err=True)
    return n_bad
