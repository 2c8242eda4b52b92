"""Where a detector comes from: whose samples, how many rounds, who was lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec


class DeviceShare(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One device's part in a training."""

    name: str
    n_trained: int  #: samples it trained on
    n_held_back: int
    rounds: int  #: rounds that it contributed to
    is_survivor: bool  #: whether it was in the last round


class Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A device that was lost."""

    round: int | None  #: the first one without it
    device: str | None
    what: str


class Training(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One training of a fleet."""

    scheme: str
    model: str
    rounds: int
    n_samples: int  #: behind the model
    devices: tuple[DeviceShare, ...]
    events: tuple[Event, ...]
    ended: str
    notes: tuple[str, ...] = ()

    @property
    def survivors(self) -> tuple[str, ...]:
        """Who was alive in the end."""
        return tuple(device.name for device in self.devices if device.is_survivor)


def device_shares(
    names: Sequence[str], sizes: Sequence[tuple[int, int]], rounds: Sequence[int], last: Sequence[int], last_round: int
) -> tuple[DeviceShare, ...]:
    """Return each device's part, from its rows, how many rounds it was in, and in which one last (-1: in none)."""
    rows = zip(names, sizes, rounds, last, strict=True)
    return tuple(DeviceShare(name, *size, n_rounds, seen == last_round) for name, size, n_rounds, seen in rows)


def losses(
    names: Sequence[str], last: Sequence[int], last_round: int, stage: Callable[[int], tuple[str, int, int]]
) -> tuple[Event, ...]:
    """Return who was lost on the way, and where it was last heard of; earliest first.

    >>> losses(["a", "b", "c"], [2, 1, -1], 2, lambda round_index: ("scaling", round_index, 3))[1].what
    'lost; last heard of in scaling 1'
    """
    events = []
    for seen, name in sorted((seen, place) for place, seen in enumerate(last)):
        if seen < 0:
            events.append(Event(0, names[name], "never heard of"))
        elif seen < last_round:
            of_stage, inner, _ = stage(seen)
            events.append(Event(seen + 1, names[name], f"lost; last heard of in {of_stage} {inner}"))
    return tuple(events)
