"""`tolfl doctor`: what on this machine will make trouble, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from tolfl.cli import options
from tolfl.cli.checks import Finding, State
from tolfl.cli.options import Format
from tolfl.cli.output import show_json

_AREAS = ("versions", "device", "certificates", "ports", "clock", "limits", "data", "terminal")
_COLOURS = {State.OK: "green", State.NOTE: "cyan", State.WARNING: "yellow", State.PROBLEM: "bold red"}


def doctor(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="A device's TOML file: is its port free, do its peers answer?")
    ] = None,
    fleet: Annotated[Path | None, typer.Option(help="The folder of a fleet's authority (tolfl enroll).")] = None,
    credentials: Annotated[
        Path | None, typer.Option(help="A folder with a key and a certificate (tolfl enroll).")
    ] = None,
    data_dir: options.DataDir = None,
    out: Annotated[Path, typer.Option(help="Where runs are going to be written.")] = Path("runs"),
    format: options.HowShown = Format.TABLE,
) -> None:
    """Look at versions, ports, certificates, clock, limits, data and terminal; say what is wrong and what to do.

    A note is about something that only some people need. With a problem the exit code is 1. Nothing is changed.

    Example: tolfl doctor

    Example: tolfl doctor --config device.toml

    Example: tolfl doctor --fleet fleet --data-dir ~/data --format json
    """
    found = _examined(config, fleet, credentials, data_dir or "", out)
    findings = sorted(found, key=lambda finding: _AREAS.index(finding.area))
    if format is Format.JSON:
        show_json(findings)
    else:
        _show(findings)
    if any(finding.state is State.PROBLEM for finding in findings):
        raise typer.Exit(1)


def _examined(
    config: Path | None, fleet: Path | None, credentials: Path | None, data_dir: str, out: Path
) -> Iterator[Finding]:
    from tolfl.cli.checks.at_hand import data_findings
    from tolfl.cli.checks.fleet import certificate_findings, device_findings, fleet_findings, port_findings
    from tolfl.cli.checks.machine import clock_findings, limit_findings, terminal_findings
    from tolfl.cli.checks.versions import version_findings

    yield from version_findings()
    yield from port_findings()
    if config is not None:
        yield from device_findings(config)
    if credentials is not None:
        yield from certificate_findings(credentials)
    if fleet is not None:
        yield from fleet_findings(fleet)
    yield from clock_findings()
    yield from limit_findings(out)
    yield from data_findings(data_dir)
    yield from terminal_findings()


def _show(findings: list[Finding]) -> None:
    from rich.table import Table
    from rich.text import Text

    from tolfl.cli.output import console_for_tables

    console = console_for_tables()
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    table.add_column()
    area = ""
    for finding in findings:
        if finding.area != area:
            area = finding.area
            table.add_row(Text(area, style="bold"))
        table.add_row(Text(f"  {finding.state}", style=_COLOURS[finding.state]), finding.name, finding.sentence)
    console.print(table)
    counts = [(state, sum(finding.state is state for finding in findings)) for state in (State.PROBLEM, State.WARNING)]
    console.print(", ".join(f"{count} {state}{'s' * (count != 1)}" for state, count in counts))
