"""Where a detector comes from: whose samples, how many rounds, what failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from tolfl.core.records import AnyRecord, FailureHappened, RoundClosed, RunEnded, TakenOver


class DeviceShare(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One device's part in a training."""

    name: str
    n_trained: int  #: samples it trained on
    n_held_back: int
    rounds: int  #: rounds whose model has its samples
    is_survivor: bool


class Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A failure, or a device that took over as head."""

    round: int | None
    device: str | None
    what: str


class Training(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One training: `fit`, or one `fit_more` after it."""

    scheme: str
    model: str
    rounds: int
    n_samples: int  #: in the last round
    devices: tuple[DeviceShare, ...]
    events: tuple[Event, ...]
    ended: str
    notes: tuple[str, ...] = ()

    @property
    def survivors(self) -> tuple[str, ...]:
        """Who was alive in the end."""
        return tuple(device.name for device in self.devices if device.is_survivor)


def training_of(
    records: Sequence[AnyRecord],
    names: Sequence[str],
    sizes: Sequence[tuple[int, int]],
    model: str,
    scheme: str,
    notes: Sequence[str] = (),
) -> Training:
    """Return what the records of a run say; `sizes` are trained and held-back samples of each device."""
    closed = [record for record in records if isinstance(record, RoundClosed)]
    rounds = Counter(device for record in closed for device in record.included)
    ending = next((record for record in reversed(records) if isinstance(record, RunEnded)), None)
    survivors = ending.survivors if ending else ()
    devices = tuple(
        DeviceShare(name, *sizes[device], rounds[device], device in survivors) for device, name in enumerate(names)
    )
    return Training(
        scheme=scheme,
        model=model,
        rounds=max(((record.round or 0) + 1 for record in closed), default=0),
        n_samples=closed[-1].n_samples if closed else 0,
        devices=devices,
        events=tuple(_events(records, names)),
        ended=ending.reason if ending else "",
        notes=tuple(notes),
    )


def _events(records: Sequence[AnyRecord], names: Sequence[str]) -> list[Event]:
    events = []
    for record in records:
        if isinstance(record, FailureHappened | TakenOver):
            device = None if record.device is None else names[record.device]
            what = record.what if isinstance(record, FailureHappened) else f"took over from {names[record.previous]}"
            events.append(Event(record.round, device, what))
    return events
