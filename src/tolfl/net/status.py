"""What a device says of itself and of its peers when it is asked."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from tolfl.net.wire import DeviceLife, PeerStatus, StatusReply

if TYPE_CHECKING:
    from tolfl.net.node import Node


def role_of(node: Node) -> str:
    """Return what a device does at the moment."""
    if node.device.stopped is not None:
        return "stopped"
    # Whoever comes must not take it for a fleet that trains.
    return node.device.role if node.has_begun else "waiting"


def stranger_sentence(peer: int) -> str:
    """Return what an operator should know of a peer that does not count this device among its own."""
    return (
        f"device {peer} answers, but belongs to another fleet or run: compare the specification, [learn], the file of "
        "the learner and the version of tolfl on both"
    )


def status_of(node: Node) -> StatusReply:
    """Return what there is to know."""
    device, fleet = node.device, node.device.fleet
    return StatusReply(
        device=device.id,
        incarnation=device.incarnation,
        fleet=node.fleet,
        version=device.version,
        rounds=node.learner.rounds,
        role=role_of(node),
        cluster=fleet.cluster,
        loss=node.loss,
        n_samples=node.setting.n_samples,
        roster=tuple(DeviceLife(*life) for life in sorted(fleet.roster.lives)),
        dead=tuple(DeviceLife(*life) for life in sorted(fleet.dead)),
        peers=tuple(_peer(node, peer) for peer in sorted(node.addresses) if peer != node.id),
        refused=dict(node.server.refused + Counter(shape=node.n_misshapen)),
        stopped=device.stopped or "",
        trouble=node.keeper.trouble or node.diary.trouble or "; ".join(map(stranger_sentence, sorted(node.strangers))),
        running_s=time.monotonic() - node.began_s,
        bytes_sent=node.outbox.bytes_sent,
        messages_sent=node.outbox.n_sent,
        stages=node.learner.all_stages(),
    )


def _peer(node: Node, peer: int) -> PeerStatus:
    link = node.outbox.links.get(peer)
    return PeerStatus(
        device=peer,
        address=node.addresses[peer],
        is_connected=link is not None and link.is_connected,
        silent_s=node.detector.silent_s(peer),
    )
