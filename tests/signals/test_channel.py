"""Powers: of the echoes, of the noise, of a Bluetooth emission."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from tolfl.core.errors import SpecError
from tolfl.core.spec import checked
from tolfl.signals import ChannelSettings
from tolfl.signals.bluetooth import BIT_RATE_HZ, gfsk_glimpses
from tolfl.signals.comms_ml_generator import draw_taps, mixed_taps, receive
from tolfl.signals.wifi import l_stf

SETTINGS = ChannelSettings()
QUIET = ChannelSettings(rician_k_db=200.0, gain_db=0.0, snr_db=200.0)
FRAME = l_stf()


def power_db(signal: np.ndarray[tuple[int, ...], np.dtype[np.complex128]]) -> float:
    return float(10 * np.log10(np.mean(np.abs(signal) ** 2)))


def test_echoes_have_the_powers_of_the_settings_and_power_one_together() -> None:
    taps = draw_taps(SETTINGS, np.random.default_rng(0))

    assert np.sum(np.abs(taps) ** 2) == pytest.approx(1.0)
    assert 20 * np.log10(np.abs(taps / taps[0])) == pytest.approx([0, -3, -7, -12])


def test_echoes_between_two_places_are_one_or_the_other_at_the_ends() -> None:
    one, other = (draw_taps(SETTINGS, np.random.default_rng(seed)) for seed in (0, 1))

    assert mixed_taps(one, other, 0.0) == pytest.approx(one)
    assert mixed_taps(one, other, 1.0) == pytest.approx(other)
    assert np.linalg.norm(mixed_taps(one, other, 0.65)) == pytest.approx(1.0)


def test_without_fading_gain_and_noise_the_readings_are_the_delayed_frames() -> None:
    taps = draw_taps(QUIET, np.random.default_rng(0))
    (reading,) = receive(FRAME, taps, QUIET, np.random.default_rng(1), (1, 300))

    expected = np.zeros(300, np.complex128)
    for delay, tap in zip(QUIET.delays_samples, taps, strict=True):
        expected[delay:] += tap * FRAME[: 300 - delay]
    assert reading == pytest.approx(expected, abs=1e-8)


def test_the_received_power_is_one_over_all_places() -> None:
    powers = [
        np.mean(np.abs(receive(FRAME, draw_taps(SETTINGS, rng), SETTINGS, rng, (20, 1000))) ** 2)
        for rng in map(np.random.default_rng, range(200))
    ]

    # A gain of 1 dB (standard deviation) adds 2.7 % of power, noise of 20 dB 1 %.
    assert np.mean(powers) == pytest.approx(1.037, abs=0.04)


def test_the_noise_has_the_set_ratio_to_the_signal() -> None:
    noisy = msgspec.structs.replace(QUIET, snr_db=20.0)
    taps = draw_taps(QUIET, np.random.default_rng(0))
    readings = receive(FRAME, taps, noisy, np.random.default_rng(1), (2000, 100))
    clean = receive(FRAME, taps, QUIET, np.random.default_rng(1), (1, 100))

    assert power_db(readings - clean) == pytest.approx(-20.0, abs=0.05)


def test_fading_changes_with_each_frame_and_has_the_rician_share_of_the_power() -> None:
    fading = msgspec.structs.replace(QUIET, rician_k_db=10.0, delays_samples=(0,), powers_db=(0.0,))
    readings = receive(FRAME, np.array([1.0 + 0j]), fading, np.random.default_rng(0), (20_000, 1))
    gains = readings[:, 0] / FRAME[0]

    assert np.mean(np.abs(gains) ** 2) == pytest.approx(1.0, abs=0.02)
    assert abs(np.mean(gains)) ** 2 / np.var(gains) == pytest.approx(10.0, rel=0.05)


def test_the_gain_varies_by_the_set_number_of_decibels() -> None:
    varying = msgspec.structs.replace(QUIET, gain_db=1.0)
    readings = receive(FRAME, draw_taps(QUIET, np.random.default_rng(0)), varying, np.random.default_rng(1), (5000, 40))

    assert np.std(20 * np.log10(np.abs(readings[:, 30]))) == pytest.approx(1.0, rel=0.05)


def test_a_timing_offset_moves_the_start_and_shows_silence_before_the_frame() -> None:
    late = msgspec.structs.replace(QUIET, timing_offset_samples=3, delays_samples=(0,), powers_db=(0.0,))
    readings = receive(FRAME, np.array([1.0 + 0j]), late, np.random.default_rng(0), (200, 50))

    padded = np.concatenate([np.zeros(3), FRAME])
    rows = {offset: padded[3 + offset : 53 + offset] for offset in range(-3, 4)}
    found = [next(o for o, row in rows.items() if np.allclose(reading, row, atol=1e-8)) for reading in readings]
    assert set(found) == set(range(-3, 4))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"delays_samples": (0, 1)}, "2 delays and 4 powers"),
        ({"delays_samples": (), "powers_db": ()}, "0 delays"),
        ({"delays_samples": (0, 1, 2, -3)}, "at least 0 samples"),
        ({"timing_offset_samples": -1}, "at least 0 samples"),
        ({"snr_db": float("nan")}, "snr_db nan; use a finite number"),
        ({"powers_db": (0.0, float("-inf"), 0.0, 0.0)}, r"powers_db\[1\] -inf; use a finite number"),
        ({"gain_db": -1.0}, "at least 0 dB"),
    ],
)
def test_a_channel_that_cannot_be_is_refused(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        checked(msgspec.structs.replace(SETTINGS, **changes))


def test_more_readings_than_the_field_has_are_refused() -> None:
    with pytest.raises(SpecError, match="field of 1920; use fewer readings"):
        receive(FRAME, draw_taps(SETTINGS, np.random.default_rng(0)), SETTINGS, np.random.default_rng(0), (1, 1921))


def test_a_bluetooth_emission_has_the_set_power_in_every_reading() -> None:
    signal = gfsk_glimpses(np.random.default_rng(0), (50, 100), 240e6, 160e6, -15.0)

    assert 20 * np.log10(np.abs(signal)) == pytest.approx(np.full((50, 100), -15.0))


def test_its_frequency_stays_within_160_khz_of_a_place_in_the_band() -> None:
    signal = gfsk_glimpses(np.random.default_rng(0), (200, 1920), 240e6, 160e6, 0.0)
    frequency = np.angle(signal[:, 1:] / signal[:, :-1]) * 240e6 / (2 * np.pi)
    places = (frequency.max(axis=1) + frequency.min(axis=1)) / 2

    assert np.ptp(frequency, axis=1).max() <= 0.32 * BIT_RATE_HZ + 1e-3
    assert np.ptp(frequency, axis=1).max() > 0.3 * BIT_RATE_HZ
    assert np.abs(frequency).max() < 80e6
    assert (places.min(), places.max()) == pytest.approx((-79e6, 79e6), abs=3e6)


def test_it_stays_in_a_channel_of_one_megahertz() -> None:
    signal = gfsk_glimpses(np.random.default_rng(1), (100, 2400), 24e6, 1e6, 0.0)  # band 1 MHz: no place but the middle
    spectrum = np.mean(np.abs(np.fft.fft(signal, axis=1)) ** 2, axis=0)
    near = np.abs(np.fft.fftfreq(2400, 1 / 24e6)) <= 0.5e6

    assert spectrum[near].sum() / spectrum.sum() > 0.95
