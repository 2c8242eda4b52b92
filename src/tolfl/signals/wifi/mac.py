"""What frames carry: data frames with a check sequence (9.2, 9.3.2.1), and aggregates of them for VHT (9.7)."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from tolfl.core.errors import SpecError
from tolfl.signals.wifi.bits import crc8, number_bits

_QOS_DATA_FROM_ACCESS_POINT = bytes([0x88, 0x02])
_SIGNATURE = b"N"  #: by which a receiver finds the next delimiter
LONGEST_MPDU = 11_454  #: bytes, check sequence included
_ADDRESS_BYTES = 6


def with_check_sequence(frame: bytes) -> bytes:
    """Return a frame with its FCS behind it: the CRC-32 of all its bytes.

    >>> with_check_sequence(b"123456789")[-4:].hex()
    '2639f4cb'
    """
    return frame + zlib.crc32(frame).to_bytes(4, "little")


def data_mpdu(payload: bytes, receiver: bytes, transmitter: bytes, source: bytes, sequence_number: int = 0) -> bytes:
    """Return a QoS data frame from an access point, with its check sequence.

    Parameters
    ----------
    payload
        With the LLC header of its protocol: `aaaa03000000 0800` ahead of an IPv4 packet.
    receiver, transmitter, source
        Addresses of six bytes; the transmitter is the access point.
    """
    for name, address in {"receiver": receiver, "transmitter": transmitter, "source": source}.items():
        if len(address) != _ADDRESS_BYTES:
            raise SpecError(f"the {name}'s address has {len(address)} bytes; use {_ADDRESS_BYTES}")
    duration, qos = bytes(2), bytes(2)
    sequence = (sequence_number % 4096 << 4).to_bytes(2, "little")
    header = _QOS_DATA_FROM_ACCESS_POINT + duration + receiver + transmitter + source + sequence + qos
    return with_check_sequence(header + payload)


def delimiter(n_bytes: int, end_of_frame: bool) -> bytes:
    """Return the four bytes ahead of a frame in an aggregate; end of frame and length 0 is padding.

    >>> delimiter(0, end_of_frame=True).hex()[:4], delimiter(0, end_of_frame=True)[-1:]
    ('0100', b'N')
    """
    announced = np.concatenate(
        [
            number_bits(end_of_frame, 1),
            np.zeros(1, np.uint8),  # reserved
            number_bits(n_bytes >> 12, 2),
            number_bits(n_bytes, 12),
        ]
    )
    return np.packbits(np.concatenate([announced, crc8(announced)]), bitorder="little").tobytes() + _SIGNATURE


def ampdu(frames: Sequence[bytes]) -> bytes:
    """Return frames as one aggregate, each behind its delimiter and padded to four bytes, as VHT sends all its data.

    A frame that is alone is marked as the end, which is how VHT sends a single frame.
    """
    if not frames:
        raise SpecError("an aggregate of no frames; use at least one")
    parts = []
    for frame in frames:
        if not 1 <= len(frame) <= LONGEST_MPDU:
            raise SpecError(f"a frame of {len(frame)} bytes in an aggregate; use 1 to {LONGEST_MPDU}")
        parts += [delimiter(len(frame), end_of_frame=len(frames) == 1), frame, bytes(-len(frame) % 4)]
    return b"".join(parts)


def filled(psdu: bytes, n_bytes: int) -> bytes:
    """Return an aggregate followed by end-of-frame delimiters, and up to three zeros, so that it has `n_bytes`."""
    whole = psdu + bytes(min(-len(psdu) % 4, n_bytes - len(psdu)))
    n_delimiters, rest = divmod(n_bytes - len(whole), 4)
    return whole + delimiter(0, end_of_frame=True) * n_delimiters + bytes(rest)
