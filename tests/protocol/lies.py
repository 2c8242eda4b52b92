"""What an enrolled liar may send: any message that decodes, in its own name, about anybody and anything."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from tests.protocol.world import Symbol, World, digest
from tolfl.core.device_set import DeviceSet
from tolfl.protocol.history import ClosedRound, Incarnation, Roster, Version
from tolfl.protocol.messages import (
    Ack,
    AnyMessage,
    Closed,
    Heartbeat,
    Join,
    Leave,
    Mean,
    Offer,
    Payload,
    Pull,
    Report,
    Want,
)

#: What the wire lets through at most (its bounds are the last numbers here).
_COUNTS = (0, 1, 2, 7, 2**20, 2**20 + 5, 2**31, 2**40, 2**61, 2**62 - 1)
_REVISIONS = (0, 1, 1, 2, 2**20, 2**31 - 1, 2**31, 2**32 - 1)
_REASONS = ("failed", "left", "late", "refused", "dropped")


class Liar:
    """Makes up messages of one device, from what there is in a world."""

    def __init__(self, world: World, device: int, rng: random.Random) -> None:
        self._world, self.device, self._rng = world, device, rng
        self._everybody = range(world.setting.n_devices)

    def messages(self) -> list[tuple[int, AnyMessage]]:
        """Return something for one device, or one name for something else to each."""
        others = [device for device in self._world.devices if device != self.device]
        if self._world.setting.is_liar_silent:
            return self._usurpation(others)
        if others and self._rng.random() < 0.15:
            return list(zip(others, self._equivocations(len(others)), strict=True))
        return [(self._rng.choice(others), self._message())] if others else []

    def _equivocations(self, n: int) -> list[Closed]:
        """Return the end of the run under one name, as another model or with another roster for each."""
        rng, base, rounds = self._rng, self._held(), self._world.setting.rounds
        version = Version(base.version.work + rng.choice((1, 1000)), rounds, 0, f"{rng.getrandbits(64):016x}")
        last = msgspec.structs.replace(base, version=version, is_over=False, included=DeviceSet(), n_samples=0)
        end = last.with_roster(base.roster, is_over=True)
        end = msgspec.structs.replace(end, version=msgspec.structs.replace(end.version, model=digest(end.state)))
        header = (self.device, self._own_incarnation(), end.version, frozenset[Incarnation]())
        if rng.random() < 0.5:
            ends = [msgspec.structs.replace(end, state=(("lie", place),)) for place in range(n)]
        else:
            ends = [msgspec.structs.replace(end, roster=Roster({place: 0})) for place in range(n)]
        return [Closed(*header, one) for one in ends]

    def _usurpation(self, others: list[int]) -> list[tuple[int, AnyMessage]]:
        """Return a record heavier than all, whose roster is itself and fewer than are left out, for one or for all."""
        rng, base, rounds = self._rng, self._held(), self._world.setting.rounds
        named = rng.sample(others, rng.randint(0, max(0, (len(others) - 2) // 2)))
        lives = {device: rng.choice((0, 0, 1)) + self._world.devices[device].incarnation for device in named}
        roster = Roster(dict(sorted({**lives, self.device: self._world.devices[self.device].incarnation}.items())))
        version = Version(2**30 * rounds, rng.randint(0, rounds - 1), 0, f"{rng.getrandbits(64):016x}")
        base = msgspec.structs.replace(base, version=version, is_over=False)
        total = Symbol(DeviceSet.of([self.device]), 1, (((self.device, version), 1),))
        record = base.after(total, {}, roster, base.state, digest(base.state))
        told = others if rng.random() < 0.5 else rng.sample(others, 1)
        header = (self.device, roster.incarnations[self.device], record.version, frozenset[Incarnation]())
        return [(device, Closed(*header, record)) for device in told]

    def _message(self) -> AnyMessage:
        """Return anything that decodes."""
        rng = self._rng
        record = self._record()
        version = record.version if rng.random() < 0.5 else self._version()
        header = (self.device, self._own_incarnation(), version, self._dead())
        what, included = rng.choice(list(Payload)), self._some(self._everybody)
        made: dict[str, AnyMessage] = {
            "Heartbeat": Heartbeat(*header),
            "Pull": Pull(*header),
            "Join": Join(*header),
            "Leave": Leave(*header),
            "Offer": Offer(*header, what, included),
            "Want": Want(*header, what, included),
            "Ack": Ack(*header, what, included),
            "Report": Report(*header, self._contribution([self.device], version), self._lives()),
            "Mean": Mean(*header, self._contribution(self._upstream(), version), self._missing(), self._lives()),
            "Closed": Closed(*header[:2], record.version, header[3], record),
        }
        weights = {"Heartbeat": 3, "Closed": 6, "Mean": 4, "Report": 3}
        return made[rng.choices(list(made), [weights.get(kind, 1) for kind in made])[0]]

    def _own_incarnation(self) -> int:
        """Of itself it may say anything; if it goes on as it should in the end, it must stay within reach."""
        present = self._world.devices[self.device].incarnation
        if self._world.setting.is_liar_gone and self._rng.random() < 0.1:
            return self._rng.choice(_COUNTS)
        return present

    def _held(self) -> ClosedRound:
        return self._rng.choice([state.record for state in self._world.devices.values()])

    def _version(self) -> Version:
        """Return a version that somebody holds, or one like it."""
        rng, version = self._rng, self._held().version
        if rng.random() < 0.6:
            return version
        rounds = self._world.setting.rounds
        return Version(
            max(0, version.work + rng.choice((0, 1, -1, *_COUNTS))) % 2**62,
            rng.randint(0, rounds),
            rng.choice((version.revision, *_REVISIONS)),
            rng.choice((version.history, f"{rng.getrandbits(64):016x}")),
            rng.choice((version.model, f"{rng.getrandbits(32):08x}")),
        )

    def _record(self) -> ClosedRound:
        """Return a closed round: held by somebody, made up by the rules, or against them."""
        rng, base = self._rng, self._held()
        if rng.random() < 0.2:
            return base
        if rng.random() < 0.5:
            made_up = self._version()
            base = msgspec.structs.replace(base, version=made_up, is_over=False)
        state = base.state if rng.random() < 0.3 else (("lie", rng.getrandbits(16)),)
        roster = rng.choice((base.roster, Roster(self._lives() or {self.device: 0})))
        if rng.random() < 0.5:
            total = self._contribution(self._some(self._everybody), base.version)
            record = base.after(total, self._missing(), roster, state, digest(state))
            if rng.random() < 0.5:  # as heavy as it likes
                work = rng.choice((*_COUNTS, record.version.round * 2**62 // (self._world.setting.rounds + 1)))
                record = msgspec.structs.replace(record, version=msgspec.structs.replace(record.version, work=work))
        else:
            record = msgspec.structs.replace(base, state=state).with_roster(roster, is_over=rng.random() < 0.5)
            record = msgspec.structs.replace(
                record, version=msgspec.structs.replace(record.version, model=digest(state))
            )
        if rng.random() < 0.2:
            record = msgspec.structs.replace(record, is_over=not record.is_over)
        if rng.random() < 0.1:  # another model under the same name
            record = msgspec.structs.replace(record, state=(("other", rng.getrandbits(16)),))
        return record

    def _lives(self) -> dict[int, int]:
        devices = sorted(self._some(self._everybody)) if self._rng.random() < 0.5 else []
        return {device: self._incarnation_of(device) for device in devices}

    def _incarnation_of(self, device: int) -> int:
        state = self._world.devices.get(device)
        present = state.incarnation if state is not None else 0
        return self._rng.choice((present, present, present + 1, present + 2**20, *_COUNTS))

    def _dead(self) -> frozenset[Incarnation]:
        if self._rng.random() < 0.5:
            return frozenset()
        return frozenset((device, self._incarnation_of(device)) for device in self._some(self._everybody))

    def _some(self, devices: Sequence[int]) -> DeviceSet:
        return DeviceSet.of(device for device in devices if self._rng.random() < 0.5)

    def _upstream(self) -> DeviceSet:
        """Return devices up to the own cluster: the wire lets through no others."""
        cluster_of = self._world.rules.topology.cluster_of
        return self._some([device for device in self._everybody if cluster_of[device] <= cluster_of[self.device]])

    def _contribution(self, devices: Sequence[int] | DeviceSet, version: Version) -> Symbol:
        counts = tuple(((device, version), 1) for device in devices)
        return Symbol(DeviceSet.of(devices), self._rng.choice((1, 3, *_COUNTS)), counts)

    def _missing(self) -> dict[int, str]:
        return {device: self._rng.choice(_REASONS) for device in self._some(self._everybody)}
