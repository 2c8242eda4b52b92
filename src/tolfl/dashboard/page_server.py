"""The web page as an application: runs, their records as they come, and commands to a fleet on this machine."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Literal

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from tolfl.core.errors import SpecError, TolFLError
from tolfl.core.records import AnyRecord, RoundClosed, RunStarted, how_far
from tolfl.core.spec import RunSpec
from tolfl.dashboard.page_guard import LOCAL_NAMES, PageGuard, refusal_reason
from tolfl.runs.descriptions import COLUMNS, describe, headline, incident_cells, tone
from tolfl.runs.failure_history import FailureHistory
from tolfl.runs.run_reader import RunReader

ASSETS = Path(__file__).parent / "assets"
_LOOK_S = 0.15
_QUIET_S = 5  #: without a new line, after which the page shows it
_HEARTBEAT_S = 10.0  #: how soon a closed browser is noticed
_BATCH = 400  #: lines in one event
_COMMAND_BYTES = 1024
#: How long open pages are waited for in the end; each has polled many times by then.
_SHUTDOWN_S = 2


class PageCommand(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A command from the page to a device of a fleet on this machine."""

    action: Literal["kill", "freeze", "thaw", "cut", "heal", "revive"]
    device: int


class ShownAlarm(msgspec.Struct, frozen=True):
    """A group of alarms of a device that watches, as its last event has it."""

    event: str  #: open, update, close
    severity: str
    what: str  #: in one line for people
    unix_s: float  #: when the device sent it


class AlarmsOfDevice(msgspec.Struct, frozen=True):
    """The last alarms of one device, from its own status."""

    device: int
    alarms: tuple[ShownAlarm, ...]  #: the newest first
    heard_unix_s: float | None  #: when it answered; None: it never did, and its alarms are not known
    is_silent: bool  #: whether it does not answer at the moment


class _ShownRun:
    """The records of one run as the browser gets them, and its failures."""

    def __init__(self, reader: RunReader) -> None:
        self.reader = reader
        self.lines: list[bytes] = []
        self.failures = b""
        self.problem = ""  #: why reading stopped
        self.n_starts = reader.n_starts
        self._stages: tuple[tuple[str, int], ...] = ()
        self._timing = _timing_of(reader.path)
        self._newest_s = time.monotonic()  #: when the newest line was read

    @property
    def quiet_s(self) -> int:
        """Whole seconds since the newest line, once there are enough to show."""
        quiet_s = int(time.monotonic() - self._newest_s)
        return quiet_s if quiet_s >= _QUIET_S and not self.is_over else 0

    @property
    def is_over(self) -> bool:
        return self.reader.is_over or bool(self.problem)

    def look(self) -> None:
        """Read new records; a run that cannot be read keeps the reason."""
        if self.problem:
            return
        try:
            self.reader.read()
        except TolFLError as error:
            self.problem = str(error)
            return
        if self.reader.n_starts != self.n_starts:
            self.n_starts, self.lines = self.reader.n_starts, []
        fresh = self.reader.news[len(self.lines) :]
        if fresh:
            self._newest_s = time.monotonic()
        if fresh or not self.failures:
            self._stages = next((one.stages for one in fresh if isinstance(one, RunStarted)), self._stages)
            self.lines = self.lines + [self._encoded(line) for line in fresh]
            self.failures = _encoded_failures(FailureHistory.of(self.reader.records), self._timing)

    def _encoded(self, line: AnyRecord) -> bytes:
        more = {"text": describe(line, self._stages), "tone": tone(line)}
        if isinstance(line, RoundClosed):
            more["far"] = how_far(self._stages, 1 + (line.round or 0), sum(rounds for _, rounds in self._stages))
        return b"%s,%s" % (msgspec.json.encode(line)[:-1], msgspec.json.encode(more)[1:])


def _timing_of(path: Path) -> str:
    """Return the timing preset of a simulated run, which sets when a failure is detected; empty for real ones."""
    if (path / "devices").is_dir() or not (path / "spec.toml").is_file():
        return ""
    try:
        return RunSpec.from_file(path / "spec.toml").timing
    except SpecError:
        return ""


