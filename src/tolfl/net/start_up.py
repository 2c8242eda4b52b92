"""Coming to a fleet: finding the others, and waiting for them a little before the first round."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tolfl.net.node import Node

_PAUSE_S = 0.1


async def wait_for_peers(node: Node) -> None:
    """Return when a device should begin.

    That is when all others are connected; when somebody trains already, who has given up those that are not there; when
    enough are there and nobody new has come for a while; or when it has taken too long.
    """
    config, all_others = node.config, set(node.limits.topology.cluster_of) - {node.id}
    now_s = asyncio.get_running_loop().time
    there: set[int] = set()
    last_came_s = now_s()
    with suppress(TimeoutError):
        async with asyncio.timeout(config.start_timeout_s):
            while not (node.is_over or node.is_fleet_training or all_others - node.absent <= there):
                others = all_others - node.absent
                node.links.find(config.seeds)
                node.links.pass_on_addresses()
                for peer in sorted(others & node.addresses.keys()):
                    node.links.connect(peer)
                if not node.links.connected.keys() <= there:
                    last_came_s = now_s()
                there = set(node.links.connected)
                is_enough = len(there) + 1 >= node.rules.min_devices
                if is_enough and now_s() - last_came_s >= config.start_quiet_s:
                    return
                await asyncio.sleep(_PAUSE_S if others - there else 0)
