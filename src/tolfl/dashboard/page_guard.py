"""Checks of requests: only pages of this server, under a name that it has; security headers on every answer.

A page from elsewhere that is open in the same browser can send requests to 127.0.0.1. It cannot send this server's
`Origin`, and with a name of its own that points here (DNS rebinding) it sends the wrong `Host`.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN_HEADER = "x-tolfl-token"
LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")

SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class PageGuard:
    """Refuses requests under another name, and gives every answer the security headers."""

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app, self._names = app, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_closed(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(SECURITY_HEADERS)
            await send(message)

        host = Headers(scope=scope).get("host", "")
        if self._names and host_without_port(host) not in self._names:
            refusal = PlainTextResponse("This page has another name.\n", status_code=403)
            await refusal(scope, receive, send_closed)
            return
        await self._app(scope, receive, send_closed)


def host_without_port(host: str) -> str:
    """Return a Host header without its port.

    >>> host_without_port("localhost:8350"), host_without_port("[::1]:8350"), host_without_port("127.0.0.1")
    ('localhost', '[::1]', '127.0.0.1')
    """
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host


def refusal_reason(headers: Headers, token: str) -> str:
    """Return why a command is refused; empty: it is allowed."""
    if headers.get("origin") != f"http://{headers.get('host', '')}":
        return "commands are accepted from this page only"
    if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        return "a command must be JSON"
    if not hmac.compare_digest(headers.get(TOKEN_HEADER, "").encode(), token.encode()):
        return "the token is missing or wrong; open the address that the terminal shows"
    return ""
