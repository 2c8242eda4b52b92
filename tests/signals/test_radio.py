"""Path loss, multipath, fading, noise, and the imperfections of transmitters."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from tolfl.core.seeding import Purpose, rng_for
from tolfl.signals.radio import Fingerprint, Multipath, noise, noise_dbm, path_loss_db, shift_frequency

RATE_HZ = 20e6


def rng(seed: int = 0) -> np.random.Generator:
    return rng_for(seed, Purpose.DATA)


def test_free_space_loses_what_the_friis_equation_says() -> None:
    # 20 log10(4 pi 100 m / 12.5 cm): one hundred metres at 2.4 GHz are 80.05 dB.
    assert path_loss_db(100.0, 2.4e9, exponent=2.0) == pytest.approx(80.05, abs=0.01)


@given(st.floats(1.0, 1e4), st.floats(1.6, 5.0))
def test_ten_times_the_distance_loses_ten_times_the_exponent(distance_m: float, exponent: float) -> None:
    near, far = path_loss_db([distance_m, 10 * distance_m], 5e9, exponent)

    assert far - near == pytest.approx(10 * exponent)


def test_nearer_than_the_reference_the_loss_does_not_fall() -> None:
    assert path_loss_db(0.0, 2.4e9) == path_loss_db(1.0, 2.4e9)


def test_ten_times_the_band_has_ten_times_the_noise() -> None:
    assert noise_dbm(1e6, 0.0) == pytest.approx(-113.975)
    assert noise_dbm(1e7, 3.0) - noise_dbm(1e6, 3.0) == pytest.approx(10.0)


@pytest.mark.parametrize("k_db", [-math.inf, 0.0, 6.0, 12.0], ids=["rayleigh", "0 dB", "6 dB", "12 dB"])
def test_fading_has_the_rician_factor_that_was_asked_for_and_power_1(k_db: float) -> None:
    place = Multipath(np.zeros(1), np.array([1.0 + 0j]))
    draws = rng()
    gains = np.array([place.fade(k_db, draws).gain[0] for _ in range(20_000)])
    power = np.abs(gains) ** 2
    # Moments (Greenstein 1999): the spread of the power gives the power that stays, whatever its phase.
    stays = math.sqrt(max(0.0, power.mean() ** 2 - power.var()))

    assert power.mean() == pytest.approx(1.0, abs=0.03)
    assert stays == pytest.approx(k / (1 + k) if (k := 10 ** (k_db / 10)) else 0.0, abs=0.15 if k_db < 0 else 0.03)


def test_without_a_part_that_stays_amplitudes_are_rayleigh() -> None:
    place, draws = Multipath(np.zeros(1), np.array([1.0 + 0j])), rng(3)
    amplitudes = np.abs([place.fade(-math.inf, draws).gain[0] for _ in range(5_000)])

    assert stats.kstest(amplitudes, stats.rayleigh(scale=math.sqrt(0.5)).cdf).pvalue > 0.01


def test_with_nothing_that_changes_a_place_stays_as_it_is() -> None:
    place = Multipath.draw(10.0, 50e-9, 4, rng())

    assert np.array_equal(place.fade(math.inf, rng(1)).gain, place.gain)


@given(st.integers(0, 2**20), st.floats(1.0, 100.0), st.floats(1e-9, 3e-7), st.integers(1, 8))
def test_echoes_come_after_the_direct_path_and_have_power_1_together(
    seed: int, distance_m: float, spread_s: float, n_paths: int
) -> None:
    echoes = Multipath.draw(distance_m, spread_s, n_paths, rng(seed))

    assert (np.abs(echoes.gain) ** 2).sum() == pytest.approx(1.0)
    assert echoes.delay_s[0] == pytest.approx(distance_m / 299_792_458.0)
    assert (np.diff(echoes.delay_s) >= 0).all()
    assert (np.diff(np.abs(echoes.gain)) <= 1e-12).all()


@pytest.mark.parametrize("delay", [0.0, 3.0, 2.25, 7.5])
def test_a_path_delays_a_tone_by_the_right_phase(delay: float) -> None:
    response, n_early = Multipath(np.array([delay / RATE_HZ]), np.array([1.0 + 0j])).response(RATE_HZ)
    turns = 0.21  # per sample: well inside the band
    tone = np.exp(2j * np.pi * turns * np.arange(400)).astype(np.complex64)
    heard = np.convolve(tone, response)[n_early : n_early + 400]

    assert np.allclose(heard[50:350], (tone * np.exp(-2j * np.pi * turns * delay))[50:350], atol=5e-3)


def test_two_paths_of_opposite_phase_silence_a_tone() -> None:
    # Half a turn per sample of delay at a quarter of the rate needs two samples.
    response, _ = Multipath(np.array([0.0, 2.0]) / RATE_HZ, np.array([0.5 + 0j, 0.5])).response(RATE_HZ)
    tone = np.exp(2j * np.pi * 0.25 * np.arange(400)).astype(np.complex64)

    assert np.abs(np.convolve(tone, response)[50:350]).max() < 0.01


@given(st.integers(0, 10**9), st.floats(-9e6, 9e6))
def test_turning_in_two_pieces_is_turning_at_once(start: int, offset_hz: float) -> None:
    samples = np.ones(64, np.complex64)
    whole = shift_frequency(samples, offset_hz, RATE_HZ, start)
    pieces = [
        shift_frequency(samples[:40], offset_hz, RATE_HZ, start),
        shift_frequency(samples[40:], offset_hz, RATE_HZ, start + 40),
    ]

    assert np.allclose(whole, np.concatenate(pieces), atol=1e-4)
    assert np.allclose(np.abs(whole), 1.0, atol=1e-5)


def test_noise_is_circular_and_has_the_power_that_was_asked_for() -> None:
    found = noise(rng(), 100_000, 4.0)

    assert (np.abs(found) ** 2).mean() == pytest.approx(4.0, rel=0.02)
    assert abs((found**2).mean()) < 0.05


def tone(turns: float, n_samples: int = 1024) -> NDArray[np.complex64]:
    return np.asarray(np.exp(2j * np.pi * turns * np.arange(n_samples)), np.complex64)


def test_a_mixer_with_unequal_branches_makes_a_mirror_image_of_the_right_strength() -> None:
    # Q is 1 dB stronger: the image is (g - 1)/(g + 1) of the tone, with g = 10^(1/20).
    spectrum = np.abs(np.fft.fft(Fingerprint(gain_imbalance_db=1.0).distort(tone(0.125))))
    g = 10 ** (1 / 20)

    assert spectrum[1024 * 7 // 8] / spectrum[128] == pytest.approx((g - 1) / (g + 1), rel=1e-3)


def test_a_mixer_at_a_wrong_angle_makes_an_image_of_half_the_angle() -> None:
    spectrum = np.abs(np.fft.fft(Fingerprint(phase_imbalance_deg=2.0).distort(tone(0.125))))

    assert spectrum[896] / spectrum[128] == pytest.approx(math.tan(math.radians(1.0)), rel=1e-3)


@given(st.floats(0.0, 12.0), st.floats(1.0, 5.0), st.floats(0.0, 100.0), st.floats(0.0, 6.28))
def test_an_amplifier_never_gives_more_than_it_can_and_keeps_the_phase(
    saturation_db: float, smoothness: float, amplitude: float, phase: float
) -> None:
    sample = np.array([amplitude * np.exp(1j * phase)], np.complex64)
    sent = Fingerprint(saturation_db=saturation_db, smoothness=smoothness).distort(sample)

    assert abs(sent[0]) <= min(amplitude, 10 ** (saturation_db / 20)) * (1 + 1e-5)
    assert sent[0] * abs(sample[0]) == pytest.approx(sample[0] * abs(sent[0]), abs=1e-3 * (1 + amplitude))


def test_at_the_knee_rapp_loses_what_his_equation_says() -> None:
    sent = Fingerprint(saturation_db=0.0, smoothness=2.0).distort(np.array([1.0], np.complex64))

    assert abs(sent[0]) == pytest.approx(2 ** (-1 / 4))


def test_two_devices_differ_and_the_same_one_is_always_the_same() -> None:
    one, again, other = (Fingerprint.draw(rng_for(0, Purpose.DATA, device)) for device in (1, 1, 2))

    assert one == again
    assert one != other
    assert abs(one.carrier_ppm) <= 20
