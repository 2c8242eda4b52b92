"""`tolfl watch`: a detector on a source that goes on; alarms grouped, kept on disk, and sent where operators look."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tolfl.cli import flags
from tolfl.cli.inspect_model import Model
from tolfl.cli.output import notify
from tolfl.cli.progress import on_sigterm
from tolfl.core.errors import MissingDataError

if TYPE_CHECKING:
    from tolfl.watch.watcher import Watcher

_SAID_EVERY_S = 0.5


def watch(  # noqa: PLR0913, PLR0917  (one parameter per flag)
    model: Model,
    source: Annotated[
        str | None, typer.Argument(help="A capture, a table, or - for standard input (pcap, pcapng, JSON lines, CSV).")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on reading a capture file that grows.")] = False,
    interface: flags.Interface = None,
    raw: flags.Raw = "",
    state: Annotated[Path, typer.Option(help="The folder of the queue: what was not sent is sent after a restart.")] = (
        Path("tolfl-watch")
    ),
    json: Annotated[
        str, typer.Option(help="Alarms as JSON lines: a file, or - for standard output. (default: -, if no other)")
    ] = "",
    syslog: Annotated[
        str, typer.Option(help="Alarms by RFC 5424, at most once: udp://HOST:514, tcp://HOST:601, unix:///dev/log.")
    ] = "",
    mqtt: Annotated[str, typer.Option(help="Alarms to a broker: mqtt://USER:PASSWORD@HOST:1883, mqtts://...")] = "",
    webhook: Annotated[str, typer.Option(help="Alarms by HTTP POST: https://HOST/PATH.")] = "",
    device: Annotated[str, typer.Option(help="The name of this device in alarms; its own threshold is used.")] = "",
    device_column: Annotated[str | None, typer.Option(help="Whose row it is: alarms are grouped by it.")] = None,
    time_column: flags.TimeColumn = None,
    metrics: Annotated[str, typer.Option(help="host:port for Prometheus: tolfl_watch_*. (default: none)")] = "",
) -> None:
    """Watch a source with a detector, and send alarms: a group of windows opens, goes on, closes.

    A group opens when a window reaches twice its limit, or 2 of 3 windows reach it, and closes after 10 windows below
    half of it. Alarms lie in a queue on disk until every place has taken them: a kill loses none. What fails is said on
    standard error, and tried again; watching goes on.

    Example: tolfl watch model november.csv --device-column building --json alarms.jsonl

    Example: tolfl watch model --interface wlan0 --mqtt mqtt://broker.example:1883 --device gate

    Example: tcpdump -i wlan0 -U -w - | tolfl watch model - --syslog unix:///dev/log

    Example: rtl_sdr -f 433.92M -s 250k - | tolfl watch model - --raw cu8
    """
    where = flags.source_of(source, interface, "say what to watch: a file, - for standard input, or --interface")
    from tolfl.net.addresses import split_address
    from tolfl.tables import Roles
    from tolfl.watch.sinks import sinks_of
    from tolfl.watch.watch_metrics import served, watch_page
    from tolfl.watch.watcher import Watcher

    if where != "-" and interface is None and not Path(where).expanduser().exists():
        raise MissingDataError(f"{where}: no such file or folder; check the path")
    if metrics:
        split_address(metrics)
    is_silent = not (json or syslog or mqtt or webhook)
    sinks = sinks_of("-" if is_silent else json, syslog, mqtt, webhook, device)
    watcher = Watcher(
        where, state, sinks, device, follow=follow, roles=Roles(device_column or "", "", time_column or ""), raw=raw
    )
    ended = threading.Event()
    saying = threading.Thread(target=_say_troubles, args=(watcher, ended), daemon=True)
    with on_sigterm(KeyboardInterrupt):
        try:
            watcher.load(model)
            saying.start()
            with served(metrics, lambda: watch_page(watcher, {"device": device})):
                watcher.run()
        finally:
            watcher.close()
            ended.set()
    if watcher.closed_output is not None:
        raise watcher.closed_output
    if watcher.n_known:
        notify(f"{watcher.n_known} window(s) had been watched before; --state with another folder begins anew")
    n_waiting = sum(watcher.queue.n_waiting().values())
    rest = f"; {n_waiting} event(s) wait in {state} for the next start" if n_waiting else ""
    notify(f"{watcher.n_rows} window(s), {watcher.n_alarms} above the limit, {watcher.n_events} event(s){rest}")


def _say_troubles(watcher: Watcher, ended: threading.Event) -> None:
    """Say each new trouble once, and when it is over."""
    said = ""
    while not ended.wait(_SAID_EVERY_S):
        if watcher.trouble != said:
            said = watcher.trouble
            notify(said or "alarms get through again")
