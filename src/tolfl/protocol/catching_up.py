"""What a device knows of others while it is behind them, or outside with everybody else (rules 8 and 10)."""

from __future__ import annotations

from collections.abc import Iterator

from tolfl.core.topology import Topology
from tolfl.protocol.history import Roster, Version
from tolfl.protocol.membership import Membership
from tolfl.protocol.messages import AnyMessage


class Ahead:
    """Messages of newer versions, kept until caught up; whom to ask for the record, once per version."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, type], AnyMessage] = {}
        self._asked_for: Version | None = None

    def keep(self, message: AnyMessage) -> None:
        """Keep the last message of each kind from each sender."""
        self._kept[message.sender, type(message)] = message

    def take_all(self) -> list[AnyMessage]:
        """Return what was kept and keep it no longer."""
        kept, self._kept = list(self._kept.values()), {}
        return kept

    def ask_again(self) -> None:
        """Forget that a record was asked for: the one who was asked may be dead."""
        self._asked_for = None

    def to_ask(self, fleet: Membership) -> Iterator[int]:
        """Return live senders of versions that nobody has been asked for yet."""
        for message in list(self._kept.values()):
            is_new = self._asked_for is None or self._asked_for < message.version
            if is_new and not fleet.is_buried((message.sender, message.incarnation)):
                self._asked_for = message.version
                yield message.sender

    def clone(self) -> Ahead:
        """Return an independent copy."""
        other = Ahead()
        other._kept, other._asked_for = dict(self._kept), self._asked_for
        return other


class Gathering:
    """Who is out there, for when nobody is inside a roster: the first on the ladder opens one (rule 10)."""

    def __init__(self) -> None:
        self._heard: dict[int, tuple[int, Version]] = {}
        self._patience = 0

    def hear(self, message: AnyMessage) -> None:
        """Note that somebody lives."""
        self._heard[message.sender] = (message.incarnation, message.version)

    def roster_to_open(self, fleet: Membership, version: Version, topology: Topology) -> Roster | None:
        """Return the roster to open, if it falls to this device and it has listened for a heartbeat or more."""
        self._patience += 1
        alive = {device: heard for device, heard in self._heard.items() if not fleet.is_buried((device, heard[0]))}
        lives = {device: life for device, (life, _) in alive.items()} | {fleet.id: fleet.incarnation}
        is_first = topology.heads(set(lives))[-1] == fleet.id
        has_newest = all(heard <= version for _, heard in alive.values())
        if not (is_first and has_newest and self._patience > 1):
            return None
        self._patience = 0
        return Roster(dict(sorted(lives.items())))

    def clone(self) -> Gathering:
        """Return an independent copy."""
        other = Gathering()
        other._heard, other._patience = dict(self._heard), self._patience
        return other
