"""Where devices are, and which life of each is known to be there."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING

from tolfl.core.errors import SpecError

if TYPE_CHECKING:
    from tolfl.net.wire import Hello


class Addresses(dict[int, str]):
    """The addresses of the devices of a fleet, by id, as one of them knows them.

    >>> addresses = Addresses({"3": "radio:7003"}, own=0, known=range(5))
    >>> from tolfl.net.wire import Hello
    >>> addresses.learn(3, Hello(incarnation=1, addresses={3: "radio:7103", 4: "gateway:7004", 9: "nobody:7009"}))
    >>> dict(addresses), addresses.life_at(3), addresses.life_at(4)
    ({3: 'radio:7103', 4: 'gateway:7004'}, 1, 0)
    """

    def __init__(self, configured: Mapping[str, str], own: int, known: Container[int]) -> None:
        super().__init__({int(device): address for device, address in configured.items()})
        self._own, self._known = own, known
        self._lives: dict[int, int] = {}

    def learn(self, peer: int, hello: Hello) -> None:
        """Take in the first frame of a peer: it knows best where it is itself, and may know where others are."""
        for device, address in hello.addresses.items():
            if device not in self:
                self.found(device, address)
        if peer in hello.addresses and hello.incarnation >= self.life_at(peer):
            self.found(peer, hello.addresses[peer])
            self._lives[peer] = hello.incarnation

    def found(self, device: int, address: str) -> None:
        """Take in where a device is, unless it is none of the fleet."""
        if device != self._own and device in self._known:
            self[device] = address

    def life_at(self, peer: int) -> int:
        """Return the latest life that told this address itself; a refusal there proves nothing of a later one."""
        return self._lives.get(peer, 0)


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of `host:port`, `[v6]:port`."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535 or not host:
        raise SpecError(f"address {address!r}; write host:port, as in 10.0.0.3:7000")
    return host.strip("[]"), int(port)
