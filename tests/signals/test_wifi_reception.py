"""Frames through a channel of three echoes at 30 dB, and back to bytes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.signals.wifi_receiver import NotReceivedError, Received, frames_of, receive
from tolfl.signals.wifi import data_mpdu, legacy_frame
from tolfl.signals.wifi_vht import ampdu, vht_frame

WIDTHS = [20, 40, 80, 160]
ALL = [(width, mcs, gi) for width in WIDTHS for mcs in range(10) for gi in ("long", "short") if (width, mcs) != (20, 9)]
LEGACY_RATES = [6, 9, 12, 18, 24, 36, 48, 54]
SNR_DB = 30
TAPS = np.array([1, 0.35j, -0.2 + 0.1j])
DELAYS_US = (0.0, 0.1, 0.25)
ADDRESS = bytes.fromhex("020000000001")


def heard(frame: np.ndarray, width: int, rng: np.random.Generator, snr_db: float = SNR_DB) -> np.ndarray:
    """Return a frame after echoes of random phases, a carrier offset and noise, with silence around it."""
    taps = TAPS * np.exp(2j * np.pi * rng.uniform(size=len(TAPS))) / np.linalg.norm(TAPS)
    readings = np.zeros(len(frame) + 600, np.complex128)
    begin = int(rng.integers(0, 300))
    for tap, delay_us in zip(taps, DELAYS_US, strict=True):
        at = begin + round(delay_us * width)
        readings[at : at + len(frame)] += tap * frame
    offset_hz = rng.uniform(-40e3, 40e3)
    readings *= np.exp(2j * np.pi * offset_hz / (width * 1e6) * np.arange(len(readings)))
    noise = rng.standard_normal((2, len(readings))) / np.sqrt(2)
    return np.asarray(readings + 10 ** (-snr_db / 20) * (noise[0] + 1j * noise[1]))


def sent_and_received(rng: np.random.Generator, case: tuple[int, int, str], n_bytes: int) -> tuple[bytes, Received]:
    width, mcs, gi = case
    mpdu = data_mpdu(rng.bytes(n_bytes), ADDRESS, ADDRESS, ADDRESS)
    seed, window_s = int(rng.integers(1, 128)), float(rng.choice([0.0, 100e-9]))
    frame = vht_frame(ampdu([mpdu]), width, mcs, short_gi=gi == "short", seed=seed, window_s=window_s)
    return mpdu, receive(heard(frame, width, rng), width)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id="-".join(map(str, case)), marks=() if i % 4 == 0 else pytest.mark.slow)
        for i, case in enumerate(ALL)
    ],
)
def test_a_vht_frame_arrives(case: tuple[int, int, str]) -> None:
    rng = np.random.default_rng([*case[:2], len(case[2])])
    mpdu, received = sent_and_received(rng, case, n_bytes=150)

    assert frames_of(received.psdu) == [mpdu[:-4]]  # and the check sequence is right
    assert (received.bandwidth_mhz, received.mcs, received.short_gi) == (case[0], case[1], case[2] == "short")
    assert received.sig_b_bytes == len(ampdu([mpdu]))


@pytest.mark.parametrize("rate_mbps", LEGACY_RATES)
def test_a_legacy_frame_arrives(rate_mbps: int) -> None:
    rng = np.random.default_rng(rate_mbps)
    mpdu = data_mpdu(rng.bytes(200), ADDRESS, ADDRESS, ADDRESS)
    received = receive(heard(legacy_frame(mpdu, rate_mbps, seed=41), 20, rng))

    assert received == Received(mpdu, len(mpdu), rate_mbps)


@pytest.mark.parametrize("n_symbols", range(7, 13))
def test_a_short_guard_interval_leaves_no_doubt_about_the_number_of_symbols(n_symbols: int) -> None:
    # Without the bit for counts that end in 9, nine symbols would last as long as ten.
    psdu = bytes((n_symbols * 52 - 22) // 8)
    received = receive(np.pad(vht_frame(psdu, 20, 1, short_gi=True), 100), 20)

    assert len(received.psdu) == len(psdu)


def random_frames(rng: np.random.Generator, n_frames: int) -> int:
    """Return how many of so many random frames arrived."""
    arrived = 0
    for _ in range(n_frames):
        n_bytes = int(rng.integers(1, 300))
        if rng.uniform() < 0.25:
            mpdu = data_mpdu(rng.bytes(n_bytes), ADDRESS, ADDRESS, ADDRESS)
            frame = legacy_frame(mpdu, int(rng.choice(LEGACY_RATES)), seed=int(rng.integers(1, 128)))
            arrived += receive(heard(frame, 20, rng)).psdu == mpdu
        else:
            mpdu, received = sent_and_received(rng, ALL[rng.integers(len(ALL))], n_bytes)
            arrived += frames_of(received.psdu) == [mpdu[:-4]]
    return arrived


def test_fifty_random_frames_arrive() -> None:
    assert random_frames(np.random.default_rng(50), 50) == 50


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_thousand_random_frames_arrive() -> None:
    assert random_frames(np.random.default_rng(1000), 1000) == 1000


@pytest.mark.parametrize(
    ("start_us", "field"), [(16, "L-SIG"), (20, "SIG-A"), (36, "SIG-B")], ids=["l-sig", "sig-a", "sig-b"]
)
def test_a_damaged_signal_field_is_noticed(start_us: int, field: str) -> None:
    frame = vht_frame(ampdu([data_mpdu(b"text", ADDRESS, ADDRESS, ADDRESS)]), 40, 2)
    damaged = np.pad(frame, 100)
    at = 100 + start_us * 40
    damaged[at : at + 160] = np.roll(damaged[at : at + 160], 37)

    assert receive(np.pad(frame, 100), 40).mcs == 2
    with pytest.raises(NotReceivedError, match=field):
        receive(damaged, 40)
