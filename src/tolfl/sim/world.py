"""Devices, links and data of a simulated fleet, and the time at which a message arrives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tolfl.core.seeding import Purpose, rng_for
from tolfl.core.spec import LinkModel, Timing
from tolfl.protocol.device import Rules

#: Bytes of a message without a model.
CONTROL_BYTES = 64


@dataclass(frozen=True)
class World:
    """What a timeline needs to know of devices, links and data; no sample and no model."""

    rules: Rules
    n_samples: tuple[int, ...]  #: as devices claim them
    counted: tuple[int, ...]  #: as they count in a mean
    train_s: tuple[float, ...]  #: duration of local training, by device
    nbytes: tuple[tuple[int, int], ...]  #: of a contribution and of a closed round, by round
    links: LinkModel
    timing: Timing
    scheme: str
    deadline_s: float | None = None
    has_defence: bool = False

    @cached_property
    def is_one_machine(self) -> bool:
        """Whether all rows are on one machine, and nothing travels in any round."""
        return not any(up for up, _ in self.nbytes)


def training_speeds(links: LinkModel, n_devices: int, seed: int) -> list[float]:
    """Return how fast each device trains; 1 is the nominal speed."""
    if not links.speed_spread:
        return [1.0] * n_devices
    draws = rng_for(seed, Purpose.COMPUTE_SPEED).uniform(0, links.speed_spread, n_devices)
    return [float(1 / (1 + draw)) for draw in draws]


class LinkClock:
    """Arrival times. With serial uplinks a receiver takes one model at a time; small messages pass between them."""

    def __init__(self, links: LinkModel) -> None:
        self._links = links
        self._free_at: dict[int, float] = {}

    def arrival(self, now: float, destination: int, n_bytes: int, has_model: bool) -> float:
        """Return when a message of this size, sent now, is with its receiver."""
        transfer_s = n_bytes * 8 / self._links.bandwidth_bps
        if self._links.uplink == "parallel" or not has_model:
            return now + transfer_s + self._links.latency_s
        start = max(now, self._free_at.get(destination, 0.0))
        self._free_at[destination] = start + transfer_s
        return start + transfer_s + self._links.latency_s