def _encoded_failures(history: FailureHistory, timing: str) -> bytes:
    incidents = [
        {
            "time_s": one.time_s,
            "round": one.round,
            "failures": [(history.away_by(each), each.status, each.time_s, each.back_s) for each in one.failures],
            "stall_s": one.stall_s,
            "stalled_until_s": one.stalled_until_s,
            "is_inferred": all(failure.is_inferred for failure in one.failures),
            "headline": [(part.text, part.known_s) for part in headline(one, history.stages)],
            "cells": [(cell.text, cell.known_s) for cell in incident_cells(one, history.stages, timing)],
        }
        for one in history.incidents
    ]
    return msgspec.json.encode({"columns": COLUMNS, "incidents": incidents})


@dataclass
class Page:
    """What the page shows, and what it may do.

    `obey` belongs to the first run, a fleet on this machine, and needs `token`; what cannot be done is a `TolFLError`
    with a sentence for the page.
    """

    readers: Sequence[RunReader]
    is_following: bool = False
    obey: Callable[[PageCommand], None] | None = None
    token: str = ""
    names: Sequence[str] = LOCAL_NAMES  #: hosts that the page answers to; empty: all
    source: Callable[[], str] = lambda: ""  #: the device that the records come from, and their age
    goes_on: Callable[[], bool] = lambda: False  #: also after the end of the run: devices may watch then
    #: Alarms of the devices of the first run, a fleet elsewhere; another object once all were polled.
    alarms: Callable[[], Sequence[AlarmsOfDevice]] = tuple
    is_closing: bool = field(default=False, init=False)  #: whether no further lines will come

    def __post_init__(self) -> None:
        self._runs = [_ShownRun(reader) for reader in self.readers]
        self._looked_s = -_LOOK_S
        self._looking: asyncio.Lock | None = None

    def app(self) -> Starlette:
        """Return the application."""
        if self.obey is not None and not self.token:
            raise ValueError("controls need a token")
        return Starlette(
            routes=[
                Route("/", self._index),
                Route("/api/runs", self._list),
                Route("/api/lines", self._lines),
                Route("/api/command", self._command, methods=["POST"]),
                Mount("/assets", StaticFiles(directory=ASSETS)),
            ],
            middleware=[Middleware(PageGuard, names=self.names)],
        )

    async def _index(self, _request: Request) -> Response:
        return FileResponse(ASSETS / "index.html")

    async def _list(self, _request: Request) -> Response:
        runs = [
            {"name": reader.name, "controls": self.obey is not None and index == 0}
            for index, reader in enumerate(self.readers)
        ]
        return JSONResponse({"runs": runs, "follow": self.is_following})

    # -- lines --------------------------------------------------------------------------------------------------

    async def _lines(self, request: Request) -> Response:
        places = _places(request.headers.get("last-event-id", ""), len(self._runs))
        return StreamingResponse(self._events(places), media_type="text/event-stream")

    async def _look(self) -> None:
        """Read the files in a thread, once for all browsers: a slow disk delays no request."""
        self._looking = self._looking or asyncio.Lock()
        async with self._looking:
            if time.monotonic() - self._looked_s >= _LOOK_S or self.is_closing:
                for run in self._runs:
                    await run_in_threadpool(run.look)
                self._looked_s = time.monotonic()

    async def _events(self, places: list[int]) -> AsyncIterator[bytes]:
        """Send all lines, then those that come; `end` says that no more will."""
        quiet_s = 0.0
        starts = [run.n_starts for run in self._runs]
        sent = [b""] * len(self._runs)
        states = b""
        alarms: Sequence[AlarmsOfDevice] = ()
        while True:
            is_last = self.is_closing or not self.is_following
            await self._look()
            news = self._news(places, starts)
            for index, run in enumerate(self._runs):
                if run.failures != sent[index]:
                    sent[index] = run.failures
                    news.append(_event("failures", b'{"run":%d,"history":%s}' % (index, run.failures), places))
            for event in news:
                yield event
            if (asked := self.alarms()) != alarms:
                alarms = asked
                yield _event("alarms", msgspec.json.encode({"now": time.time(), "devices": asked}), places)
            now = msgspec.json.encode(
                [
                    {
                        "over": run.is_over,
                        "unreadable": run.reader.n_unreadable,
                        "problem": run.problem,
                        "source": self.source(),
                        "clock": run.reader.clock,
                        "quiet_s": run.quiet_s,
                    }
                    for run in self._runs
                ]
            )
            if now != states:
                states = now
                yield _event("state", now, places)
            if is_last or (all(run.is_over for run in self._runs) and not self.goes_on()):
                yield _event("end", b"{}", places)
                return
            quiet_s = 0.0 if news else quiet_s + _LOOK_S
            if quiet_s > _HEARTBEAT_S:
                quiet_s = 0.0
                yield b": still here\n\n"
            await asyncio.sleep(_LOOK_S)

    def _news(self, places: list[int], starts: list[int]) -> list[bytes]:
        """Return what a browser does not have yet, and note that it has."""
        events = []
        for index, run in enumerate(self._runs):
            if places[index] > len(run.lines) or starts[index] != run.n_starts:
                places[index], starts[index] = 0, run.n_starts  # the run began anew
                events.append(_event("lines", _placed(index, 0, []), places))
            while places[index] < len(run.lines):
                first = places[index]
                batch = run.lines[first : first + _BATCH]
                places[index] += len(batch)
                events.append(_event("lines", _placed(index, first, batch), places))
        return events

    # -- commands -----------------------------------------------------------------------------------------------

    async def _command(self, request: Request) -> Response:
        if self.obey is None:
            raise HTTPException(404, "this page controls no fleet")
        reason = refusal_reason(request.headers, self.token)
        if reason:
            return JSONResponse({"error": reason}, status_code=403)
        try:
            command = msgspec.json.decode(await _small_body(request), type=PageCommand)
        except msgspec.DecodeError as error:
            return JSONResponse({"error": f"no command: {error}"}, status_code=400)
        try:
            await run_in_threadpool(self.obey, command)
        except TolFLError as error:
            return JSONResponse({"error": str(error)}, status_code=409)
        return JSONResponse({"done": command.action})


