"""Frames of 802.11, and the radiotap header that capture programs put in front of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tolfl.signals.captures.ip import Opaque
from tolfl.signals.captures.numbers import Int64, Numbers

_MANAGEMENT, _CONTROL, _DATA = 0, 1, 2
#: Control frames that name no sender: the wrapper, clear to send, acknowledgement.
_WITHOUT_SENDER = (7, 12, 13)
_TO_DS, _FROM_DS, _PROTECTED, _ORDER = 1, 2, 0x40, 0x80  #: second byte of the frame control
_HAS_CHECKSUM, _IS_PADDED = 0x10, 0x20  #: radiotap's flags
_SNAP = 0xAAAA03000000  #: in front of the type of what a data frame carries
_MOST_WORDS = 8  #: of radiotap's list of fields


class Frames(NamedTuple):
    """Headers of 802.11 frames."""

    source: NDArray[np.uint64]
    destination: NDArray[np.uint64]
    has_source: NDArray[np.bool_]
    ip_at: Int64
    kind: Int64
    """What is carried, as Ethernet numbers it; 0 if that cannot be read."""
    opaque: NDArray[np.uint8]
    is_there: NDArray[np.bool_]


def read_radiotap(numbers: Numbers, at: Int64, captured: Int64) -> tuple[Int64, Int64]:
    """Return the length of each radiotap header, 0 for a damaged one, and its flags.

    Radiotap is little-endian, whoever captured. Its fields come in the order of their bits in a list that may have
    several words; the flags are the second of them, behind a time of eight bytes that is aligned to eight.
    """
    little = Numbers(numbers.data, "<")
    length = little.at(at + 2, 2)
    present = little.at(at + 4, 4)
    fields, word = np.full(len(at), 8, np.int64), present
    for _ in range(_MOST_WORDS):
        goes_on = (word >> 31) & 1 > 0
        if not goes_on.any():
            break
        word = np.where(goes_on, little.at(at + fields, 4), 0)
        fields = np.where(goes_on, fields + 4, fields)
    has_time, has_flags = (present & 1) > 0, (present & 2) > 0
    place = np.where(has_time, (fields + 7) // 8 * 8 + 8, fields)
    is_good = (captured >= 8) & (numbers.at(at, 1) == 0) & (length >= 8) & (length <= captured)
    flags = np.where(is_good & has_flags & (place < length), little.at(at + place, 1), 0)
    return np.where(is_good, length, 0), flags


def read_wlan(numbers: Numbers, at: Int64, end: Int64, flags: Int64) -> Frames:
    """Read the headers of frames; `flags` are radiotap's, 0 without it.

    Sender and receiver are the first and the last on the way, not the access point between: which of the addresses
    these are depends on whether the frame goes to the distribution system, comes from it, or both.
    """
    control, more = numbers.at(at, 1), numbers.at(at + 1, 1)
    kind, subtype = (control >> 2) & 3, control >> 4
    is_data = kind == _DATA
    to_ds, from_ds = is_data & (more & _TO_DS > 0), is_data & (more & _FROM_DS > 0)
    first, second, third = (numbers.at(at + place, 6).astype(np.uint64) for place in (4, 10, 16))
    fourth = numbers.at(at + 24, 6).astype(np.uint64)
    source = np.select([to_ds & from_ds, from_ds], [fourth, third], second)
    has_source = (kind != _CONTROL) | ~np.isin(subtype, _WITHOUT_SENDER)
    is_qos = is_data & (subtype & 8 > 0)
    header = 24 + 6 * (to_ds & from_ds) + 2 * is_qos + 4 * (is_qos & (more & _ORDER > 0))
    needed = np.select([(kind == _CONTROL) & ~has_source, kind == _CONTROL], [10, 16], 24 + 6 * (to_ds & from_ds))
    is_bundled = is_qos & (numbers.at(at + header - 2 - 4 * (is_qos & (more & _ORDER > 0)), 1) & 0x80 > 0)
    body = at + np.where(flags & _IS_PADDED > 0, (header + 3) // 4 * 4, header)
    has_snap = (body + 8 <= end) & (numbers.at(body, 6) == _SNAP)
    reasons = [~is_data | (subtype & 4 > 0), more & _PROTECTED > 0, is_bundled, body + 8 > end, ~has_snap]
    codes = [Opaque.NO_DATA, Opaque.ENCRYPTED, Opaque.BUNDLED, Opaque.CUT, Opaque.NO_IP]
    opaque = np.select(reasons, [int(code) for code in codes], int(Opaque.NOT)).astype(np.uint8)
    carried = np.where(opaque == Opaque.NOT, numbers.at(body + 6, 2), 0)
    destination = np.where(to_ds, third, first)
    return Frames(source, destination, has_source, body + 8, carried, opaque, end - at >= needed)
