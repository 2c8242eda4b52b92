"""Addresses of devices, by how reliable their source is: the configuration, the device itself, others, discovery.

Also the ports of this machine: which are free, and on which a process listens.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Container, Mapping
from enum import IntEnum
from pathlib import Path

from tolfl.core.errors import SpecError, TolFLError

_MAX_ADDRESS = 300  #: a name of 253 characters, a port, and something to spare


class Word(IntEnum):
    """Whose word an address is; a lower one never replaces a higher one."""

    DISCOVERED = 0  #: by multicast, from anybody on the network
    OTHERS = 1  #: another device's
    OWN = 2  #: the device's own, over a connection that shows its certificate
    CONFIGURED = 3  #: the operator's


class AddressBook(dict[int, str]):
    """The addresses of the devices of a fleet, by id, as one of them knows them.

    >>> book = AddressBook({"3": "radio:7003"}, own=0, known=range(5))
    >>> [book.learn(3, "radio:7103", Word.OWN), book.learn(4, "gateway:7004", Word.OTHERS)]
    [False, True]
    >>> [book.learn(4, "elsewhere:7004", Word.DISCOVERED), book.learn(9, "nobody:7009", Word.OWN)]
    [False, False]
    >>> dict(book)
    {3: 'radio:7003', 4: 'gateway:7004'}
    """

    def __init__(self, configured: Mapping[str, str], own: int, known: Container[int]) -> None:
        super().__init__({int(device): address for device, address in configured.items()})
        self._words = dict.fromkeys(self, Word.CONFIGURED)
        self._own, self._known = own, known

    def learn(self, device: int, address: str, word: Word) -> bool:
        """Take in where a device is, if it is one of the fleet and the word is good; return whether it was taken."""
        known = self._words.get(device, Word.DISCOVERED)
        if device == self._own or device not in self._known or not is_address(address):
            return False
        # Two devices may disagree about a third: the first report stands, until the third device reports its own.
        if device in self and (word < known or (word == known and word in (Word.OTHERS, Word.CONFIGURED))):
            return False
        self[device], self._words[device] = address, word
        return True

    def learn_all(self, sender: int, addresses: Mapping[int, str], is_outdated: bool = False) -> None:
        """Take in where a device says that it and others are; outdated, it is no word about itself."""
        for device, address in addresses.items():
            if device != sender:
                self.learn(device, address, Word.OTHERS)
            elif not is_outdated:
                self.learn(device, address, Word.OWN)


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of `host:port`, `[v6]:port`."""
    host, _, port = address.rpartition(":")
    if len(address) > _MAX_ADDRESS or not host or not port.isdecimal() or int(port) > 65535:
        raise SpecError(f"address {address[:_MAX_ADDRESS]!r}; write host:port, as in 10.0.0.3:7000")
    return host.strip("[]"), int(port)


def is_address(address: str) -> bool:
    """Return whether something could be dialled."""
    try:
        split_address(address)
    except SpecError:
        return False
    return True


def is_unspecified(address: str) -> bool:
    """Return whether an address means every interface of a machine, and so none that others could dial."""
    return split_address(address)[0] in ("0.0.0.0", "::", "")


_LOWEST, _PER_PROCESS = 10_240, 64
_USUAL_FIRST_OUTGOING = 32_768
_CONNECT_S = 1.0


def free_ports(n: int) -> list[int]:
    """Return ports that nobody uses at the moment.

    They lie below those that the system gives to outgoing connections: a device that comes back must not find such a
    connection on its port. Processes that look at the same time look in different places.
    """
    n_below = max(0, _first_outgoing() - _LOWEST)
    first = os.getpid() * _PER_PROCESS
    found: list[int] = []
    for place in range(first, first + n_below):
        if len(found) == n:
            break
        if _is_free(port := _LOWEST + place % n_below):
            found.append(port)
    if len(found) < n:
        raise TolFLError(f"there are not {n} free ports between {_LOWEST} and {_LOWEST + n_below}; stop other runs")
    return found


def _first_outgoing() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    except OSError:
        return _USUAL_FIRST_OUTGOING


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as a device does
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def is_listening(address: str) -> bool:
    """Return whether somebody listens at an address."""
    try:
        socket.create_connection(split_address(address), timeout=_CONNECT_S).close()
    except OSError:
        return False
    return True
