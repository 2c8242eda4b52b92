"""Asking devices from outside: where they are, what they say, and what they shall do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tolfl.core.errors import SpecError, TolFLError
from tolfl.net.addresses import split_address
from tolfl.net.connection import new_reader, next_frame, writer_of
from tolfl.net.enrolment import FLEET, LAUNCHER
from tolfl.net.node_config import NodeConfig
from tolfl.net.tls import Credentials
from tolfl.net.wire import CommandRequest, Done, Frame, Rejection, StatusReply, StatusRequest, encode_frame

_ANSWER_S = 2.0


@dataclass(frozen=True)
class Answer:
    """What one device said; None: it did not answer."""

    address: str
    status: StatusReply | None


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
    shown = credentials or Credentials()

    async def gather() -> list[Answer]:
        replies = await asyncio.gather(*(ask(address, shown) for address in addresses))
        return [Answer(address, reply) for address, reply in zip(addresses, replies, strict=True)]

    return asyncio.run(gather())


def command(address: str, request: CommandRequest, credentials: Credentials | None = None) -> None:
    """Give a command to a device, as an operator or with the token that it was started with."""
    asyncio.run(tell(address, request, credentials or Credentials()))


async def tell(address: str, request: CommandRequest, credentials: Credentials) -> None:
    """Give a command to the device at an address."""
    try:
        answer = await _exchange(address, credentials, request)
    except (OSError, EOFError, ValueError) as error:
        raise TolFLError(f"the device at {address} did not obey ({str(error) or 'no answer'})") from None
    if not isinstance(answer, Done):
        why = answer.reason if isinstance(answer, Rejection) else "it said something else"
        raise TolFLError(f"the device at {address} did not obey ({why})")


async def _exchange(address: str, credentials: Credentials, question: Frame) -> Frame:
    """Return the answer to one frame; only a device of the fleet is asked."""
    reader, protocol = new_reader()
    context, loop = credentials.client_context, asyncio.get_running_loop()
    async with asyncio.timeout(_ANSWER_S):
        host, port = split_address(address)
        transport, _ = await loop.create_connection(
            lambda: protocol, host, port, ssl=context, server_hostname=None if context is None else ""
        )
        try:
            writer = writer_of(transport, reader, protocol)
            identity = credentials.identify(writer)
            if identity is not None and identity.device is None:
                raise EOFError("whoever is there is no device of the fleet")
            writer.write(encode_frame(question))
            return await next_frame(reader)
        finally:
            transport.abort()
