"""Coming to a fleet: finding the others, and waiting for them a little before the first round."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from tolfl.net.addresses import split_address
from tolfl.net.authority import EnrolmentError
from tolfl.net.server import PROOF
from tolfl.net.wire import RefusedMessageError, StatusReply, read_as

if TYPE_CHECKING:
    from tolfl.net.node import Node

STATUS = "/tolfl.v2.Fleet/Status"
_ASK_S = 2.0
_PAUSE_S = 0.1
_TRAINING = ("head", "member", "closer")


class Arrival:
    """Waits until everybody listens, or somebody is training already, or it has taken too long."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._there: set[int] = set()
        self._n_asked = 0
        self._is_turned_away = False

    async def wait(self) -> None:
        """Return when this device should begin."""
        others = set(self._node.limits.topology.cluster_of) - {self._node.id, *self._node.setting.config.absent}
        with suppress(TimeoutError):
            async with asyncio.timeout(self._node.setting.config.start_timeout_s):
                await self._wait_for(others)
        if self._may_have_moved():
            for peer in sorted(others & set(self._node.addresses)):
                self._node.outbox.link_to(peer)  # its hello tells them where this device is

    def _may_have_moved(self) -> bool:
        """Tell whether others may have no address of this device, or an old one."""
        config = self._node.setting.config
        return bool(config.seeds) or split_address(config.listen)[1] == 0

    async def _wait_for(self, others: set[int]) -> None:
        node = self._node
        while node.device.stopped is None and not self._is_turned_away:
            await asyncio.gather(*(self._ask_seed(seed) for seed in node.setting.config.seeds))
            known = [peer for peer in sorted(others - self._there) if peer in node.addresses]
            answers = await asyncio.gather(*(self._is_there(node.addresses[peer]) for peer in known))
            arrived = [peer for peer, answer in zip(known, answers, strict=True) if answer]
            self._there.update(arrived)
            # Whoever trains already holds those who were not there for dead: nothing is gained by waiting for more.
            if await self._is_somebody_training():
                return
            if self._there == others:
                return
            await asyncio.sleep(_PAUSE_S)

    async def _is_there(self, address: str) -> bool:
        try:
            async with asyncio.timeout(_ASK_S):
                _, writer = await asyncio.open_connection(*split_address(address))
        except (OSError, TimeoutError, ValueError):  # an address that somebody made up may be no name at all
            return False
        writer.close()
        return True

    async def _is_somebody_training(self) -> bool:
        """Ask those who are there, one after the other and again and again; learn whom they know."""
        if not self._there:
            return False
        peer = sorted(self._there)[self._n_asked % len(self._there)]
        self._n_asked += 1
        status = await ask(self._node.dial(self._node.addresses[peer]))
        if status is None or status.fleet != self._node.fleet:
            return False
        self._learn(status)
        return status.role in _TRAINING

    def _learn(self, status: StatusReply) -> None:
        for peer in status.peers:
            if peer.address and peer.device != self._node.id:
                self._node.addresses.setdefault(peer.device, peer.address)

    async def _ask_seed(self, seed: str) -> None:
        """Learn who answers there and whom it knows; a link to it tells it where this device is."""
        node = self._node
        status = await ask(node.dial(seed), self._turned_away)
        if status is None or status.fleet != node.fleet or status.device == node.id:
            return
        node.addresses.setdefault(status.device, seed)
        self._learn(status)
        node.outbox.link_to(status.device)

    def _turned_away(self, revocations: bytes) -> None:
        """Take in why: a device that was revoked while it was away hears of it here, or from nobody."""
        with suppress(EnrolmentError):  # a list that nobody signed proves nothing
            self._node.learn(revocations)
            self._is_turned_away = True


async def ask(channel: grpc.aio.Channel, turned_away: Callable[[bytes], None] | None = None) -> StatusReply | None:
    """Return the status of whoever answers on a channel; None: nobody does, or not to us, perhaps with a proof."""
    async with channel:
        try:
            return read_as(StatusReply, await channel.unary_unary(STATUS)(b"", timeout=_ASK_S))
        except RefusedMessageError:
            return None
        except grpc.aio.AioRpcError as error:
            proofs = [value for key, value in error.trailing_metadata() or () if key == PROOF]
            if turned_away is not None and proofs and isinstance(proofs[0], bytes):
                turned_away(proofs[0])
            return None
