"""Finding the others on a local network by multicast DNS: each device announces itself and listens for its fleet."""

from __future__ import annotations

import asyncio
import socket

from zeroconf import ServiceStateChange, Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from tolfl.net.addresses import AddressBook, Word, split_address

_TYPE = "_tolfl._tcp.local."
_ASK_MS = 2000


class Discovery:
    """The announcement of one device; addresses of others go into its book as they are received."""

    def __init__(self, fleet: str, device: int, addresses: AddressBook) -> None:
        self._fleet, self._device, self._addresses = fleet, device, addresses
        self._mdns: AsyncZeroconf | None = None
        self._browser: AsyncServiceBrowser | None = None
        self._looking: set[asyncio.Future[None]] = set()

    async def start(self, address: str) -> None:
        """Announce that this device listens at an address, and listen for others."""
        host, port = split_address(address)
        self._mdns = AsyncZeroconf(interfaces=[host])
        info = AsyncServiceInfo(
            _TYPE,
            f"{self._fleet}-{self._device}.{_TYPE}",
            addresses=[socket.inet_aton(socket.gethostbyname(host))],
            port=port,
            properties={"fleet": self._fleet, "device": str(self._device)},
            server=f"{self._fleet}-{self._device}.local.",
        )
        await self._mdns.async_register_service(info)
        self._browser = AsyncServiceBrowser(self._mdns.zeroconf, _TYPE, handlers=[self._on_change])

    def _on_change(self, zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        if state_change is not ServiceStateChange.Removed and name.startswith(f"{self._fleet}-"):
            looking = asyncio.ensure_future(self._look_up(zeroconf, service_type, name))
            self._looking.add(looking)
            looking.add_done_callback(self._looking.discard)

    async def _look_up(self, zeroconf: Zeroconf, service_type: str, name: str) -> None:
        info = AsyncServiceInfo(service_type, name)
        if not await info.async_request(zeroconf, _ASK_MS):
            return
        device = (info.properties or {}).get(b"device") or b""
        addresses = info.parsed_addresses()
        if device.isdigit() and addresses:
            self._addresses.learn(int(device), f"{addresses[0]}:{info.port}", Word.DISCOVERED)

    async def stop(self) -> None:
        """Take the announcement back."""
        for looking in self._looking:
            looking.cancel()
        if self._browser is not None:
            await self._browser.async_cancel()
        if self._mdns is not None:
            await self._mdns.async_unregister_all_services()
            await self._mdns.async_close()
