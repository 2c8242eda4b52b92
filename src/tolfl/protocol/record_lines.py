"""From what a device announces to the lines of the run records, the same for both drivers.

A driver adds what only it knows: the time, who wrote the line, the loss, the traffic and how long a round stalled.
"""

from __future__ import annotations

from tolfl.core.records import Joined, RosterChanged, RoundClosed, TakenOver
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
