"""Serving the page: in this thread until Ctrl-C, or beside something else."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import uvicorn

from tolfl.core.errors import TolFLError
from tolfl.dashboard.page import Page

#: How long open pages are waited for in the end; each has looked for news many times by then.
_GOODBYE_S = 2


class CannotListenError(TolFLError, OSError):
    """The page's address cannot be had."""

    def __init__(self, host: str, port: int, why: str) -> None:
        super().__init__(f"the page cannot be shown on {host}:{port} ({why}); choose another --port or --host")
        self.host, self.port = host, port


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0: one that is free."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=64)
    except (OSError, OverflowError) as error:
        raise CannotListenError(host, port, getattr(error, "strerror", None) or str(error)) from None


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
        log_level="critical",  # what a strange client sends is no news for the terminal
        access_log=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_GOODBYE_S,
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
    """Show the page beside what the caller does; in the end open pages get the last lines."""
    server = _server(page)
    thread = Thread(target=server.run, kwargs={"sockets": [listening]}, name="dashboard", daemon=True)
    thread.start()
    try:
        yield
    finally:
        page.is_closing = True
        server.should_exit = True
        thread.join()
