"""`tolfl status`: ask any device what its fleet is doing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from tolfl.cli import options
from tolfl.cli.options import Format
from tolfl.cli.output import show_json
from tolfl.core.errors import TolFLError
from tolfl.core.records import how_far

if TYPE_CHECKING:
    from rich.table import Table

    from tolfl.net.client import Answer
    from tolfl.net.wire import StatusReply


def status(
    where: Annotated[str, typer.Argument(help="host:port of a device, a device's TOML file, or a run directory.")],
    credentials: Annotated[
        Path | None, typer.Option(help="Your key and certificate, a folder (tolfl enroll operator).")
    ] = None,
    format: options.HowShown = Format.TABLE,
) -> None:
    """Ask a device what its whole fleet is doing, as it knows it; or every device of a run on this machine.

    Example: tolfl status 127.0.0.1:7003

    Example: tolfl status runs/real --format json

    Example: tolfl status 10.0.0.3:7000 --credentials fleet/devices/me
    """
    from tolfl.net.client import ask_all, credentials_for, places

    answers = ask_all(places(where), credentials_for(where, credentials))
    if format is Format.JSON:
        show_json([_plain(answer) for answer in answers])
    else:
        _show(answers)
    if not any(answer.status is not None for answer in answers):
        raise TolFLError(f"{where}: nobody answers; is a device running there, and do you show it a certificate?")


def _plain(answer: Answer) -> dict[str, Any]:
    if answer.status is None:
        return {"address": answer.address, "answers": False}
    return {"address": answer.address, "answers": True, **msgspec.to_builtins(answer.status)}


def _show(answers: list[Answer]) -> None:
    from tolfl.cli.output import console_for_tables, new_table

    console = console_for_tables()
    columns = ("device", "address", "life", "role", "rounds done", "loss", "held for dead", "refused", "problem")
    table = new_table(*columns)
    for answer in answers:
        said = answer.status
        if said is None:
            table.add_row("?", answer.address, "", "does not answer")
            continue
        refused = ", ".join(f"{kind} {count}" for kind, count in sorted(said.refused.items()))
        table.add_row(
            str(said.device),
            answer.address,
            str(said.incarnation),
            said.stopped or said.role,
            how_far(said.stages, said.version.round, said.rounds),
            "-" if said.loss is None else f"{said.loss:.4g}",
            ", ".join(map(str, sorted(dead_devices(said)))),
            refused,
            said.trouble,
        )
    console.print(table)
    if len(answers) == 1 and answers[0].status is not None:
        console.print()
        console.print(_fleet_table(answers[0].status))


def dead_devices(said: StatusReply) -> set[int]:
    """Return the devices that a device holds for dead, in the life that its roster has."""
    lives = {life.device: life.incarnation for life in said.roster}
    return {life.device for life in said.dead if lives.get(life.device, life.incarnation) <= life.incarnation}


def _fleet_table(said: StatusReply) -> Table:
    """Return the whole fleet as one device knows it, with the age of what it knows."""
    from tolfl.cli.output import new_table
    from tolfl.core.topology import Topology

    n_done = said.version.round
    title = f"the fleet as device {said.device} knows it; "
    title += f"round {n_done - 1}, closed {said.round_age_s:.1f} s ago" if n_done else "no round is closed"
    table = new_table("device", "cluster", "role", "state", "in the last round", "last sign of life", title=title)
    table.title_justify = "left"
    dead, inside = dead_devices(said), {life.device for life in said.roster}
    heads = Topology(said.clusters).heads(inside - dead)
    peers = {peer.device: peer for peer in said.peers}
    for cluster, devices in enumerate(said.clusters):
        for device in devices:
            peer = peers.get(device)
            sign = "answers now" if device == said.device else "-" if peer is None else f"{peer.silent_s:.1f} s ago"
            state = "dead" if device in dead else "trains" if device in inside else "outside"
            if device == said.device and said.stopped:
                state = said.stopped
            role = "head" if device in heads else "member"
            if heads and device == heads[-1]:
                role = "head, closes the rounds"
            why = said.missing.get(device, "no")
            table.add_row(
                str(device),
                str(cluster),
                role if device in inside - dead else "",
                state,
                "yes" if device in said.included else why if n_done else "",
                sign,
            )
    return table
