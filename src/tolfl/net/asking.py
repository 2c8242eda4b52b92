"""Asking devices from outside: where they are, and what they say."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from tolfl.core.errors import SpecError, TolFLError
from tolfl.net.addresses import split_address
from tolfl.net.arrival import ask
from tolfl.net.config import NodeConfig
from tolfl.net.credentials import TLS, Credentials, NoCredentials
from tolfl.net.launcher import FLEET, OPERATOR
from tolfl.net.wire import CommandRequest, StatusReply, encode_frame

_COMMAND = "/tolfl.v2.Fleet/Command"
_COMMAND_S = 2.0


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


def shown_to(where: str, folder: Path | None = None) -> Credentials:
    """Return what to show to the devices behind an address, a configuration or a run directory."""
    path = Path(where)
    if folder is not None:
        return TLS(folder)
    if path.is_dir() and (path / FLEET).is_dir():
        return TLS(path / FLEET / "devices" / OPERATOR)
    if path.is_file():
        config = NodeConfig.from_file(path)
        return TLS(Path(config.credentials)) if config.credentials else NoCredentials()
    return NoCredentials()


def ask_all(addresses: Sequence[str], credentials: Credentials | None = None) -> list[Answer]:
    """Ask all at once."""
    shown = credentials or NoCredentials()

    async def gather() -> list[Answer]:
        replies = await asyncio.gather(*(ask(shown.dial(address, None)) for address in addresses))
        return [Answer(address, reply) for address, reply in zip(addresses, replies, strict=True)]

    return asyncio.run(gather())


def command(address: str, request: CommandRequest, credentials: Credentials | None = None) -> None:
    """Give a command to a device, as an operator or with the token that it was started with."""
    shown = credentials or NoCredentials()

    async def tell() -> None:
        async with shown.dial(address, None) as channel:
            try:
                await channel.unary_unary(_COMMAND)(encode_frame(request), timeout=_COMMAND_S)
            except grpc.aio.AioRpcError as error:
                raise TolFLError(f"the device at {address} did not obey ({error.details()})") from None

    asyncio.run(tell())
