"""The laws of the three sources, with fixed seeds and bounds of three standard deviations or more."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from tolfl.signals.traffic import (
    DAY_S,
    WEEK_S,
    Bursty,
    Hawkes,
    PeriodicHawkes,
    Traffic,
    Transmissions,
)

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
