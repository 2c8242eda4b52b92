"""Real devices as tasks of one event loop: real sockets on loopback, small models, and a way to wait for events."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import numpy as np

from tolfl.core.contribution import GLOBAL, Contribution, Vector
from tolfl.core.records import AnyRecord, RosterChanged, RoundClosed, decode_records
from tolfl.core.spec import BlobsSpec, RunSpec
from tolfl.net.client import ask, send_command
from tolfl.net.node import Node
from tolfl.net.node_config import NodeConfig
from tolfl.net.prepare import prepare
from tolfl.net.tls import Credentials
from tolfl.net.wire import CommandRequest, StatusReply
from tolfl.protocol.history import Version
from tolfl.runs.run_reader import RECORDS

PATIENCE_S = 60.0
TOKEN = "let me in"

#: Four devices in two clusters (0, 1 | 2, 3): 0 and 2 are heads, 2 closes.
SMALL = RunSpec(
    data="blobs",
    devices=4,
    clusters=2,
    rounds=4,
    blobs=BlobsSpec(samples_per_device=40, n_features=8, n_groups=2, n_test=20, n_validation=10),
)


def small(**changes: object) -> RunSpec:
    """Return the small run with other values."""
    return msgspec.structs.replace(SMALL, **changes)


def free_addresses(n: int) -> list[str]:
    """Return addresses on loopback that nobody listens on; all are held until the last is found."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in held]
    for one in held:
        one.close()
    return addresses


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110  (what is waited for is a state of the program under test, not of the test)
            await asyncio.sleep(0.005)


class Fleet:
    """Devices of one run, each with a state folder; whatever is started is stopped with the fleet."""

    def __init__(self, folder: Path, spec: RunSpec = SMALL) -> None:
        self.folder, self.spec = folder, spec
        self.addresses = free_addresses(spec.devices)
        self.nodes: dict[int, Node] = {}
        self.tasks: dict[int, asyncio.Task[str]] = {}
        (folder / "spec.toml").write_text(spec.to_toml())

    def config(self, device: int, **changes: object) -> NodeConfig:
        """Return the configuration of a device that knows all addresses."""
        peers = {str(peer): address for peer, address in enumerate(self.addresses) if peer != device}
        config = NodeConfig(
            device=device,
            listen=self.addresses[device],
            state=str(self.state(device)),
            spec=str(self.folder / "spec.toml"),
            peers=peers,
            token=TOKEN,
            insecure=True,
            linger_s=0.3,
        )
        return msgspec.structs.replace(config, **changes)

    def state(self, device: int) -> Path:
        """Return the state folder of a device."""
        return self.folder / "devices" / str(device)

    def prepare(self, device: int, **changes: object) -> Node:
        """Make a device ready to run, as its next life."""
        self.nodes[device] = prepare(self.config(device, **changes))
        return self.nodes[device]

    def launch(self, *devices: int) -> None:
        """Let devices run, those included that were not made ready yet."""
        for device in devices:
            if device not in self.nodes:
                self.prepare(device)
        for device in devices:
            self.tasks[device] = asyncio.create_task(self.nodes[device].run(), name=f"device {device}")

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so; a device that fails meanwhile fails the test."""

        def is_so_or_fails() -> bool:
            for task in self.tasks.values():
                if task.done() and not task.cancelled():
                    task.result()
            return is_so()

        await until(is_so_or_fails)

    async def until_round(self, index: int, devices: Iterable[int] | None = None) -> None:
        """Wait until devices hold the model of a round."""
        waiting = list(self.nodes) if devices is None else list(devices)
        await self.until(lambda: all(self.nodes[device].device.version.round >= index for device in waiting))

    async def ends(self, *devices: int) -> list[str]:
        """Wait until devices have ended; return why they did."""
        async with asyncio.timeout(PATIENCE_S):
            return list(await asyncio.gather(*(self.tasks[device] for device in devices)))

    async def kill(self, device: int) -> None:
        """End a device without a leave message."""
        self.tasks[device].cancel()
        await asyncio.gather(self.tasks[device], return_exceptions=True)
        del self.nodes[device]

    async def status(self, device: int) -> StatusReply:
        """Ask a device over the network."""
        reply = await ask(self.addresses[device], Credentials())
        assert reply is not None
        return reply

    async def command(self, device: int, request: CommandRequest) -> None:
        """Give a command to a device, as a launcher does."""
        await send_command(self.addresses[device], request, Credentials())

    async def cut(self, device: int, others: Iterable[int]) -> None:
        """Cut a device off from these others, and from nobody else."""
        await self.command(device, CommandRequest(token=TOKEN, cut=tuple(others)))

    async def close(self) -> None:
        """End whatever still runs."""
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)

    def records(self, device: int) -> list[AnyRecord]:
        """Return the lines that a device wrote."""
        return list(decode_records((self.state(device) / RECORDS).read_bytes().splitlines()))

    def closed(self) -> list[RoundClosed]:
        """Return the rounds of the history that the first device holds, as whoever closed them wrote them down."""
        lines = {
            str(line.version).rpartition(".")[2]: line
            for device in range(self.spec.devices)
            if (self.state(device) / RECORDS).exists()
            for line in self.records(device)
            if isinstance(line, RoundClosed | RosterChanged)
        }
        rounds, place = [], min(self.nodes.items())[1].device.version.history
        while place:
            line = lines[place]
            place = line.parent
            if isinstance(line, RoundClosed):
                rounds.append(line)
        return rounds[::-1]

    def params(self, device: int) -> Vector:
        """Return the model that a device holds."""
        models = self.nodes[device].device.record.state
        assert isinstance(models, dict)
        params: Vector = models[GLOBAL]
        return params

    def histories(self) -> set[str]:
        """Return the histories that devices hold."""
        return {node.device.version.history for node in self.nodes.values()}


@asynccontextmanager
async def fleet_of(folder: Path, spec: RunSpec = SMALL) -> AsyncIterator[Fleet]:
    """Give a fleet, and stop it whatever happens."""
    fleet = Fleet(folder, spec)
    try:
        yield fleet
    finally:
        await fleet.close()


def held_back(node: Node, is_free: Callable[[int], bool]) -> threading.Event:
    """Make a device train only rounds that are free, and the others not before the event that is returned."""
    gate, trainer = threading.Event(), node.trainer
    contribute = trainer._contribute

    def wait_and_contribute(version: Version, state: dict[str, Vector]) -> Contribution:
        if not is_free(version.round):
            gate.wait(PATIENCE_S)
        return contribute(version, state)

    trainer._contribute = wait_and_contribute  # type: ignore[method-assign]
    return gate


def is_same(one: Vector, other: Vector) -> bool:
    """Tell whether two vectors are the same, bit for bit."""
    return one.dtype == other.dtype and np.array_equal(one.view(np.uint8), other.view(np.uint8))
