"""`tolfl status`: ask any device what its fleet is doing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from tolfl.cli import options
from tolfl.cli.options import Format
from tolfl.core.errors import TolFLError
from tolfl.core.records import how_far

if TYPE_CHECKING:
    from tolfl.net.client import Answer


def status(
    where: Annotated[str, typer.Argument(help="host:port of a device, a device's TOML file, or a run directory.")],
    credentials: Annotated[
        Path | None, typer.Option(help="Your key and certificate, a folder (tolfl enroll operator).")
    ] = None,
    format: options.HowShown = Format.TABLE,
) -> None:
    """Ask a device, or every device of a run on this machine, what it is doing.

    Example: tolfl status 127.0.0.1:7003

    Example: tolfl status runs/real --format json

    Example: tolfl status 10.0.0.3:7000 --credentials fleet/devices/me
    """
    from tolfl.net.client import ask_all, credentials_for, places

    answers = ask_all(places(where), credentials_for(where, credentials))
    if format is Format.JSON:
        typer.echo(msgspec.json.format(msgspec.json.encode([_plain(answer) for answer in answers]), indent=2).decode())
    else:
        _show(answers)
    if not any(answer.status is not None for answer in answers):
        raise TolFLError(f"{where}: nobody answers; is a device running there, and do you show it a certificate?")


def _plain(answer: Answer) -> dict[str, Any]:
    if answer.status is None:
        return {"address": answer.address, "answers": False}
    return {"address": answer.address, "answers": True, **msgspec.to_builtins(answer.status)}


def _show(answers: list[Answer]) -> None:
    from rich.table import Table

    from tolfl.cli.tables import console_for_tables

    console = console_for_tables()
    columns = ("device", "address", "life", "role", "round", "loss", "held for dead", "refused", "look at")
    table = Table(*columns, box=None, padding=(0, 2, 0, 0))
    for answer in answers:
        said = answer.status
        if said is None:
            table.add_row("?", answer.address, "", "does not answer")
            continue
        lives = {life.device: life.incarnation for life in said.roster}
        gone = {life.device for life in said.dead if lives.get(life.device, life.incarnation) <= life.incarnation}
        dead = ", ".join(map(str, sorted(gone)))
        refused = ", ".join(f"{kind} {count}" for kind, count in sorted(said.refused.items()))
        table.add_row(
            str(said.device),
            answer.address,
            str(said.incarnation),
            said.stopped or said.role,
            how_far(said.stages, said.version.round, said.rounds),
            "-" if said.loss is None else f"{said.loss:.4g}",
            dead,
            refused,
            said.trouble,
        )
    console.print(table)
