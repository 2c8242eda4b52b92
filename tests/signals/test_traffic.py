"""Laws of the three sources, with fixed seeds and bounds of three standard deviations or more; regions and seeds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tolfl.core.errors import SpecError
from tolfl.signals.traffic import (
    DAY_S,
    WEEK_S,
    Bursty,
    Hawkes,
    PeriodicHawkes,
    Region,
    RegionNode,
    Scenario,
    Traffic,
    Transmissions,
    Use,
    default_regions,
    published_regions,
    simulate,
    star,
    stream,
)
from tolfl.signals.windows import PACKET, Packets, WindowGrid

SOURCES: list[Traffic] = [Bursty(), Hawkes(0.3), PeriodicHawkes()]


def drawn(traffic: Traffic, seed: int = 0, duration_s: float = WEEK_S) -> Transmissions:
    return traffic.transmissions(np.random.default_rng(seed), duration_s)


def silences(sent: Transmissions) -> NDArray[np.float64]:
    """Return the time from the end of each packet to the start of the next."""
    return np.diff(sent.start_s) - 8e-6 * sent.payload_bytes[:-1]


def test_bursts_have_one_to_five_packets_all_lengths_alike() -> None:
    is_new = silences(drawn(Bursty())) > 0.5
    lengths = np.diff(np.flatnonzero(is_new))

    counts = np.bincount(lengths, minlength=6)
    assert counts[0] == 0
    assert len(counts) == 6
    assert np.abs(counts[1:] - len(lengths) / 5).max() < 4 * np.sqrt(len(lengths) * 0.2 * 0.8)


def test_gaps_count_from_the_end_of_the_packet_before() -> None:
    gaps = silences(drawn(Bursty(inter_s=(1.0, 120.0), intra_s=(0.01, 0.07))))
    inside, between = gaps[gaps < 0.5], gaps[gaps >= 0.5]

    assert inside.min() >= 0.01 - 1e-9
    assert inside.max() <= 0.07 + 1e-9
    assert inside.mean() == pytest.approx(0.04, abs=0.0005)
    assert between.min() >= 1.0
    assert between.max() <= 120.0
    assert between.mean() == pytest.approx(60.5, abs=1.5)


def test_payloads_are_uniform_from_1_to_1500() -> None:
    payload = drawn(Hawkes(0.3)).payload_bytes

    assert (payload.min(), payload.max()) == (1, 1500)
    assert payload.mean() == pytest.approx(750.5, abs=4 * 433 / np.sqrt(len(payload)))


@pytest.mark.parametrize("base", [0.05, 0.15, 0.3])
def test_a_hawkes_process_sends_twice_its_base_rate(base: float) -> None:
    n_packets = len(drawn(Hawkes(base), seed=3).start_s)

    # Variance of the count over a long time T: mu T / (1 - alpha)^3.
    assert abs(n_packets - 2 * base * WEEK_S) < 3 * np.sqrt(8 * base * WEEK_S)


def test_a_hawkes_process_comes_in_clusters() -> None:
    times = drawn(Hawkes(0.15), seed=1, duration_s=4 * WEEK_S).start_s
    counts = np.bincount((times / 600).astype(int))

    # Variance over mean of long windows is 1 / (1 - alpha)^2 = 4; a Poisson process has 1.
    assert counts.var() / counts.mean() == pytest.approx(4, rel=0.1)
    # The first second after a packet: its own children 0.5 (1 - 1/e) and the rest of its family on top of the rate 0.3.
    after = np.searchsorted(times, times + 1.0) - np.arange(1, len(times) + 1)
    assert after.mean() > 0.3 + 0.5 * (1 - np.exp(-1))


def test_the_base_rate_peaks_at_18_and_rests_at_6() -> None:
    source = PeriodicHawkes()
    hours = np.linspace(0.0, 23 * 3600.0, 24)
    monday, saturday, later = (
        np.array([source.base_hz(time_s) for time_s in hours + shift]) for shift in (0.0, 5 * DAY_S, WEEK_S)
    )

    assert (int(monday.argmax()), int(monday.argmin())) == (18, 6)
    assert (monday.min(), monday.max()) == pytest.approx((0.021, 0.061))
    assert saturday.max() == pytest.approx(0.041)
    assert later == pytest.approx(monday)


@pytest.mark.parametrize(("factor", "ratio"), [(0.5, 31 / 41), (1.0, 1.0), (2.0, 61 / 41)])
def test_the_weekend_factor_acts_on_saturday_and_sunday(factor: float, ratio: float) -> None:
    source = PeriodicHawkes(factor)
    times = np.concatenate([drawn(source, seed).start_s for seed in range(8)])

    days = np.bincount((times / DAY_S).astype(int))
    assert days[5:].mean() / days[:5].mean() == pytest.approx(ratio, rel=0.05)


def test_blocks_of_600_s_send_a_little_more_than_twice_the_base_rate() -> None:
    counts = [len(drawn(PeriodicHawkes(1.0), seed).start_s) for seed in range(8)]

    assert 1.02 < np.mean(counts) / (2 * 0.041 * WEEK_S) < 1.07


def one_by_one(rng: np.random.Generator, base: float) -> Iterator[float]:
    """Yield a source in blocks, thinning candidates one by one (Ogata 1981): slow, and nothing in common with ours."""
    now = 0.0
    while True:
        start, excitation, at, is_empty = now, 0.0, 0.0, True
        while True:
            bound = base + excitation
            wait = rng.exponential(1 / bound)
            at, excitation = at + wait, excitation * np.exp(-wait)
            if at >= 600.0:
                break
            if rng.uniform(0, bound) < base + excitation:
                excitation += 0.5
                is_empty = False
                sent = max(now, start + at)
                yield sent
                now = sent + rng.integers(1, 1501) * 8e-6
        if is_empty:
            now = start + 600.0


def test_blocks_have_the_law_of_a_simulation_packet_by_packet() -> None:
    flat = PeriodicHawkes(0.0, scale=1.0)  # a weekend of factor 0: a constant base rate of 0.021
    sent = drawn(flat, seed=5, duration_s=WEEK_S).start_s
    ours = np.diff(sent[sent >= 5 * DAY_S])
    rng = np.random.default_rng(8)
    slow = one_by_one(rng, 0.021)
    theirs = np.diff([next(slow) for _ in range(20_000)])

    for quantile in (0.1, 0.25, 0.5, 0.75, 0.9):
        share = (ours < np.quantile(theirs, quantile)).mean()
        assert share == pytest.approx(quantile, abs=4 * np.sqrt(0.25 / len(ours)))
    assert ours.mean() == pytest.approx(theirs.mean(), rel=0.06)


@pytest.mark.parametrize("source", SOURCES)
def test_a_node_sends_one_packet_at_a_time(source: Traffic) -> None:
    assert silences(drawn(source.scaled(20), duration_s=DAY_S)).min() > -1e-9


@pytest.mark.parametrize("source", SOURCES)
def test_a_longer_simulation_starts_with_the_shorter_one(source: Traffic) -> None:
    short, long = drawn(source, duration_s=DAY_S), drawn(source, duration_s=2 * DAY_S)

    n_packets = len(short.start_s)
    assert short.start_s[-1] < DAY_S <= long.start_s[n_packets]
    assert np.array_equal(short.start_s, long.start_s[:n_packets])
    assert np.array_equal(short.payload_bytes, long.payload_bytes[:n_packets])


@pytest.mark.parametrize("source", [Bursty(), Hawkes(0.3)])
def test_a_busier_source_sends_as_much_more_as_it_says(source: Traffic) -> None:
    once, often = (len(drawn(source.scaled(factor)).start_s) for factor in (1.0, 4.0))

    assert often / once == pytest.approx(4.0, rel=0.03)


@pytest.mark.parametrize("source", [Bursty(), Bursty((1.0, 10.0)), Hawkes(0.3)])
def test_the_mean_rate_is_the_mean_rate(source: Traffic) -> None:
    assert len(drawn(source).start_s) / WEEK_S == pytest.approx(source.mean_rate_hz, rel=0.02)


@pytest.mark.parametrize("source", [*SOURCES, Hawkes(1e-9)])
def test_nothing_is_sent_in_no_time(source: Traffic) -> None:
    assert len(drawn(source, duration_s=0.0).start_s) == 0


# -- regions ----------------------------------------------------------------------------------------------------------

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