async def _small_body(request: Request) -> bytes:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _COMMAND_BYTES:
            raise HTTPException(413, "the command is too long")
    return body


def _placed(run: int, first: int, lines: Sequence[bytes]) -> bytes:
    """Return lines with their index, so that a browser that reconnects counts none twice."""
    return b'{"run":%d,"from":%d,"lines":[%s]}' % (run, first, b",".join(lines))


def _event(kind: str, data: bytes, places: Sequence[int]) -> bytes:
    return b"event: %s\nid: %s\ndata: %s\n\n" % (kind.encode(), ",".join(map(str, places)).encode(), data)


def _places(said: str, n_runs: int) -> list[int]:
    """Return how many lines of each run a reconnecting browser has; an invalid answer counts as none."""
    parts = said.split(",")
    if len(parts) != n_runs or not all(part.isascii() and part.isdecimal() and len(part) < 16 for part in parts):
        return [0] * n_runs
    return [int(part) for part in parts]


# -- serving ----------------------------------------------------------------------------------------------------


class CannotListenError(TolFLError, OSError):
    """The page cannot listen on its address."""

    def __init__(self, host: str, port: int, why: str) -> None:
        super().__init__(f"the page cannot be shown on {host}:{port} ({why}); choose another --port or --host")
        self.host, self.port = host, port


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0: one that is free."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=64)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise CannotListenError(host, port, why.partition(" (while")[0]) from None


def address_of(listening: socket.socket) -> str:
    """Return the page's address."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def _server(page: Page) -> uvicorn.Server:
    config = uvicorn.Config(
        page.app(),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",  # what an unknown client sends does not belong on the terminal
        access_log=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_SHUTDOWN_S,
    )
    return uvicorn.Server(config)


def serve(page: Page, listening: socket.socket) -> None:
    """Show the page until Ctrl-C."""
    try:
        _server(page).run(sockets=[listening])
    except KeyboardInterrupt:
        return


@contextmanager
def served(page: Page, listening: socket.socket) -> Iterator[None]:
    """Serve the page while the context is open; in the end open pages get the last lines."""
    server = _server(page)
    thread = Thread(target=server.run, kwargs={"sockets": [listening]}, name="dashboard", daemon=True)
    thread.start()
    try:
        yield
    finally:
        page.is_closing = True
        server.should_exit = True
        thread.join()
