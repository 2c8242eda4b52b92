"""Packets, as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

UDP, TCP = 17, 6  #: the protocol field of an IP header
#: Ethernet 14, IP 20, UDP 8 or TCP 20.
_HEADER_BYTES = {UDP: 42, TCP: 54}


@dataclass(frozen=True, slots=True, eq=False)  # arrays: equality is identity
class Packets:
    """Packets in the order of their start times; sources and destinations are numbers of addresses."""

    time_s: NDArray[np.float64]
    payload_bytes: NDArray[np.int32]
    source: NDArray[np.int32]
    destination: NDArray[np.int32]
    protocol: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.time_s)

    @property
    def wire_bytes(self) -> NDArray[np.int32]:
        """Payload and headers: 43 to 1542 bytes for UDP payloads of 1 to 1500."""
        headers = np.where(self.protocol == TCP, _HEADER_BYTES[TCP], _HEADER_BYTES[UDP])
        return (self.payload_bytes + headers).astype(np.int32)

    def take(self, which: NDArray[np.bool_] | NDArray[np.intp]) -> Packets:
        """Return some of the packets, by mask or by index."""
        return Packets(
            self.time_s[which],
            self.payload_bytes[which],
            self.source[which],
            self.destination[which],
            self.protocol[which],
        )
