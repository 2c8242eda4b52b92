"""What a device says of itself and of its peers when it is asked."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from tolfl.net.wire import DeviceLife, PeerStatus, StatusReply

if TYPE_CHECKING:
    from tolfl.net.node import Node


#: Why a peer sends a device away, where only a person can put it right.
STRANGERS = ("stranger", "taken", "wire version")


def role_of(node: Node) -> str:
    """Return what a device does at the moment."""
    if node.device.stopped is not None:
        return "stopped"
    # Whoever comes must not take it for a fleet that trains.
    return node.device.role if node.has_begun else "waiting"


def stranger_sentence(own: int, peer: int, kind: str) -> str:
    """Return what an operator should know of a peer that does not count this device among its own."""
    if kind == "taken":
        return (
            f"device {peer} answers, but is connected to another process that is device {own}, too: give each device "
            "an id, a certificate and a state folder of its own"
        )
    if kind == "wire version":
        return f"device {peer} answers, but speaks another version of the wire: run the same version of tolfl on both"
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
        n_samples=node.n_samples,
        roster=tuple(DeviceLife(*life) for life in sorted(fleet.roster.lives)),
        dead=tuple(DeviceLife(*life) for life in sorted(fleet.dead)),
        peers=tuple(_peer(node, peer) for peer in sorted(node.addresses) if peer != node.id),
        refused=dict(node.links.refused + Counter(shape=node.n_misshapen)),
        stopped=device.stopped or "",
        trouble=_trouble(node),
        running_s=time.monotonic() - node.began_s,
        bytes_sent=node.bytes_sent,
        messages_sent=node.n_sent,
        stages=node.learner.all_stages(),
    )


def _trouble(node: Node) -> str:
    strangers = "; ".join(sentence for _, sentence in sorted(node.strangers.items()))
    return node.writer.trouble or node.log.trouble or node.credentials.trouble or strangers


def _peer(node: Node, peer: int) -> PeerStatus:
    return PeerStatus(
        device=peer,
        address=node.addresses[peer],
        is_connected=peer in node.links.connected,
        silent_s=node.detector.silent_s(peer),
    )
