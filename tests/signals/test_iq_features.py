"""Features of windows: what they must not depend on, and what they are for signals that one can work out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tolfl.core.seeding import Purpose, rng_for
from tolfl.signals.iq_features import N_BANDS, N_FFT, feature_names, piece_spectra, window_features
from tolfl.signals.radio import noise

RATE_HZ = 20e6
NAMES = feature_names(RATE_HZ)
IS_POWER = np.array([name.endswith("[dBFS]") for name in NAMES])
#: Pieces of the envelope and of the spectrum at once: 32 pieces of 128 samples.
N_SAMPLES = 4096
#: Where the powers of the bands begin among the features, and where their levels do.
POWERS, LEVELS = len(NAMES) - 2 * N_BANDS, len(NAMES) - N_BANDS


def bursts(seed: int) -> NDArray[np.complex64]:
    """Noise with a burst and a tone in it: something of everything."""
    draws = rng_for(seed, Purpose.DATA)
    samples = noise(draws, N_SAMPLES, 1e-4)
    begin = int(draws.integers(0, 2000))
    samples[begin : begin + 1000] += noise(draws, 1000, 0.01)
    return np.asarray(samples + 0.03 * np.exp(2j * np.pi * draws.uniform() * np.arange(N_SAMPLES)), np.complex64)


def features(samples: NDArray[np.complex64]) -> dict[str, float]:
    return dict(zip(NAMES, window_features(samples, RATE_HZ).tolist(), strict=True))


def of_windows(*windows: NDArray[np.complex64]) -> NDArray[np.float64]:
    return np.array([window_features(window, RATE_HZ) for window in windows])


@settings(max_examples=40)
@given(st.integers(0, 1000), st.floats(-60.0, 20.0))
def test_a_louder_signal_moves_the_powers_and_nothing_else(seed: int, gain_db: float) -> None:
    samples = bursts(seed)
    before, after = of_windows(samples, np.asarray(samples * 10 ** (gain_db / 20), np.complex64))

    assert np.allclose((after - before)[IS_POWER], gain_db, atol=1e-3)
    assert np.allclose(after[~IS_POWER], before[~IS_POWER], rtol=1e-3, atol=1e-3)


@settings(max_examples=40)
@given(st.integers(0, 1000), st.floats(0.0, 6.28))
def test_the_phase_of_the_oscillator_does_not_matter(seed: int, phase: float) -> None:
    samples = bursts(seed)
    before, after = of_windows(samples, (samples * np.exp(1j * phase)).astype(np.complex64))

    assert np.allclose(after, before, rtol=1e-3, atol=1e-3)


@settings(max_examples=40)
@given(st.integers(0, 1000), st.integers(0, 31))
def test_what_happens_later_in_a_window_is_the_same(seed: int, n_pieces: int) -> None:
    samples = bursts(seed)
    before, after = of_windows(samples, np.roll(samples, n_pieces * N_FFT))

    assert np.allclose(after, before, rtol=1e-4, atol=1e-4)


@settings(max_examples=40)
@given(st.integers(0, 1000), st.integers(0, N_BANDS - 1))
def test_a_shift_by_whole_bands_moves_the_bands_round(seed: int, n_bands: int) -> None:
    samples = bursts(seed)
    shifted = (samples * np.exp(2j * np.pi * n_bands / N_BANDS * np.arange(N_SAMPLES))).astype(np.complex64)
    before, after = of_windows(samples, shifted)

    for first in (POWERS, LEVELS):
        own = slice(first, first + N_BANDS)
        assert np.allclose(np.roll(before[own], n_bands), after[own], atol=1e-2)
    assert np.allclose(before[:7], after[:7], rtol=1e-3, atol=1e-3)  # the envelope does not know the frequency


@settings(max_examples=40)
@given(st.integers(0, 1000))
def test_bands_add_up_to_the_power(seed: int) -> None:
    samples = noise(rng_for(seed, Purpose.DATA), 100 * N_FFT, 0.01)
    found = window_features(samples, RATE_HZ)

    assert 10 * np.log10((10 ** (found[POWERS:LEVELS] / 10)).sum()) == pytest.approx(found[0], abs=0.15)
    assert piece_spectra(samples).mean(axis=0).sum() == pytest.approx((10 ** (found[POWERS:LEVELS] / 10)).sum())


def test_a_carrier_is_where_it_is() -> None:
    # A tone at a quarter of the rate, amplitude 0.1: 5 MHz, -20 dBFS, a constant envelope.
    found = features((0.1 * np.exp(2j * np.pi * 0.25 * np.arange(N_SAMPLES))).astype(np.complex64))

    assert found["power [dBFS]"] == pytest.approx(-20.0, abs=1e-3)
    assert found["peak over power [dB]"] == pytest.approx(0.0, abs=1e-3)
    assert found["loud share [%]"] == 100.0
    assert found["envelope variation"] == pytest.approx(0.0, abs=1e-3)
    assert found["spectrum centre [kHz]"] == pytest.approx(5000.0, abs=1.0)
    assert found["spectrum width [kHz]"] < 200
    loudest = max(NAMES[POWERS:LEVELS], key=found.__getitem__)
    assert abs(float(loudest.split()[2]) - 5.0) < RATE_HZ / 1e6 / N_BANDS


def test_noise_is_flat_and_its_envelope_is_rayleigh() -> None:
    found = features(noise(rng_for(0, Purpose.DATA), 200_000, 0.01))

    assert found["spectrum flatness [dB]"] == pytest.approx(0.0, abs=0.1)
    assert found["envelope variation"] == pytest.approx(np.sqrt(4 / np.pi - 1), abs=0.01)
    assert found["envelope kurtosis"] == pytest.approx(3.245, abs=0.05)


def test_a_quarter_of_a_window_is_a_quarter() -> None:
    samples = np.zeros(N_SAMPLES, np.complex64)
    samples[1024:2048] = 0.5
    found = features(samples)

    assert found["loud share [%]"] == 25.0
    assert found["loudest piece [dBFS]"] == pytest.approx(20 * np.log10(0.5))
    assert found["quietest piece [dBFS]"] == -200.0


def test_a_weak_signal_beside_a_loud_frame_shows_in_the_levels_and_not_in_the_powers() -> None:
    quiet = noise(rng_for(1, Purpose.DATA), 20_000, 1e-8)
    quiet[:5000] += noise(rng_for(2, Purpose.DATA), 5000, 1e-2)
    weak = quiet.copy()
    weak[10_000:] += (1e-3 * np.exp(2j * np.pi * 0.1 * np.arange(10_000))).astype(np.complex64)
    change = np.diff(of_windows(quiet, weak), axis=0)[0]

    assert np.abs(change[POWERS:LEVELS]).max() < 0.5
    assert change[LEVELS:].max() > 10
    assert np.median(np.abs(change[LEVELS:])) < 2


def test_silence_has_numbers_and_what_is_no_number_has_none() -> None:
    silent, broken = np.zeros(N_SAMPLES, np.complex64), np.zeros(N_SAMPLES, np.complex64)
    broken[7] = np.nan
    huge = np.full(N_SAMPLES, 3e38, np.complex64)
    found = of_windows(silent, broken, huge)

    assert np.isfinite(found[0]).all()
    assert not np.isfinite(found[1]).all()
    assert not np.isfinite(found[2]).all()


@given(st.floats(1e-3, 1e12))
def test_every_feature_has_a_name_of_its_own_at_any_rate(rate_hz: float) -> None:
    names = feature_names(rate_hz)

    assert len(set(names)) == len(names) == 75
