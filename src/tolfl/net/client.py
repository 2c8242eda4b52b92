"""The operator's side of a fleet: find devices, ask for their status, send commands."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tolfl.core.errors import SpecError, TolFLError
from tolfl.net.addresses import split_address
from tolfl.net.connection import dialled, next_frame
from tolfl.net.enrolment import FLEET, LAUNCHER
from tolfl.net.node_config import NodeConfig
from tolfl.net.tls import Credentials
from tolfl.net.wire import (
    CommandRequest,
    Done,
    Frame,
    Records,
    RecordsRequest,
    Rejection,
    StatusReply,
    StatusRequest,
    encode_frame,
)
from tolfl.runs.run_reader import RECORDS

_ANSWER_S = 2.0
#: How often a device is asked for new records.
_LOOK_S = 0.3
#: How long the others are left alone between two questions for their alarms, and how many are asked at once.
_OTHERS_S, _AT_ONCE = 3.0, 64


@dataclass(frozen=True)
class Answer:
    """What one device said; None: it did not answer."""

    address: str
    status: StatusReply | None


@dataclass(frozen=True)
class LastAnswer:
    """What a device of a fleet said last, however long ago."""

    device: int
    status: StatusReply | None = None  #: None: it has not answered yet
    heard_unix_s: float = 0.0  #: when it answered
    is_silent: bool = True  #: whether it did not answer when it was asked last


def places(where: str) -> list[str]:
    """Return the addresses behind an address, a device's configuration or a run directory."""
    path = Path(where)
    if path.is_file():
        return [NodeConfig.from_file(path).listen]
    if path.is_dir():
        found = (file for file in path.glob("devices/*/node.toml") if file.parent.name.isdecimal())
        files = sorted(found, key=lambda file: int(file.parent.name))
        if not files:
            raise SpecError(f"{where} is no run directory of real devices; name one, or host:port")
        return [NodeConfig.from_file(file).listen for file in files]
    split_address(where)
    return [where]


def credentials_for(where: str, folder: Path | None = None) -> Credentials:
    """Return what to show to the devices behind an address, a configuration or a run directory."""
    path = Path(where)
    if folder is None and path.is_dir() and (path / FLEET).is_dir():
        folder = path / FLEET / "devices" / LAUNCHER
    elif folder is None and path.is_file():
        config = NodeConfig.from_file(path)
        folder = Path(config.credentials) if config.credentials else None
    return Credentials(folder)


async def ask(address: str, credentials: Credentials) -> StatusReply | None:
    """Return the status of whoever listens at an address; None: nobody does, or not to us."""
    try:
        answer = await _exchange(address, credentials, StatusRequest())
    except (OSError, EOFError, ValueError):
        return None
    return answer if isinstance(answer, StatusReply) else None


def ask_all(addresses: Sequence[str], credentials: Credentials | None = None) -> list[Answer]:
    """Ask all at once."""
    replies = asyncio.run(_ask_each(addresses, credentials or Credentials()))
    return [Answer(address, reply) for address, reply in zip(addresses, replies, strict=True)]


async def _ask_each(addresses: Sequence[str], credentials: Credentials) -> list[StatusReply | None]:
    slots = asyncio.Semaphore(_AT_ONCE)  # the time for an answer begins with the question

    async def one(address: str) -> StatusReply | None:
        async with slots:
            return await ask(address, credentials)

    return await asyncio.gather(*map(one, addresses))


async def ask_others(said: StatusReply, credentials: Credentials) -> dict[int, StatusReply | None]:
    """Ask all others of a fleet, where one of its devices knows them to be; None: no answer, or no address."""
    places = {peer.device: peer.address for peer in said.peers}
    replies = dict(zip(places, await _ask_each(list(places.values()), credentials), strict=True))
    others = sorted(({device for cluster in said.clusters for device in cluster} | set(places)) - {said.device})
    return {device: _of_device(device, said.fleet, replies.get(device)) for device in others}


def _of_device(device: int, fleet: str, reply: StatusReply | None) -> StatusReply | None:
    """Return an answer if it is the one of this device: another one may have got its address."""
    return reply if reply is not None and (reply.device, reply.fleet) == (device, fleet) else None


def command(address: str, request: CommandRequest, credentials: Credentials | None = None) -> None:
    """Give a command to a device, as an operator or with the token that it was started with."""
    asyncio.run(send_command(address, request, credentials or Credentials()))


