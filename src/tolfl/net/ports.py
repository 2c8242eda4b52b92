"""Ports of this machine: which are free, and where somebody listens."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from tolfl.core.errors import TolFLError
from tolfl.net.addresses import split_address

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
    """Tell whether somebody listens at an address."""
    try:
        socket.create_connection(split_address(address), timeout=_CONNECT_S).close()
    except OSError:
        return False
    return True
