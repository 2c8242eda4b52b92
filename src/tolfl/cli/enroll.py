"""`tolfl enroll`: who belongs to a fleet, and who no longer does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tolfl.cli import options
from tolfl.cli.options import Format
from tolfl.cli.output import show_json

app = typer.Typer(help="Certificates of a fleet: init, device, operator, renew, revoke, list.", no_args_is_help=True)

Folder = Annotated[Path, typer.Option("--fleet", help="The folder of the fleet's authority. Keep it off the devices.")]
Days = Annotated[int, typer.Option(min=1, max=3650, help="How long the certificate is good.")]
Name = Annotated[str, typer.Argument(help="A name: small letters, digits and hyphens.")]
_DEFAULT = Path("fleet")


@app.command()
def init(
    fleet: Folder = _DEFAULT,
    name: Annotated[str, typer.Option(help="The name of the fleet. (default: a random one)")] = "",
) -> None:
    """Make the authority of a new fleet: whoever has its key decides who belongs.

    Example: tolfl enroll init --fleet fleet --name plant-7
    """
    from tolfl.net.enrolment import Authority

    authority = Authority.create(fleet, name)
    typer.echo(f"fleet {authority.fleet}: its authority is in {fleet}; keep {fleet / 'key.pem'} off the devices")


@app.command()
def device(
    name: Name,
    id: Annotated[
        int | None, typer.Option("--id", min=0, help="The device's id. (default: the name, if a number)")
    ] = None,
    fleet: Folder = _DEFAULT,
    days: Days = 365,
) -> None:
    """Make a key and a certificate for a device, in a folder to be copied to it.

    Example: tolfl enroll device gateway --id 3

    Example: tolfl enroll device 3 --days 90
    """
    from tolfl.net.enrolment import Authority, EnrolmentRequestError

    if id is None and not name.isdecimal():
        raise EnrolmentRequestError(f"device {name!r} has no id; give one with --id")
    folder = Authority(fleet).issue(name, int(name) if id is None else id, days)
    typer.echo(f"copy {folder} to the device, and name it as credentials in its configuration")


@app.command()
def operator(name: Name, fleet: Folder = _DEFAULT, days: Days = 365) -> None:
    """Make a certificate for somebody who may ask devices for their status and give them commands.

    Example: tolfl enroll operator me ; tolfl status 10.0.0.3:7000 --credentials fleet/devices/me
    """
    from tolfl.net.enrolment import Authority

    typer.echo(f"made {Authority(fleet).issue(name, None, days)}")


@app.command()
def renew(name: Name, fleet: Folder = _DEFAULT, days: Days = 365) -> None:
    """Make a new key and certificate in place of ones that end soon; the device reads them when it starts again.

    Example: tolfl enroll renew gateway
    """
    from tolfl.net.enrolment import Authority

    typer.echo(f"copy {Authority(fleet).renew(name, days)} to the device and start it again")


@app.command()
def revoke(name: Name, fleet: Folder = _DEFAULT) -> None:
    """Take a certificate back. One device that gets the new list is enough: they pass it on.

    Example: tolfl enroll revoke gateway ; scp fleet/revocations.json 10.0.0.4:/etc/tolfl/credentials/
    """
    from tolfl.net.enrolment import REVOCATIONS, Authority

    Authority(fleet).revoke(name)
    typer.echo(f"{name} is revoked; copy {fleet / REVOCATIONS} into the credentials of any device that runs")


@app.command("list")
def list_(fleet: Folder = _DEFAULT, format: options.HowShown = Format.TABLE) -> None:
    """List the certificates that were handed out.

    Example: tolfl enroll list --format json
    """
    from tolfl.net.enrolment import Authority

    authority = Authority(fleet)
    entries = authority.entries()
    if format is Format.JSON:
        found = {"fleet": authority.fleet, "devices": entries}
        show_json(found)
        return
    from rich.table import Table

    from tolfl.cli.output import console_for_tables

    table = Table("name", "device", "generation", "good until", "", box=None, padding=(0, 2, 0, 0))
    for name, entry in entries.items():
        who = "operator" if entry.device is None else str(entry.device)
        table.add_row(name, who, str(entry.generation), entry.expires, "revoked" if entry.is_revoked else "")
    console_for_tables().print(table)
