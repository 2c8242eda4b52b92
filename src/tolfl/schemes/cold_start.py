"""The first round of a scheme that must see every device's own model: one key per device."""

from __future__ import annotations

import numpy as np

from tolfl.core.contribution import Contribution, Vector
from tolfl.schemes.clustered import DEVICE_KEY, Labels


def device_key(device: int) -> str:
    """Return the key under which a device reports a model of its own."""
    return f"{DEVICE_KEY}{device}"


def local_updates(total: Contribution) -> tuple[list[int], Vector]:
    """Return the devices that reported models of their own, and these, shape `(n_devices, n_params)`."""
    devices = sorted(int(key.removeprefix(DEVICE_KEY)) for key in total.parts if key.startswith(DEVICE_KEY))
    if not devices:
        return [], np.empty((0, 0))
    return devices, np.stack([total.parts[device_key(device)].mean for device in devices])


def group_means(rows: Vector, labels: Labels) -> list[Vector]:
    """Return the plain mean of each group's rows."""
    return [rows[labels == label].mean(axis=0) for label in range(int(labels.max()) + 1)]
