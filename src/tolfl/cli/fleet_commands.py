"""Commands around a fleet of real devices: `tolfl node`, `tolfl status`, and `tolfl enroll` with its certificates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from tolfl.cli import flags
from tolfl.cli.output import age, notify, show, table_of
from tolfl.cli.progress import on_sigterm
from tolfl.core.errors import SpecError, TolFLError
from tolfl.core.records import how_far

if TYPE_CHECKING:
    from rich.table import Table

    from tolfl.cli.output import Line
    from tolfl.datasets.federated import Samples
    from tolfl.net.client import Answer
    from tolfl.net.node import Node
    from tolfl.net.node_config import NodeConfig
    from tolfl.net.wire import StatusReply, WatchStatus
    from tolfl.watch.fleet_watch import FleetWatch

    Kept = tuple[tuple[str, ...], Samples]  #: columns, and rows to learn from


@flags.spec_flags("learn flower run_config node_config python", has_file=False, has_set=False)
def node(
    asked: flags.SpecFlags,
    config: Annotated[Path, typer.Option("--config", "-c", help="The configuration of this device, in TOML.")],
    absent: Annotated[
        str, typer.Option(help="Ids of devices that are permanently lost, as in 3,4: the start does not wait for them.")
    ] = "",
    use: Annotated[
        str, typer.Option(help="previous: watch with the detector of the run before, whatever the fleet learns.")
    ] = "",
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print a line for every round.")] = False,
) -> None:
    """Run one device of a fleet on this machine until the run is over; Ctrl-C or SIGTERM leaves in good order.

    With a table 'watch' in its configuration the device then watches its own source and sends alarms until it is asked
    to leave; started again, it watches at once with the newest detector in its state folder.

    A line is printed when a device joins, fails, takes over or returns, and once a minute for the progress.

    What was learned is in its state folder then: `detector.tolfl`, or the model. All devices of a fleet must learn the
    same: give --learn to all of them, or write it into the specification.

    The exit status is 3 where the others may have ended with another model: half of them or more were absent at the
    end, or this device knows of a model that it could not get.

    Example: tolfl node --config device.toml

    Example: tolfl node --config device.toml --verbose

    Example: tolfl node --config device.toml --flower my-app --node-config "partition-id=0"
    """
    import asyncio
    import time

    from tolfl.cli.event_lines import EVERY_S, EventLines
    from tolfl.net.node_config import NodeConfig
    from tolfl.net.prepare import prepare, run_to_the_end

    learn = {"what" if name == "learn" else name: value for name, value in flags.with_flower(asked.given).items()}
    settings = NodeConfig.from_file(config).without(absent)
    if use not in {"", "previous"} or (use and settings.watch is None):
        raise SpecError(f"--use {use}: only previous can be used, by a device that has a table [watch]")

    def clock() -> str:
        return time.strftime("%H:%M:%S")

    def print_line(words: str) -> None:
        typer.echo(f"{clock()} device {settings.device} {words}", err=True)

    async def run_device(watching: FleetWatch | None, kept: Kept | None) -> tuple[list[str], int]:
        device = prepare(settings, learn=learn, kept=kept)
        if watching is not None:
            device.watching, watching.on_alarm = watching, device.alarmed
        n_others = len(device.limits.topology.cluster_of) - 1
        print_line(f"listens on {settings.listen}, {n_others} others")
        lines = EventLines(lambda _: clock(), is_verbose=verbose)
        device.log.on_record = lines.print_event
        waiting = asyncio.create_task(print_while_waiting(device, n_others, lines))
        try:
            return await run_to_the_end(device)
        finally:
            waiting.cancel()

    async def print_while_waiting(device: Node, n_others: int, lines: EventLines) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            if lines.idle_s >= EVERY_S and device.device.stopped is None:
                there = f"{len(device.links.connected)} of {n_others} others are connected"
                typer.echo(f"{clock()} no round for {lines.idle_s:.0f} s; {there}", err=True)

    with _watching(settings, use == "previous", print_line) as (watching, kept):
        sentences, code = asyncio.run(run_device(watching, kept))
    for sentence in sentences:
        notify(sentence)
    raise typer.Exit(code)


@contextmanager
def _watching(
    config: NodeConfig, uses_previous: bool, print_line: Callable[[str], None]
) -> Iterator[tuple[FleetWatch | None, Kept | None]]:
    """Watch while a device runs, if its configuration says so; give the rows of late if this is a later run."""
    if config.watch is None:
        yield None, None
        return
    from tolfl.core.spec import RunSpec
    from tolfl.watch.fleet_watch import FleetWatch, rows_to_learn

    spec = RunSpec.from_file(Path(config.spec))
    found = rows_to_learn(Path(config.state), config.watch, spec.run)
    names = spec.learn.get("names") or [str(config.device)] * spec.devices
    watching = FleetWatch(config, spec.run, str(names[config.device]), uses_previous=uses_previous)

    with on_sigterm(SystemExit), closing(watching):  # until the device listens, and answers it itself
        print_line(watching.start())
        if found is not None:
            print_line(found[2])
        yield watching, None if found is None else found[:2]


# -- status -----------------------------------------------------------------------------------------------------


def status(
    where: Annotated[str, typer.Argument(help="host:port of a device, a device's TOML file, or a run directory.")],
    credentials: Annotated[
        Path | None, typer.Option(help="Your key and certificate, a folder (tolfl enroll operator).")
    ] = None,
    format: flags.HowShown = "table",
) -> None:
    """Show the state of a whole fleet as one device knows it; or of every device of a run on this machine.

    What a device watches, and its last alarms, only it knows: every other device with a known address is queried
    for them, too, and one that does not answer is listed.

    Example: tolfl status 127.0.0.1:7003

    Example: tolfl status runs/real --format json

    Example: tolfl status 10.0.0.3:7000 --credentials fleet/devices/me
    """
    import asyncio

    from tolfl.net.client import ask_all, ask_others, credentials_for, places

    shown = credentials_for(where, credentials)
    answers = ask_all(places(where), shown)
    others: dict[int, StatusReply | None] = {}
    if len(answers) == 1 and answers[0].status is not None:
        others = asyncio.run(ask_others(answers[0].status, shown))
    show([_plain(answer, others) for answer in answers], format, _lines_of(answers, others))
    if not any(answer.status is not None for answer in answers):
        raise TolFLError(
            f"{where}: no answer; is a device running there, and have you given a certificate (--credentials)?"
        )


Others = Mapping[int, "StatusReply | None"]  #: answers of the rest of a fleet where one device was named


def _plain(answer: Answer, others: Others) -> dict[str, Any]:
    if answer.status is None:
        return {"address": answer.address, "answers": False}
    found = {"address": answer.address, "answers": True, **msgspec.to_builtins(answer.status)}
    if others:
        found["others"] = [
            {"device": device, "answers": status is not None, "watch": status and msgspec.to_builtins(status.watch)}
            for device, status in others.items()
        ]
    return found


_COLUMNS = ("device", "address", "incarnation", "role", "rounds done", "loss", "suspected", "refused", "problem")


def _lines_of(answers: list[Answer], others: Others) -> Iterator[Line]:
    yield table_of(_COLUMNS, map(_answer_row, answers))
    known = {answer.status.device: answer.status for answer in answers if answer.status is not None}
    everybody = sorted({**others, **known}.items())
    watching = [
        (device, status.watch) for device, status in everybody if status is not None and status.watch is not None
    ]
    if watching:
        yield ""
        columns = ("device", "watches", "model", "windows", "above the limit", "waiting")
        yield table_of(columns, (_watch_row(device, status) for device, status in watching))
        yield ""
        alarms = [row for device, status in everybody for row in _alarm_rows(device, status)]
        yield table_of(["device", "time", "last alarms, problems"], alarms)
    if len(answers) == 1 and answers[0].status is not None:
        yield ""
        yield _fleet_table(answers[0].status)


def _answer_row(answer: Answer) -> list[str]:
    status = answer.status
    if status is None:
        return ["?", answer.address, "", "does not answer"]
    return [
        str(status.device),
        answer.address,
        str(status.incarnation),
        status.stopped or status.role,
        how_far(status.stages, status.version.round, status.rounds),
        "-" if status.loss is None else f"{status.loss:.4g}",
        ", ".join(map(str, sorted(dead_devices(status)))),
        ", ".join(f"{kind} {count}" for kind, count in sorted(status.refused.items())),
        status.trouble,
    ]


def _watch_row(device: int, status: WatchStatus) -> list[str]:
    source = status.source if status.is_up else f"{status.source} (nothing comes)"
    return [str(device), source, status.model or "none yet", *map(str, (status.rows, status.alarms, status.waiting))]


def _alarm_rows(device: int, status: StatusReply | None) -> list[list[str]]:
    """Return the last alarms of a device from its own status; one that does not answer has a row, too."""
    if status is None:
        return [[str(device), "?", "does not answer: its alarms are not known"]]
    if (watch := status.watch) is None:
        return []
    rows = [[str(device), f"{age(one.age_s)} ago", one.what] for one in watch.latest]
    return rows + [[str(device), "now", watch.trouble or "no alarm so far"]] * bool(watch.trouble or not rows)


def dead_devices(status: StatusReply) -> set[int]:
    """Return the devices that a device knows to have failed, in the incarnation of its roster, or to have left."""
    members = {one.device: one.incarnation for one in status.roster}
    # A device that learns of a death from the roster alone has detected no failure itself.
    left_out = {
        peer.device for peer in status.peers if members and peer.device not in members and not peer.is_connected
    }
    known = {one.device for one in status.dead if members.get(one.device, one.incarnation) <= one.incarnation}
    return known | left_out


def _fleet_table(status: StatusReply) -> Table:
    """Return the whole fleet as one device knows it, with the age of that knowledge."""
    from tolfl.core.topology import Topology

    n_done = status.version.round
    title = f"the fleet as device {status.device} knows it; "
    title += f"round {n_done - 1}, closed {status.round_age_s:.1f} s ago" if n_done else "no round is closed"
    columns = ("device", "cluster", "role", "state", "in the last round", "last sign of life")
    rows = []
    dead, inside = dead_devices(status), {one.device for one in status.roster}
    heads = Topology(status.clusters).heads(inside - dead)
    peers = {peer.device: peer for peer in status.peers}
    for cluster, devices in enumerate(status.clusters):
        for device in devices:
            peer = peers.get(device)
            sign = "answers now" if device == status.device else "-" if peer is None else f"{peer.silent_s:.1f} s ago"
            state = "dead" if device in dead else "trains" if device in inside else "outside"
            if device == status.device and status.stopped:
                state = status.stopped
            role = "head" if device in heads else "member"
            if heads and device == heads[-1]:
                role = "head, closes the rounds"
            why = status.missing.get(device, "no")
            place = role if device in inside - dead else ""
            included = "yes" if device in status.included else why if n_done else ""
            rows.append([str(device), str(cluster), place, state, included, sign])
    return table_of(columns, rows, title)


# -- enrolment --------------------------------------------------------------------------------------------------

enroll_app = typer.Typer(
    help="Certificates of a fleet: init, device, operator, renew, revoke, list.", no_args_is_help=True
)

Folder = Annotated[Path, typer.Option("--fleet", help="The folder of the fleet's authority. Keep it off the devices.")]
Days = Annotated[int, typer.Option(min=1, max=3650, help="How long the certificate is valid.")]
Name = Annotated[str, typer.Argument(help="A name: small letters, digits and hyphens.")]
_DEFAULT = Path("fleet")


@enroll_app.command()
def init(
    fleet: Folder = _DEFAULT,
    name: Annotated[str, typer.Option(help="The name of the fleet. (default: a random one)")] = "",
) -> None:
    """Make the authority of a new fleet: its key decides which devices belong.

    Example: tolfl enroll init --fleet fleet --name plant-7
    """
    from tolfl.net.enrolment import Authority

    authority = Authority.create(fleet, name)
    typer.echo(f"fleet {authority.fleet}: its authority is in {fleet}; keep {fleet / 'key.pem'} off the devices")


@enroll_app.command()
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


@enroll_app.command()
def operator(name: Name, fleet: Folder = _DEFAULT, days: Days = 365) -> None:
    """Make a certificate for an operator, who may query the status of devices and give them commands.

    Example: tolfl enroll operator me ; tolfl status 10.0.0.3:7000 --credentials fleet/devices/me
    """
    from tolfl.net.enrolment import Authority

    typer.echo(f"made {Authority(fleet).issue(name, None, days)}")


@enroll_app.command()
def renew(name: Name, fleet: Folder = _DEFAULT, days: Days = 365) -> None:
    """Make a new key and certificate in place of ones that expire soon; the device reads them at its next start.

    Example: tolfl enroll renew gateway
    """
    from tolfl.net.enrolment import Authority

    typer.echo(f"copy {Authority(fleet).renew(name, days)} to the device and start it again")


@enroll_app.command()
def revoke(name: Name, fleet: Folder = _DEFAULT) -> None:
    """Revoke a certificate. It is enough to copy the new list to one device: devices pass it on.

    Example: tolfl enroll revoke gateway ; scp fleet/revocations.json 10.0.0.4:/etc/tolfl/credentials/
    """
    from tolfl.net.enrolment import REVOCATIONS, Authority

    Authority(fleet).revoke(name)
    typer.echo(f"{name} is revoked; copy {fleet / REVOCATIONS} into the credentials of any device that runs")


@enroll_app.command("list")
def list_(fleet: Folder = _DEFAULT, format: flags.HowShown = "table") -> None:
    """List the certificates that were issued.

    Example: tolfl enroll list --format json
    """
    from tolfl.net.enrolment import Authority

    authority = Authority(fleet)
    entries = authority.entries()
    rows = []
    for name, entry in entries.items():
        who = "operator" if entry.device is None else str(entry.device)
        rows.append((name, who, str(entry.generation), entry.expires, "revoked" if entry.is_revoked else ""))
    lines = [table_of(["name", "device", "generation", "good until", ""], rows)]
    show({"fleet": authority.fleet, "devices": entries}, format, lines)
