"""Cables that are out: by plan, by command, and plugged in again."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.net.nodes import fleet_of, held_back, small
from tolfl.core.failures import Cut, FailurePlan

DEVICES = st.integers(0, 5)
ROUNDS = st.integers(0, 9)


@st.composite
def planned(draw: st.DrawFn) -> Cut:
    sides = draw(st.lists(st.integers(0, 2), min_size=6, max_size=6))
    first = draw(ROUNDS)
    heals_at = draw(st.none() | st.integers(first + 1, 12))
    one, other = ([device for device in range(6) if sides[device] == side] for side in (0, 1))
    return Cut(tuple(one), tuple(other), first, heals_at)


@given(st.lists(planned(), max_size=3), DEVICES, DEVICES, ROUNDS)
def test_a_peer_is_cut_off_exactly_while_a_cut_lasts_and_both_sides_agree(
    cuts: list[Cut], device: int, peer: int, index: int
) -> None:
    plan = FailurePlan(cuts=tuple(cuts))
    is_planned = any(
        cut.separates(device, peer) and cut.round_index <= index < (99 if cut.heals_at is None else cut.heals_at)
        for cut in cuts
    )

    assert plan.is_cut(device, peer, index) == plan.is_cut(peer, device, index) == is_planned


def test_a_cut_by_command_is_noticed_and_healed(tmp_path: Path) -> None:
    async def live() -> None:
        async with fleet_of(tmp_path, small(rounds=12)) as fleet:
            gate = held_back(fleet.prepare(0), lambda index: index < 2)
            fleet.launch(0, 1, 2, 3)
            await fleet.until_round(2)
            await asyncio.gather(fleet.cut(3, [0, 1, 2]), *(fleet.cut(device, [3]) for device in range(3)))
            await fleet.until(lambda: fleet.nodes[2].device.fleet.has_failed((3, 0)))
            await fleet.until(lambda: fleet.nodes[3].device.fleet.has_failed((2, 0)))
            await asyncio.gather(*(fleet.cut(device, []) for device in range(4)))
            await fleet.until(lambda: 3 in fleet.nodes[2].device.fleet.joiners)  # the closer lets it in
            gate.set()
            reasons = await fleet.ends(0, 1, 2, 3)

            assert reasons == ["over"] * 4
            assert len(fleet.histories()) == 1
            assert fleet.closed()[-1].included == (0, 1, 2, 3)
            assert [line.round for line in fleet.closed()] == list(range(12))

    asyncio.run(live())
