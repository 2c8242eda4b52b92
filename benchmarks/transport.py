"""`python -m benchmarks.transport`: what connections between devices cost, beside gRPC streams in the same run.

ping    round trip over TLS on loopback, idle
models  25 MB from one device to four others over TLS: seconds, and CPU of all
memory  resident memory of a process with connections to ten others, above numpy, msgspec and cryptography
liar    CPU per round of three honest devices while an enrolled one sends each of them 1,000 messages a second
scale   whole devices in one process, plain text: start, CPU per round, fail-over, memory, for each --devices

gRPC is measured where `grpcio` is installed; it is no dependency of tolfl. All ends share one process and one core.

Example: python -m benchmarks.transport --only ping models --repeats 5
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from tests.net.hostile_peers import Peer, SecureFleet
from tests.net.nodes import Fleet, free_addresses, until
from tolfl.core.device_set import DeviceSet
from tolfl.core.records import RoundClosed
from tolfl.core.spec import BlobsSpec, RunSpec
from tolfl.net.connection import Outgoing
from tolfl.net.enrolment import AUTHORITY, CERTIFICATE, KEY, Authority, any_device_name
from tolfl.net.node import Node
from tolfl.net.wire import Codec, Ping
from tolfl.protocol.history import ClosedRound, Roster, Version
from tolfl.protocol.messages import Closed, Heartbeat
from tolfl.runs.ledger import Kind

N_PEERS, MODEL_BYTES, N_PINGS = 4, 25_000_000, 500
MAX_GRPC_BYTES = 64 * 1024


def cpu_s() -> float:
    return time.process_time()


def rss_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


# -- tolfl ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def connected(folder: Path, n_peers: int) -> AsyncIterator[list[Node]]:
    """Give devices of which the first is connected to all others, and that train nothing."""
    spec = RunSpec(data="blobs", devices=n_peers + 1, clusters=1, blobs=BlobsSpec(samples_per_device=20, n_test=2))
    fleet = SecureFleet(folder, spec)
    nodes = [fleet.prepare(device) for device in range(n_peers + 1)]
    for node in nodes:
        node.limits = type(node.limits)(node.limits.topology)
    async with asyncio.TaskGroup() as group:
        for device, node in enumerate(nodes):
            node._loop = asyncio.get_running_loop()
            await node.links.start(group, fleet.addresses[device])
        for peer in range(1, n_peers + 1):
            nodes[0].links.connect(peer)
        await until(lambda: len(nodes[0].links.connected) == n_peers)
        yield nodes
        for node in nodes:
            await node.links.stop()
            node.trainer.close()
            node.writer.close()


async def tolfl_pings(folder: Path) -> list[float]:
    async with connected(folder, 1) as nodes:
        connection, found = nodes[0].links._peer(1).connection, []
        assert connection is not None
        answered = asyncio.Event()
        nodes[0].note_answer = lambda peer: answered.set()  # type: ignore[method-assign]  # noqa: ARG005
        for _ in range(N_PINGS):
            answered.clear()
            before_s = time.perf_counter()
            connection.ping()
            await answered.wait()
            found.append(time.perf_counter() - before_s)
        return found


async def tolfl_models(folder: Path) -> tuple[float, float]:
    version, roster = Version(7, 1, 0, "ab"), Roster(dict.fromkeys(range(N_PEERS + 1), 0))
    state = {"model": np.zeros(MODEL_BYTES // 4, np.float32)}
    record = ClosedRound(version, roster, state, "", DeviceSet(1), {}, 7)
    frame, arrays = Codec.encode(Closed(0, 0, version, frozenset(), record))
    async with connected(folder, N_PEERS) as nodes:
        for node in nodes[1:]:
            node.limits = type(node.limits)(node.limits.topology, max_numbers=2**26, max_bytes=2**28)
            for one in node.links._peers.values():
                assert one.connection is not None
                one.connection._assembler._codec._limits = node.limits
        before_s, before_cpu = time.perf_counter(), cpu_s()
        for peer in range(1, N_PEERS + 1):
            nodes[0].links.send(peer, Outgoing(frame, "", tuple(arrays), Kind.MODEL, "model"))
        await asyncio.gather(*(nodes[0].links._peer(peer).queue.drained() for peer in range(1, N_PEERS + 1)))
        return time.perf_counter() - before_s, cpu_s() - before_cpu


# -- gRPC -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def grpc_pair(folder: Path, n_peers: int) -> AsyncIterator[list[Any]]:
    """Give one bidirectional byte stream over mutual TLS to each of some servers that answer every message."""
    import grpc  # noqa: PLC0415  (a rival, no dependency)
    import grpc.aio  # noqa: PLC0415

    authority = Authority.create(folder / "grpc", "plant")
    shown = authority.issue("device-0", 0)
    key, chain, root = ((shown / name).read_bytes() for name in (KEY, CERTIFICATE, AUTHORITY))

    async def answer(requests: AsyncIterator[bytes], _: object) -> AsyncIterator[bytes]:
        received = 0
        async for request in requests:
            received += len(request)
            if len(request) < 100 or received >= MODEL_BYTES:
                yield b"pong"

    servers, calls = [], []
    for _ in range(n_peers):
        server = grpc.aio.server()
        handler = grpc.stream_stream_rpc_method_handler(answer)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t", {"s": handler}),))
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, chain)], root, True))
        await server.start()
        options = [("grpc.ssl_target_name_override", any_device_name("plant")), ("grpc.use_local_subchannel_pool", 1)]
        channel = grpc.aio.secure_channel(
            f"127.0.0.1:{port}", grpc.ssl_channel_credentials(root, key, chain), options=options
        )
        calls.append(channel.stream_stream("/t/s")())
        await calls[-1].write(b"hello")
        await calls[-1].read()
        servers.append((server, channel))
    yield calls
    for call in calls:
        call.cancel()
    for server, channel in servers:
        await channel.close()
        await server.stop(0)


async def grpc_pings(folder: Path) -> list[float]:
    async with grpc_pair(folder, 1) as (call,):
        found = []
        for _ in range(N_PINGS):
            before_s = time.perf_counter()
            await call.write(b"ping")
            await call.read()
            found.append(time.perf_counter() - before_s)
        return found


async def grpc_models(folder: Path) -> tuple[float, float]:
    content = bytes(MODEL_BYTES)

    async def send(call: Any) -> None:
        for first in range(0, MODEL_BYTES, MAX_GRPC_BYTES):
            await call.write(content[first : first + MAX_GRPC_BYTES])
        await call.read()

    async with grpc_pair(folder, N_PEERS) as calls:
        before_s, before_cpu = time.perf_counter(), cpu_s()
        await asyncio.gather(*map(send, calls))
        return time.perf_counter() - before_s, cpu_s() - before_cpu


# -- measurements -----------------------------------------------------------------------------------------------


def in_folder(measure: Callable[[Path], Any]) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(measure(Path(folder)))


def ping(repeats: int) -> None:
    for _ in range(repeats):
        ours = 1e6 * statistics.median(in_folder(tolfl_pings))
        line = f"ping     tolfl {ours:5.0f} us"
        if find_spec("grpc"):
            theirs = 1e6 * statistics.median(in_folder(grpc_pings))
            line += f"   gRPC {theirs:5.0f} us   ratio {ours / theirs:.2f}"
        print(line, flush=True)


def models(repeats: int) -> None:
    for _ in range(repeats):
        ours_s, ours_cpu = in_folder(tolfl_models)
        line = f"models   tolfl {ours_s:5.2f} s, CPU {ours_cpu:.2f} s"
        if find_spec("grpc"):
            theirs_s, theirs_cpu = in_folder(grpc_models)
            line += f"   gRPC {theirs_s:5.2f} s, CPU {theirs_cpu:.2f} s   ratio {ours_s / theirs_s:.1f}"
        print(line, flush=True)


_MEMORY = """
import asyncio, sys
import numpy, msgspec, cryptography.x509, cryptography.hazmat.primitives.serialization
from pathlib import Path
page = __import__("resource").getpagesize()
rss = lambda: int(Path("/proc/self/statm").read_text().split()[1]) * page / 2**20
before = rss()
from tolfl.core.spec import Timing
from tolfl.core.topology import Topology
from tolfl.net.addresses import AddressBook
from tolfl.net.links import Links
from tolfl.net.tls import Credentials
from tolfl.net.wire import WIRE_VERSION, Hello, Limits

