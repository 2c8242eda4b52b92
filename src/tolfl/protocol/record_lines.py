"""Run records from what a device announces, the same for both drivers.

A driver adds what only it knows: the time, who wrote the line, the loss, the traffic and how long a round stalled.
"""

from __future__ import annotations

from collections.abc import Sequence

from tolfl.core.records import Joined, RosterChanged, RoundAdopted, RoundClosed, TakenOver, stage_of
from tolfl.core.topology import Topology
from tolfl.learners.learner import Account
from tolfl.protocol.events import Announce, TakeOver
from tolfl.protocol.history import ClosedRound, Version


def joined_lines(announced: Announce, time_s: float) -> list[Joined]:
    """Return a line for each device that is in the roster from here on."""
    version = announced.record.version
    return [
        Joined(time_s=time_s, device=device, round=version.round, version=str(version), incarnation=incarnation)
        for device, incarnation in announced.joined
    ]


def roster_line(record: ClosedRound, time_s: float, device: int) -> RosterChanged:
    """Return the line of a record without an update."""
    return RosterChanged(
        time_s=time_s,
        device=device,
        round=record.version.round,
        version=str(record.version),
        parent=record.parent,
        devices=tuple(record.roster.incarnations),
        is_over=record.is_over,
    )


def round_line(
    record: ClosedRound,
    heads: tuple[int, ...],
    time_s: float,
    device: int,
    account: Account,
    stall_s: float,
    n_left_out: int = 0,
) -> RoundClosed:
    """Return the line of a closed round, without its traffic: only a driver that sees all messages can count them.

    `n_left_out`: the samples of those whose contribution is in no model.
    """
    missing = {**record.missing, **account.left_out}
    return RoundClosed(
        time_s=time_s,
        device=device,
        round=record.version.round - 1,
        version=str(record.version),
        parent=record.parent,
        included=tuple(device for device in record.included if device not in account.left_out),
        missing={str(absent): reason for absent, reason in sorted(missing.items())},
        n_samples=record.n_samples - n_left_out,
        loss=account.loss,
        bytes=0,
        messages={},
        heads=heads,
        stall_s=stall_s,
        groups=account.groups,
        stage=account.stage,
        digest=account.digest,
        metrics=account.metrics,
        present=account.present,
    )


def adopted_line(
    record: ClosedRound,
    clusters: tuple[tuple[int, ...], ...],
    stages: Sequence[tuple[str, int]],
    time_s: float,
    device: int,
    stall_s: float,
) -> RoundAdopted:
    """Return the line of a device that goes on from what another one closed.

    Who closed it does not travel: the first live device of a cluster is its head, and the last head closes the round.
    """
    round_index = max(0, record.version.round - 1)
    return RoundAdopted(
        time_s=time_s,
        device=device,
        round=round_index if record.included else record.version.round,
        version=str(record.version),
        parent=record.parent,
        included=tuple(record.included),
        missing={str(absent): reason for absent, reason in sorted(record.missing.items())},
        n_samples=record.n_samples,
        heads=tuple(Topology(clusters).heads(record.included or record.roster.incarnations)),
        stall_s=stall_s,
        loss=record.loss,
        devices=tuple(record.roster.incarnations),
        is_over=record.is_over,
        stage=stage_of(stages, round_index)[0],
    )


def takeover_line(effect: TakeOver, version: Version, time_s: float, device: int) -> TakenOver:
    """Return the line of a device that is the head of its cluster from here on."""
    return TakenOver(
        time_s=time_s,
        device=device,
        round=version.round,
        version=str(version),
        cluster=effect.cluster,
        previous=effect.previous,
    )
