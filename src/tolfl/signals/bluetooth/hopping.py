"""Where Bluetooth sends: the hop selection kernel of connections (vol. 2 part B, 2.6), and low energy's channels.

The clock ticks every 312.5 us, so a slot is two ticks; a packet of several slots stays where it started.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import SpecError

N_CHANNELS = 79
_LE_ADVERTISING_HZ = {37: 2402e6, 38: 2426e6, 39: 2480e6}
_LE_LAST_DATA = 36
#: Which two bits each control bit, from the first, exchanges.
_EXCHANGES = (
    (0, 1), (2, 3), (1, 2), (3, 4), (0, 4), (1, 3), (0, 2), (3, 4), (1, 4), (0, 3), (2, 4), (1, 3), (0, 3), (1, 2),
)  # fmt: skip


def hop(clock: int, address: int) -> int:
    """Return the channel, 0 to 78, of a connection at a tick of the central device's clock (28 bits).

    Only the address's lowest 28 bits count. All channels are in use: adaptive hopping is not modelled.

    >>> [hop(clock, 0x2A96EF25) for clock in range(0x10, 0x20, 2)]
    [55, 26, 19, 20, 23, 22, 53, 40]
    """
    return int(hops(np.array([clock]), address)[0])


def hops(clocks: NDArray[np.integer], address: int) -> NDArray[np.int64]:
    """Return the channel of every tick."""
    clock = np.asarray(clocks, np.int64)
    second = clock >> 1 & 1  # of the two slots: the answer's
    a = (address >> 23 ^ clock >> 21) & 0x1F
    b = address >> 19 & 0xF
    c = (_every_other(address, 0, 5) ^ clock >> 16) & 0x1F
    d = (address >> 10 ^ clock >> 7) & 0x1FF
    e = _every_other(address, 1, 7)
    f = 16 * (clock >> 7 & 0x1FFFFF)
    mixed = _permuted((clock >> 2) + a & 0x1F ^ b, (c ^ 0x1F * second) << 9 | d)
    register: NDArray[np.int64] = (mixed + e + f + 32 * second) % N_CHANNELS
    return 2 * register % N_CHANNELS  # even channels first, then the odd ones


def _every_other(address: int, first: int, n_bits: int) -> int:
    return sum((address >> first + 2 * place & 1) << place for place in range(n_bits))


def _permuted(value: NDArray[np.int64], control: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return five bits after fourteen exchanges, each done where its control bit is set."""
    result = value.copy()
    for place in range(len(_EXCHANGES) - 1, -1, -1):
        one, other = _EXCHANGES[place]
        differ = (result >> one ^ result >> other) & control >> place & 1
        result ^= differ << one | differ << other
    return result


def br_frequency_hz(channel: int) -> float:
    """Return the centre of a basic-rate channel."""
    if not 0 <= channel < N_CHANNELS:
        raise SpecError(f"Bluetooth channel {channel}; use 0 to {N_CHANNELS - 1}")
    return 2402e6 + 1e6 * channel


def le_frequency_hz(channel: int) -> float:
    """Return the centre of a low-energy channel; 37 to 39 are for advertisements, and lie between the others.

    >>> [le_frequency_hz(channel) / 1e6 for channel in (37, 0, 10, 38, 11, 36, 39)]
    [2402.0, 2404.0, 2424.0, 2426.0, 2428.0, 2478.0, 2480.0]
    """
    if channel in _LE_ADVERTISING_HZ:
        return _LE_ADVERTISING_HZ[channel]
    if not 0 <= channel <= _LE_LAST_DATA:
        raise SpecError(f"low-energy channel {channel}; use 0 to {max(_LE_ADVERTISING_HZ)}")
    return 2404e6 + 2e6 * channel + (2e6 if channel > 10 else 0.0)