class Device:
    def __init__(self, id, places, folder):
        self.id, self.fleet, self.timing = id, "f", Timing.localhost()
        self.limits = Limits(Topology.contiguous(11, 1))
        self.addresses = AddressBook({str(i): place for i, place in enumerate(places) if i != id}, id, range(11))
        self.links = Links(self, Credentials(Path(folder) / f"device-{id}"))
    def hello(self, to):
        return Hello(wire=WIRE_VERSION, fleet=self.fleet, device=self.id, to=to, process=self.id + 1)
    def handshake_done(self, peer, hello): pass
    note_answer = expects = expects_nothing = was_rejected = lambda self, *rest: None

async def main(own, places, folder):
    device = Device(own, places, folder)
    async with asyncio.TaskGroup() as group:
        await device.links.start(group, places[own])
        if own:
            await asyncio.sleep(600)
        while len(device.links.connected) < 10:
            for peer in range(1, 11):
                device.links.connect(peer)
            await asyncio.sleep(0.1)
        print(f"{before:.1f} {rss() - before:.1f}", flush=True)
        await device.links.stop()

asyncio.run(main(int(sys.argv[1]), sys.argv[3:], sys.argv[2]))
"""


def memory(repeats: int) -> None:
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            authority = Authority.create(Path(folder) / "fleet", "plant")
            folders = {authority.issue(f"device-{device}", device).parent for device in range(11)}
            command = [sys.executable, "-c", _MEMORY]
            rest = [str(folders.pop()), *free_addresses(11)]
            others = [subprocess.Popen([*command, str(device), *rest]) for device in range(1, 11)]
            try:
                said = subprocess.run([*command, "0", *rest], check=True, capture_output=True, text=True).stdout
            finally:
                for other in others:
                    other.kill()
                    other.wait()
            before, more = said.split()
            print(f"memory   {more} MiB above the {before} MiB of numpy, msgspec and cryptography", flush=True)


def scale(repeats: int, sizes: list[int]) -> None:
    for n_devices in sizes * repeats:
        print(in_folder(partial(one_scale, n_devices=n_devices)), flush=True)


async def one_scale(folder: Path, n_devices: int) -> str:
    blobs = BlobsSpec(samples_per_device=20, n_features=8, n_groups=2, n_test=2, n_validation=2)
    spec = RunSpec(
        data="blobs", devices=n_devices, clusters=max(1, n_devices // 10), rounds=20_000, blobs=blobs, timing="lan"
    )
    fleet = Fleet(folder, spec)
    for device in range(n_devices):
        fleet.prepare(device)
    mib, began_s = rss_mib(), time.perf_counter()
    fleet.launch(*range(n_devices))
    await fleet.until_round(1)
    started_s = time.perf_counter() - began_s
    first, before_cpu, before_s = fleet.nodes[1].device.version.round, cpu_s(), time.perf_counter()
    await asyncio.sleep(5.0)
    n_rounds = max(1, fleet.nodes[1].device.version.round - first)
    per_round, wall = (cpu_s() - before_cpu) / n_rounds, (time.perf_counter() - before_s) / n_rounds
    killed_s = time.perf_counter()
    node, now_s = fleet.nodes[0], fleet.nodes[1].now_s
    await fleet.kill(0)
    del node

    def has_closed() -> bool:
        lines = (line for device in range(1, n_devices) for line in fleet.records(device)[-5:])
        return any(isinstance(line, RoundClosed) and 0 not in line.included and line.time_s > now_s for line in lines)

    await fleet.until(has_closed)
    over_s = time.perf_counter() - killed_s
    more = (rss_mib() - mib) / n_devices
    await fleet.close()
    return (
        f"scale    N {n_devices:3d}: start {started_s:5.1f} s, round {wall:.3f} s (CPU {per_round:.3f} s), "
        f"fail-over {over_s:.2f} s, {more:.1f} MiB a device"
    )


MESSAGES_PER_S = 1_000


def liar(repeats: int) -> None:
    for _ in range(repeats):
        quiet, _ = in_folder(lambda folder: honest_cpu(folder, is_attacked=False))
        loud, n_sent = in_folder(lambda folder: honest_cpu(folder, is_attacked=True))
        print(
            f"liar     CPU per round {quiet:.3f} s, with {n_sent:.0f} messages a second to each of three "
            f"{loud:.3f} s   ratio {loud / quiet:.2f}",
            flush=True,
        )


async def honest_cpu(folder: Path, is_attacked: bool) -> tuple[float, float]:
    """Return the CPU of three honest devices per round, and how many messages a second a fourth sent to each."""
    blobs = BlobsSpec(samples_per_device=1000, n_features=112, n_test=2, n_validation=2)
    spec = RunSpec(data="blobs", devices=4, clusters=2, rounds=20_000, blobs=blobs, timing="lan")
    fleet = SecureFleet(folder, spec)
    for device in range(3):
        fleet.prepare(device, absent=(3,))
    fleet.launch(0, 1, 2)
    await fleet.until_round(2)
    attacks = [Attack(Peer(fleet, 3, device)) for device in range(3)] if is_attacked else []
    for attack in attacks:
        attack.start()
    await asyncio.sleep(2.0)
    first, before_cpu, before_s = fleet.nodes[1].device.version.round, cpu_s(), time.perf_counter()
    before_theirs, before_sent = sum(one.cpu_s for one in attacks), sum(one.n_sent for one in attacks)
    await asyncio.sleep(10.0)
    n_rounds = max(1, fleet.nodes[1].device.version.round - first)
    theirs = sum(one.cpu_s for one in attacks) - before_theirs
    per_s = (sum(one.n_sent for one in attacks) - before_sent) / (time.perf_counter() - before_s) / 3
    used = (cpu_s() - before_cpu - theirs) / n_rounds
    for attack in attacks:
        attack.is_over = True
    for attack in attacks:
        await asyncio.to_thread(attack.join)
    await fleet.close()
    return used, per_s


class Attack(threading.Thread):
    """Heartbeats that hold everybody for dead, in turn with reports of a round that is over."""

    def __init__(self, peer: Peer) -> None:
        super().__init__(daemon=True)
        self._peer, self.cpu_s, self.n_sent, self.is_over = peer, 0.0, 0, False

    def run(self) -> None:
        asyncio.run(self._send())

    async def _send(self) -> None:
        peer = self._peer
        dead = frozenset((device, 0) for device in range(4) if device != peer.me)
        old = peer.encoded(peer.report(version=Version(0, 0, 0, "")))
        while not self.is_over:
            stream = await peer.dial()
            stream.send(peer.hello(), Ping(77))
            try:
                while not self.is_over:
                    for _ in range(MESSAGES_PER_S // 50):
                        lie = Heartbeat(*peer.header(dead=dead))
                        stream.writer.writelines(peer.encoded(lie))
                    stream.writer.writelines(old)
                    self.n_sent += MESSAGES_PER_S // 50
                    await stream.writer.drain()
                    self.cpu_s = time.thread_time()
                    await asyncio.sleep(0.02)
            except OSError:
                pass  # it was closed: come again
            stream.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = ["ping", "models", "memory", "liar", "scale"]
    parser.add_argument("--only", nargs="+", choices=kinds, default=kinds)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--devices", type=int, nargs="+", default=[10, 30, 60, 100])
    arguments = parser.parse_args()
    for kind in arguments.only:
        if kind == "scale":
            scale(1, arguments.devices)
        else:
            {"ping": ping, "models": models, "memory": memory, "liar": liar}[kind](arguments.repeats)


if __name__ == "__main__":
    main()
