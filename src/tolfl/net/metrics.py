"""Numbers of a device for Prometheus: a text page over HTTP, on an address of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from tolfl.core.errors import TolFLError
from tolfl.net.addresses import split_address
from tolfl.net.wire import StatusReply

_REQUEST_S, _MAX_REQUEST = 5.0, 8192


class Metrics:
    """Serves `GET /metrics`, and nothing else."""

    def __init__(self, status: Callable[[], StatusReply]) -> None:
        self._status = status
        self._server: asyncio.Server | None = None

    async def start(self, address: str) -> None:
        """Listen."""
        host, port = split_address(address)
        try:
            self._server = await asyncio.start_server(self._answer, host, port, limit=_MAX_REQUEST)
        except OSError as error:
            raise TolFLError(f"metrics cannot be served on {address} ({error.strerror}); choose another") from None

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_S):
                request = await reader.readuntil(b"\r\n\r\n")
                is_known = request.startswith(b"GET /metrics ")
                body = page(self._status()).encode() if is_known else b"only /metrics is here\n"
                status = b"200 OK" if is_known else b"404 Not Found"
                head = b"HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: %d\r\n"
                writer.write(head % (status, len(body)) + b"Connection: close\r\n\r\n" + body)
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return  # who asks badly gets no answer
        finally:
            writer.close()


def page(status: StatusReply) -> str:
    """Return a status in Prometheus' text format."""
    return "".join(_lines(status))


def _lines(status: StatusReply) -> Iterator[str]:
    label = f'{{fleet="{status.fleet}",device="{status.device}"}}'
    numbers = {
        "tolfl_round": ("gauge", "Rounds done.", status.version.round),
        "tolfl_rounds": ("gauge", "Rounds of the run.", status.rounds),
        "tolfl_incarnation": ("counter", "The life of the device.", status.incarnation),
        "tolfl_samples": ("gauge", "Samples of the device.", status.n_samples),
        "tolfl_roster_devices": ("gauge", "Devices in the present round.", len(status.roster)),
        "tolfl_peers_connected": ("gauge", "Peers with an open connection.", sum(p.is_connected for p in status.peers)),
        "tolfl_messages_sent": ("counter", "Messages sent.", status.messages_sent),
        "tolfl_bytes_sent": ("counter", "Bytes sent.", status.bytes_sent),
        "tolfl_trouble": ("gauge", "1: the operator should look, such as at a full disk.", int(bool(status.trouble))),
        "tolfl_running_seconds": ("counter", "Since the process started.", round(status.running_s, 3)),
    }
    if status.loss is not None:
        numbers["tolfl_loss"] = ("gauge", "Training loss of the device.", status.loss)
    for name, (kind, what, value) in numbers.items():
        yield f"# HELP {name} {what}\n# TYPE {name} {kind}\n{name}{label} {value}\n"
    yield "# HELP tolfl_role What the device does.\n# TYPE tolfl_role gauge\n"
    yield f'tolfl_role{{fleet="{status.fleet}",device="{status.device}",role="{status.role}"}} 1\n'
    yield "# HELP tolfl_refused Messages and strangers turned away.\n# TYPE tolfl_refused counter\n"
    for kind, count in sorted(status.refused.items()):
        yield f'tolfl_refused{{fleet="{status.fleet}",device="{status.device}",kind="{kind}"}} {count}\n'