async def send_command(address: str, request: CommandRequest, credentials: Credentials) -> None:
    """Give a command to the device at an address."""
    try:
        answer = await _exchange(address, credentials, request)
    except (OSError, EOFError, ValueError) as error:
        raise TolFLError(
            f"the device at {address} did not carry out the command ({str(error) or 'no answer'})"
        ) from None
    if not isinstance(answer, Done):
        why = answer.reason if isinstance(answer, Rejection) else "it answered something else"
        raise TolFLError(f"the device at {address} did not carry out the command ({why})")


class RecordsMirror:
    """A device's records, copied into a folder on this machine while they grow; and the last answer of every device.

    Any device knows the whole run. Where the first one does not answer, another one of those that it knows is asked;
    the copy begins anew then, since each device has a file of its own. Its alarms a device knows alone: all are asked
    for their status, too.
    """

    def __init__(self, address: str, credentials: Credentials, folder: Path) -> None:
        self.address, self.path = address, folder / RECORDS
        self._credentials, self._known, self._turn = credentials, [address], 0
        self._n_bytes, self._heard_s = 0, time.monotonic()
        self._is_stopped = threading.Event()
        self._answered: tuple[str, StatusReply] | None = None  #: where a device answered last, and what it answered
        self.last_answers: tuple[LastAnswer, ...] = ()  #: of all devices; another one after every round of questions

    @property
    def silent_s(self) -> float:
        """How long ago the device last answered."""
        return time.monotonic() - self._heard_s

    async def look(self) -> None:
        """Copy what is new; raise the reason if the device does not answer."""
        status = await _exchange(self.address, self._credentials, StatusRequest())
        if isinstance(status, StatusReply):
            self._answered = self.address, status
            self._known = [self.address, *(peer.address for peer in status.peers)]
        while True:
            answer = await _exchange(self.address, self._credentials, RecordsRequest(self._n_bytes))
            if not isinstance(answer, Records):
                why = answer.reason if isinstance(answer, Rejection) else "it answered something else"
                raise EOFError(why)  # noqa: TRY004  (the peer disconnects)
            self._heard_s = time.monotonic()
            if not answer.content:
                return
            with self.path.open("ab" if self._n_bytes else "wb") as file:
                file.write(answer.content)
            self._n_bytes += len(answer.content)

    async def ask_others(self) -> None:
        """Ask every device of the fleet; of one that is silent the answer before stands."""
        if self._answered is None:
            return
        address, said = self._answered
        first, others = await asyncio.gather(ask(address, self._credentials), ask_others(said, self._credentials))
        replies = {said.device: _of_device(said.device, said.fleet, first), **others}
        before, now_unix_s = {one.device: one for one in self.last_answers}, time.time()
        answers = []
        for device, reply in sorted(replies.items()):
            if reply is None:
                answers.append(replace(before.get(device, LastAnswer(device)), is_silent=True))
            else:
                answers.append(LastAnswer(device, reply, now_unix_s, is_silent=False))
        self.last_answers = tuple(answers)

    async def _keep_asking(self) -> None:
        while True:
            await self.ask_others()
            await asyncio.sleep(_OTHERS_S)

    async def _keep_both(self) -> None:
        asking = asyncio.create_task(self._keep_asking())
        try:
            await self._keep_looking()
        finally:
            asking.cancel()

    async def _keep_looking(self) -> None:
        while not self._is_stopped.is_set():
            try:
                await self.look()
            except (OSError, EOFError, ValueError):
                if self.silent_s > _ANSWER_S and not self._is_stopped.is_set():
                    self._ask_another()
            await asyncio.sleep(_LOOK_S)

    def _ask_another(self) -> None:
        self._turn += 1
        other = self._known[self._turn % len(self._known)]
        if other != self.address:
            self.address, self._n_bytes = other, 0
            anew = self.path.with_suffix(".new")
            anew.write_bytes(b"")
            anew.replace(self.path)  # another file, so that whoever reads it notices

    @contextmanager
    def running(self) -> Iterator[None]:
        """Copy beside what the caller does."""
        thread = threading.Thread(target=lambda: asyncio.run(self._keep_both()), name="records", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._is_stopped.set()
            thread.join()


async def _exchange(address: str, credentials: Credentials, question: Frame) -> Frame:
    """Return the answer to one frame; only a device of the fleet is asked."""
    async with asyncio.timeout(_ANSWER_S):
        reader, writer = await dialled(address, credentials.client_context)
        try:
            identity = credentials.identify(writer)
            if identity is not None and identity.device is None:
                raise EOFError("what answers there is no device of the fleet")
            writer.write(encode_frame(question))
            return await next_frame(reader)
        finally:
            writer.transport.abort()
