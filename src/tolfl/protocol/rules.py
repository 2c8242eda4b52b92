"""What all devices of a run have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from tolfl.core.contribution import Contribution, Pending
from tolfl.core.device_set import DeviceSet
from tolfl.core.topology import Topology
from tolfl.protocol.history import Models, Version


class Rules(msgspec.Struct, frozen=True):
    """The layout, the arithmetic and the limits of a run."""

    topology: Topology
    rounds: int
    apply: Callable[[Models, Pending, Version, DeviceSet], Models]  #: the next models, from a mean and who goes on
    #: the chain so far with a cluster appended, which is given as one contribution per device, in id order
    merge: Callable[[Pending | None, Sequence[Pending]], Pending] = Contribution.appended
    policy: str = "elect"  #: when a head dies: elect, drop, isolate or freeze
    min_devices: int = 1
    min_samples: int = 1
    has_deadline: bool = False
