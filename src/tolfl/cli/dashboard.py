"""`tolfl dashboard`: runs as a web page, live or replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tolfl.core.errors import SpecError
from tolfl.runs.run_reader import readers_of

#: As many as fit side by side on a wide screen, and as many colours as can be told apart.
_MOST_RUNS = 6


def dashboard(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Run directories, state folders of devices, or record files; several are shown together."),
    ],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on reading while the runs go on.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen; 0: any port that is free.")] = 8350,
    host: Annotated[
        str, typer.Option(help="Who can reach the page; 0.0.0.0: everybody in the network can read it.")
    ] = "127.0.0.1",
) -> None:
    """Show runs as a web page on this machine: who is there, who takes over, loss and AUROC, stalls and bytes.

    The page reads records only and can be moved through time. To kill devices of a fleet on this machine by a click,
    start it with tolfl up --dashboard.

    Example: tolfl dashboard runs/001-tol-fl-comms-ml

    Example: tolfl dashboard runs/tol-fl runs/fl --port 9000

    Example: tolfl dashboard --follow runs/real

    Example: tolfl dashboard state
    """
    try:
        from tolfl.dashboard import Page, address_of, listen, serve
    except ImportError:
        raise SpecError("tolfl dashboard needs starlette and uvicorn; install tolfl[dashboard]") from None

    readers = [reader for path in runs for reader in readers_of(path, follow)]
    if len(readers) > _MOST_RUNS:
        raise SpecError(f"{len(readers)} runs; the page shows up to {_MOST_RUNS} side by side")
    is_local = host in ("127.0.0.1", "localhost", "::1")
    page = Page(readers, is_following=follow) if is_local else Page(readers, is_following=follow, names=())
    listening = listen(host, port)
    names = ", ".join(reader.name for reader in readers)
    typer.echo(f"tolfl: {address_of(listening)} shows {names}; Ctrl-C ends it", err=True)
    serve(page, listening)
