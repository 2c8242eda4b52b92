"""Regions: who sends to whom, seeds, and what the published ones send."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tolfl.core.errors import SpecError
from tolfl.signals.draws import Scenario, Use, stream
from tolfl.signals.packets import PACKET, Packets, WindowGrid
from tolfl.signals.regions import Region, RegionNode, default_regions, published_regions, simulate, star
from tolfl.signals.traffic import DAY_S, Bursty, Hawkes

REGION = star(1, [Bursty(), Hawkes(0.3), Bursty()])
GOLDEN_TIMES = [4.0348119213310785, 4.073006717924184, 4.13165786591212]
GOLDEN_BYTES = [722 + 42, 1500 + 42, 546 + 42]


def bytes_of(packets: Packets) -> tuple[bytes, ...]:
    return tuple(packets[name].tobytes() for name in PACKET.names or ())


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    assert bytes_of(simulate(REGION, DAY_S, 4)) == bytes_of(simulate(REGION, DAY_S, 4))
    assert bytes_of(simulate(REGION, DAY_S, 4)) != bytes_of(simulate(REGION, DAY_S, 5))


def test_the_first_packets_of_a_seed_are_these() -> None:
    packets = simulate(REGION, 60.0, 0)

    # Stored results depend on these draws: if they change, say so in the change log.
    assert packets["time_s"][:3] == pytest.approx(GOLDEN_TIMES, abs=1e-9)
    assert packets["wire_bytes"][:3].tolist() == GOLDEN_BYTES


def test_a_node_does_not_depend_on_the_other_nodes() -> None:
    quiet = replace(REGION, nodes=(replace(REGION.nodes[0], traffic=None), *REGION.nodes[1:]))
    whole, without = simulate(REGION, DAY_S, 0), simulate(quiet, DAY_S, 0)

    assert (without["source"] != 0).all()
    assert bytes_of(whole[whole["source"] != 0]) == bytes_of(without)


def test_nodes_regions_and_scenarios_have_draws_of_their_own() -> None:
    draws = {
        stream(0, use, region=region, node=node, scenario=scenario).integers(2**62)
        for use in Use
        for region in range(5)
        for node in range(5)
        for scenario in Scenario
    }

    assert len(draws) == len(Use) * 5 * 5 * len(Scenario)


def test_a_region_beyond_its_field_is_refused_since_it_would_share_draws() -> None:
    with pytest.raises(ValueError, match="region 1024"):
        stream(0, Use.TRAFFIC, region=1024)


def test_packets_come_in_order_and_devices_send_to_the_router() -> None:
    packets = simulate(REGION, DAY_S, 0)

    assert (np.diff(packets["time_s"]) >= 0).all()
    assert packets["time_s"][-1] < DAY_S
    assert set(packets["source"].tolist()) == {0, 1, 2, 3}
    assert (packets["destination"][packets["source"] != REGION.router] == REGION.router).all()
    assert (packets["destination"][packets["source"] == REGION.router] == 0).all()


def test_packets_are_43_to_1542_bytes_long_on_the_wire() -> None:
    wire = simulate(REGION, 7 * DAY_S, 0)["wire_bytes"]

    assert (wire.min(), wire.max()) == (43, 1542)


def test_a_grid_keeps_the_packets_inside_its_windows_and_no_others() -> None:
    grid = WindowGrid(2.0, 30.0)
    whole = simulate(REGION, DAY_S, 1)
    since = whole["time_s"] - whole["time_s"][0]

    assert bytes_of(simulate(REGION, DAY_S, 1, grid=grid)) == bytes_of(whole[since % 30.0 < 2.0])


def test_a_silent_region_has_no_packets() -> None:
    silent = Region(1, ("a",), (RegionNode(0, 0, None),), router=0)

    assert len(simulate(silent, DAY_S, 0, grid=WindowGrid())) == 0


def test_a_simulation_that_would_fill_the_memory_is_refused() -> None:
    flood = star(1, [Hawkes(1e4)])

    with pytest.raises(SpecError, match=r"region 1 asks for about 1.7e\+09 packets; simulate a shorter time"):
        simulate(flood, DAY_S, 0)


def test_a_higher_rate_leaves_the_router_alone() -> None:
    busy = REGION.with_rate(8.0)

    assert busy.nodes[-1] == REGION.nodes[-1]
    assert busy.nodes[0].traffic == Bursty(inter_s=(1 / 8, 15.0))
    assert busy.nodes[1].traffic == Hawkes(2.4)


def test_the_regions_have_the_devices_of_the_paper() -> None:
    assert [len(region.nodes) for region in published_regions()] == [11, 21, 16, 6]
    assert [len(region.nodes) for region in default_regions()] == [11, 21, 16, 11]
    assert all(len(set(region.addresses)) == len(region.nodes) for region in default_regions())
