"""Devices on real sockets, one of them lost and one cut off: the independent checker finds no broken promise.

The checker (`tests/checker/history.py`) knows nothing of the protocol: it adds up the updates that devices kept.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import numpy as np
import safetensors.numpy
from safetensors import safe_open

from tests.checker.history import findings, read_run
from tests.net.nodes import fleet_of, held_back, small
from tolfl.learners import State

SPEC = small(rounds=12, timing="lan", min_devices=2)


def train(folder: Path) -> State:
    """Run four devices: one is killed in its third round, one is cut off for a while; return what they started from."""
    first: State = {}

    async def live() -> None:
        async with fleet_of(folder, SPEC) as fleet:
            for device in range(4):
                fleet.prepare(device, keep_updates=True)
            first.update(cast("State", fleet.nodes[0].device.record.state))
            gate = held_back(fleet.nodes[0], lambda index: index < 3)
            fleet.launch(*range(4))
            await fleet.until_round(3)
            await fleet.kill(3)
            await fleet.until(lambda: fleet.nodes[2].device.fleet.has_failed((3, 0)))
            for device, others in ((1, [0, 2]), (0, [1]), (2, [1])):
                await fleet.cut(device, others)
            await fleet.until(lambda: fleet.nodes[0].device.fleet.has_failed((1, 0)))
            gate.set()
            await fleet.until_round(5, [0, 2])
            for device in (0, 1, 2):
                await fleet.cut(device, [])
            await fleet.ends(0, 1, 2)

    asyncio.run(live())
    return first


def test_nothing_is_found_in_a_run_with_a_loss_and_a_cut_and_a_false_model_is(tmp_path: Path) -> None:
    first = train(tmp_path)
    clean = findings(read_run(tmp_path, first))

    path = tmp_path / "devices" / "2" / "round.safetensors"
    with safe_open(path, framework="numpy") as file:
        told, arrays = file.metadata(), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    false = {key: np.asarray(array * np.float32(1.01)) for key, array in arrays.items()}
    path.write_bytes(safetensors.numpy.save(false, told))

    assert clean == []
    assert findings(read_run(tmp_path, first)) != []
