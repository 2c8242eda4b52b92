"""The status of a device, for operators, and the same numbers for Prometheus."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tolfl.core.errors import TolFLError
from tolfl.net.addresses import split_address
from tolfl.net.wire import DeviceIncarnation, PeerStatus, StatusReply, WatchStatus

if TYPE_CHECKING:
    from tolfl.net.node import Node

_START_S = 10.0  #: for metrics to be served, and to end
#: Why a peer sends a device away, where only a person can put it right.
REJECTED_KINDS = ("unexpected", "taken", "wire version")


class Watching(Protocol):
    """What watches this device's own source with what the fleet has learned."""

    def status(self) -> WatchStatus:
        """Return what there is to know."""

    def metrics(self) -> str:
        """Return it in Prometheus' text format."""

    def learned(self, folder: Path) -> None:
        """Take the detector that a run has left in a folder."""


def role_of(node: Node) -> str:
    """Return what a device does at the moment."""
    if node.device.stopped is not None:
        return "stopped"
    # Whoever comes must not take it for a fleet that trains.
    return node.device.role if node.has_begun else "waiting"


def rejection_sentence(own: int, peer: int, kind: str) -> str:
    """Return what an operator should know of a peer that does not count this device among its own."""
    if peer == own:
        return (
            f"another process is device {own}, too: give each device an id, a certificate and a state folder of its own"
        )
    if kind == "taken":
        return (
            f"device {peer} answers, but is connected to another process that is device {own}, too: give each device "
            "an id, a certificate and a state folder of its own"
        )
    if kind == "wire version":
        return f"device {peer} answers, but uses another wire version: run the same version of tolfl on both"
    return (
        f"device {peer} answers, but belongs to another fleet or run: compare the specification, [learn], the file of "
        "the learner and the version of tolfl on both"
    )


def status_of(node: Node) -> StatusReply:
    """Return what there is to know."""
    device, fleet = node.device, node.device.fleet
    return StatusReply(
        device=device.id,
        incarnation=device.incarnation,
        fleet=node.fleet,
        version=device.version,
        rounds=node.trainer.learner.rounds,
        role=role_of(node),
        cluster=fleet.cluster,
        loss=node.loss,
        n_samples=node.n_samples,
        roster=tuple(DeviceIncarnation(*member) for member in sorted(fleet.roster.members)),
        dead=tuple(DeviceIncarnation(*member) for member in sorted(fleet.dead)),
        peers=tuple(_peer(node, peer) for peer in sorted(node.addresses) if peer != node.id),
        refused=dict(node.links.refused + Counter(shape=node.trainer.n_refused)),
        stopped=device.stopped or "",
        trouble=_trouble(node),
        running_s=time.monotonic() - node.began_s,
        bytes_sent=node.bytes_sent,
        messages_sent=node.n_sent,
        stages=node.trainer.learner.all_stages(),
        clusters=node.limits.topology.clusters,
        included=tuple(device.record.included),
        missing=dict(device.record.missing),
        round_age_s=time.monotonic() - node.went_on_s,
        watch=None if node.watching is None else node.watching.status(),
    )


def _trouble(node: Node) -> str:
    rejections = "; ".join(sentence for _, sentence in sorted(node.rejections.items()))
    learner = "" if node.learner_error is None else f"{node.learner_error}; the run goes on without what it was to add"
    return node.writer.trouble or node.log.trouble or node.credentials.trouble or learner or rejections


def _peer(node: Node, peer: int) -> PeerStatus:
    return PeerStatus(
        device=peer,
        address=node.addresses[peer],
        is_connected=peer in node.links.connected,
        silent_s=node.detector.silent_s(peer),
    )


_REQUEST_S, _MAX_REQUEST = 5.0, 8192


class Metrics:
    """Serves `GET /metrics`, and nothing else."""

    def __init__(self, content: Callable[[], str]) -> None:
        self._content = content
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
                body = self._content().encode() if is_known else b"only /metrics is here\n"
                status = b"200 OK" if is_known else b"404 Not Found"
                head = b"HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: %d\r\n"
                writer.write(head % (status, len(body)) + b"Connection: close\r\n\r\n" + body)
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return  # who asks badly gets no answer
        finally:
            writer.close()


@contextmanager
def served(address: str, content: Callable[[], str]) -> Iterator[None]:
    """Serve `GET /metrics` in a thread of its own while the context is open; no address: nothing is served."""
    if not address:
        yield
        return
    loop, metrics = asyncio.new_event_loop(), Metrics(content)
    thread = threading.Thread(target=loop.run_forever, name="metrics", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(metrics.start(address), loop).result(_START_S)
        yield
    finally:
        asyncio.run_coroutine_threadsafe(metrics.stop(), loop).result(_START_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_START_S)
        loop.close()


def page(status: StatusReply) -> str:
    """Return a status in Prometheus' text format."""
    return "".join(_lines(status))


def _lines(status: StatusReply) -> Iterator[str]:
    label = f'{{fleet="{status.fleet}",device="{status.device}"}}'
    numbers = {
        "tolfl_round": ("gauge", "Rounds done.", status.version.round),
        "tolfl_rounds": ("gauge", "Rounds of the run.", status.rounds),
        "tolfl_incarnation": ("counter", "How often the device has begun anew.", status.incarnation),
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
    yield "# HELP tolfl_refused Messages and peers rejected.\n# TYPE tolfl_refused counter\n"
    for kind, count in sorted(status.refused.items()):
        yield f'tolfl_refused{{fleet="{status.fleet}",device="{status.device}",kind="{kind}"}} {count}\n'
