"""`tolfl score`: what a detector says of rows, from files of any size or from a pipe, as they come."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

from tolfl.cli import flags
from tolfl.cli.fit import FillMissing
from tolfl.cli.inspect_model import Model


def score(  # noqa: PLR0913, PLR0917  (one parameter per flag)
    model: Model,
    data: Annotated[
        str | None,
        typer.Argument(help="CSV, JSON lines, Parquet, Arrow, NPZ, pcap, SigMF, a folder of these; -: standard input."),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Go on reading a capture that grows; without a file: standard input."),
    ] = False,
    interface: flags.Interface = None,
    raw: flags.Raw = "",
    device_column: Annotated[
        str | None, typer.Option(help="Whose row it is: that device's own threshold is used.")
    ] = None,
    time_column: flags.TimeColumn = None,
    alert_only: Annotated[bool, typer.Option("--alert-only", help="Show rows above the threshold only.")] = False,
    group: Annotated[
        float | None,
        typer.Option(help="Show alarms of a device as one if no more seconds (without a time: rows) lie between."),
    ] = None,
    top: Annotated[int, typer.Option(min=0, help="So many features that make the score of an alarm.")] = 3,
    explain_all: Annotated[
        bool, typer.Option("--explain-all", help="Name these features for all rows, which takes longer.")
    ] = False,
    fill_missing: FillMissing = False,
    encoding: flags.Encoding = None,
    format: Annotated[Literal["table", "csv", "jsonl", "json"], typer.Option(help="How to show the scores.")] = "table",
) -> None:
    """Score rows: how anomalous, how likely that is for a typical row, the verdict, and which features make an alarm.

    Columns are matched by name, and read as in training; others are not used. A row that cannot be scored gets a
    sentence on standard error, all others are scored, and the exit code is 1.

    Example: tolfl score model november.csv --device-column building --alert-only

    Example: tolfl score model november.csv --time-column time --group 600 --format csv

    Example: tail -f readings.jsonl | tolfl score model --follow --format jsonl

    Example: tolfl score model --interface wlan0 --alert-only
    """
    piped = "-" if data is None and follow and interface is None else data
    source = flags.source_of(
        piped, interface, "say what to score: a file, - (or --follow) for standard input, or --interface"
    )
    from tolfl.detect.detector import Detector
    from tolfl.detect.score_stream import ScoreRequest, score_stream

    request = ScoreRequest(
        source,
        device_column or "",
        time_column or "",
        alert_only,
        group,
        top,
        explain_all,
        fill_missing,
        encoding or "",
        format,
        follow and data not in {None, "-"},
        raw,
    )
    detector, known = Detector.load(model), None
    if any(name.startswith("new_network_frames") for name in detector.features.names):
        from tolfl.signals.known_networks import networks_file, networks_known

        known = networks_known(networks_file(model))
    if score_stream(detector, request.check(), sys.stdout.buffer, sys.stderr, known):
        raise typer.Exit(1)
