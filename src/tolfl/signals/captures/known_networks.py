"""Files with the networks that a device has heard while it learned: what a new one is told from.

A network is known by its address and its name together, as a hash of both. A detector, which a fleet agrees on and
people copy, does not have them: they stay on the device, in a file of their own.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import DataFileError

MAX_NETWORKS = 4096  #: that a device knows
DEVICE_FILE = "known.networks"  #: in the state folder of a device of a fleet

Networks = NDArray[np.uint64]  #: hashes of address and name, in order


def networks_file(detector: Path) -> Path:
    """Return the file beside a detector's with the networks that it was fitted on.

    >>> networks_file(Path("street.tolfl")).name
    'street.tolfl.networks'
    """
    return detector.with_name(f"{detector.name}.networks")


def joined_networks(before: Networks | None, more: Networks | None) -> Networks | None:
    """Return what is known in the end, the newer ones where there are too many; None: there is no capture of 802.11."""
    if before is None or more is None:
        return before if more is None else more
    return np.sort(np.concatenate([more, np.setdiff1d(before, more)])[:MAX_NETWORKS])


def as_bytes(networks: Networks) -> bytes:
    """Return the content of such a file."""
    return networks.astype("<u8").tobytes()


def networks_known(path: Path) -> Networks | None:
    """Return the networks in a file; None: there is no such file."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataFileError(path, f"cannot be read ({error.strerror}); check the path") from None
    if len(content) % 8:
        raise DataFileError(path, "is no list of networks; remove it, or fit again")
    return np.unique(np.frombuffer(content, "<u8").astype(np.uint64))


def are_same(one: Networks | None, other: Networks | None) -> bool:
    """Return whether the same networks are known."""
    return one is other or (one is not None and other is not None and np.array_equal(one, other))
