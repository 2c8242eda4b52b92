"""The web page as an application: the runs, their lines as they come, and commands to a fleet on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from tolfl.core.errors import TolFLError
from tolfl.dashboard.controls import Command, Controls
from tolfl.dashboard.feeds import Feed
from tolfl.dashboard.guards import LOCAL_NAMES, Guard, why_not

ASSETS = Path(__file__).parent / "assets"
_LOOK_S = 0.15
_HEARTBEAT_S = 10.0  #: how soon a browser that went away is noticed
_BATCH = 400  #: lines in one event
_COMMAND_BYTES = 1024


@dataclass
class Page:
    """What the page shows, and what it may do.

    `controls` belong to the first run: a fleet on this machine shows itself. They need `token`.
    """

    feeds: Sequence[Feed]
    is_following: bool = False
    controls: Controls | None = None
    token: str = ""
    names: Sequence[str] = LOCAL_NAMES  #: hosts that the page answers to; empty: all
    is_closing: bool = field(default=False, init=False)  #: whether the lines so far are all

    def app(self) -> Starlette:
        """Return the application."""
        if self.controls is not None and not self.token:
            raise ValueError("controls need a token")
        return Starlette(
            routes=[
                Route("/", self._index),
                Route("/api/runs", self._runs),
                Route("/api/lines", self._lines),
                Route("/api/command", self._command, methods=["POST"]),
                Mount("/assets", StaticFiles(directory=ASSETS)),
            ],
            middleware=[Middleware(Guard, names=self.names)],
        )

    async def _index(self, _request: Request) -> Response:
        return FileResponse(ASSETS / "index.html")

    async def _runs(self, _request: Request) -> Response:
        runs = [
            {"name": feed.name, "controls": self.controls is not None and index == 0}
            for index, feed in enumerate(self.feeds)
        ]
        return JSONResponse({"runs": runs, "follow": self.is_following})

    # -- lines --------------------------------------------------------------------------------------------------

    async def _lines(self, request: Request) -> Response:
        places = _places(request.headers.get("last-event-id", ""), len(self.feeds))
        return StreamingResponse(self._events(places), media_type="text/event-stream")

    async def _events(self, places: list[int]) -> AsyncIterator[bytes]:
        """Tell all lines, then those that come; `end` says that no more will."""
        quiet_s = 0.0
        starts = [feed.n_starts for feed in self.feeds]
        told = list[tuple[bool, int]]()
        while True:
            is_last = self.is_closing or not self.is_following
            for feed in self.feeds:
                feed.look()
            news = self._news(places, starts)
            for event in news:
                yield event
            states = [(feed.is_over, feed.n_unreadable) for feed in self.feeds]
            if states != told:
                told = states
                yield _event("state", msgspec.json.encode([{"over": o, "unreadable": n} for o, n in states]), places)
            if is_last or all(feed.is_over for feed in self.feeds):
                yield _event("end", b"{}", places)
                return
            quiet_s = 0.0 if news else quiet_s + _LOOK_S
            if quiet_s > _HEARTBEAT_S:
                quiet_s = 0.0
                yield b": still here\n\n"
            await asyncio.sleep(_LOOK_S)

    def _news(self, places: list[int], starts: list[int]) -> list[bytes]:
        """Return what a browser has not heard yet, and note that it has."""
        events = []
        for index, feed in enumerate(self.feeds):
            if places[index] > len(feed.lines) or starts[index] != feed.n_starts:
                places[index], starts[index] = 0, feed.n_starts  # the run began anew
                events.append(_event("lines", _told(index, 0, []), places))
            while places[index] < len(feed.lines):
                first = places[index]
                batch = feed.lines[first : first + _BATCH]
                places[index] += len(batch)
                events.append(_event("lines", _told(index, first, batch), places))
        return events

    # -- commands -----------------------------------------------------------------------------------------------

    async def _command(self, request: Request) -> Response:
        if self.controls is None:
            raise HTTPException(404, "there is no fleet to command here")
        reason = why_not(request.headers, self.token)
        if reason:
            return JSONResponse({"error": reason}, status_code=403)
        try:
            command = msgspec.json.decode(await _small_body(request), type=Command)
        except msgspec.DecodeError as error:
            return JSONResponse({"error": f"no command: {error}"}, status_code=400)
        try:
            await run_in_threadpool(self.controls.obey, command)
        except TolFLError as error:
            return JSONResponse({"error": str(error)}, status_code=409)
        return JSONResponse({"done": command.action})


async def _small_body(request: Request) -> bytes:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _COMMAND_BYTES:
            raise HTTPException(413, "a command is short")
    return body


def _told(run: int, first: int, lines: Sequence[bytes]) -> bytes:
    """Return lines with their place, so that whoever lost the connection never counts one twice."""
    return b'{"run":%d,"from":%d,"lines":[%s]}' % (run, first, b",".join(lines))


def _event(kind: str, data: bytes, places: Sequence[int]) -> bytes:
    return b"event: %s\nid: %s\ndata: %s\n\n" % (kind.encode(), ",".join(map(str, places)).encode(), data)


def _places(said: str, n_runs: int) -> list[int]:
    """Return how many lines of each run a browser that comes back has; one that says nonsense has none."""
    parts = said.split(",")
    if len(parts) != n_runs or not all(part.isascii() and part.isdecimal() and len(part) < 16 for part in parts):
        return [0] * n_runs
    return [int(part) for part in parts]
