"""The waveform of Bluetooth packets: spectrum, deviation, and a discriminator that reads them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tolfl.signals.bluetooth import MODULATION_INDEX, br_bits, br_packet, gfsk, pulse, pulse_so_far

RATE_HZ = 8e6
PAYLOAD = np.random.default_rng(7).bytes(339)


def packet(rate_hz: float) -> np.ndarray:
    return br_packet(PAYLOAD, 0x9E8B33, 0x1234, rate_hz=rate_hz, packet_type="DH5")


def frequency_hz(samples: np.ndarray, rate_hz: float) -> np.ndarray:
    return np.asarray(np.angle(samples[1:] * samples[:-1].conj()) / (2 * np.pi) * rate_hz)


def discriminated(samples: np.ndarray, rate_hz: float, n_bits: int) -> np.ndarray:
    """Return bits: whether the phase goes up or down while each is sent."""
    phase, per_bit = np.unwrap(np.angle(samples)), rate_hz / 1e6
    begin, end = (np.interp((np.arange(n_bits) + part) * per_bit, np.arange(len(phase)), phase) for part in (0.1, 0.9))
    return np.asarray(end > begin, np.uint8)


def spectrum(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return frequencies in MHz and the power at each, averaged over pieces of 64 us."""
    pieces = samples[: len(samples) // 512 * 512].reshape(-1, 512) * np.hanning(512)
    power = np.fft.fftshift((np.abs(np.fft.fft(pieces, axis=1)) ** 2).mean(axis=0))
    return np.fft.fftshift(np.fft.fftfreq(512, 1e6 / RATE_HZ)), power


def test_the_amplitude_is_one() -> None:
    assert np.abs(packet(RATE_HZ)) == pytest.approx(1.0, abs=1e-6)


def test_99_percent_of_the_power_lie_within_a_channel() -> None:
    frequency_mhz, power = spectrum(packet(RATE_HZ))
    share = np.cumsum(power) / power.sum()
    low, high = np.interp([0.005, 0.995], share, frequency_mhz)

    assert 0.6 < high - low < 1.0
    assert abs(high + low) < 0.1


def test_basic_rate_is_20_db_down_within_one_megahertz() -> None:
    frequency_mhz, power = spectrum(packet(RATE_HZ))
    strong = frequency_mhz[power > power.max() / 100]

    assert 0.7 < strong.max() - strong.min() < 1.0


def test_the_modulation_index_shows_in_long_runs_and_less_in_alternation() -> None:
    index, least_hz = MODULATION_INDEX, 115e3
    # The two patterns of the radio tests: 11110000 for the full deviation, 10101010 for what the filter leaves of it.
    runs = gfsk(np.tile([1, 1, 1, 1, 0, 0, 0, 0], 20).astype(np.uint8), 64e6, index)
    alternating = gfsk(np.tile([1, 0], 80).astype(np.uint8), 64e6, index)
    full = np.abs(frequency_hz(runs, 64e6)).max()
    filtered = np.abs(frequency_hz(alternating, 64e6)[640:-640]).max()

    assert full == pytest.approx(index / 2 * 1e6, rel=0.01)
    assert least_hz <= filtered < full
    assert filtered / full >= 0.8


def test_a_bit_turns_the_phase_by_pi_times_the_index() -> None:
    samples = gfsk(np.ones(11, np.uint8), 16e6, 0.32)
    turned = np.unwrap(np.angle(samples))

    assert turned[16 * 8] - turned[16 * 3] == pytest.approx(5 * 0.32 * np.pi, abs=1e-4)


def test_the_pulse_has_area_one_and_its_integral_follows_it() -> None:
    at = np.linspace(-3, 3, 6001)

    assert pulse(at).sum() * 1e-3 == pytest.approx(1.0, abs=1e-6)
    assert np.diff(pulse_so_far(at)) * 1e3 == pytest.approx(pulse((at[1:] + at[:-1]) / 2), abs=1e-6)
    assert pulse_so_far(np.array([-3.0, 0.0, 3.0])) == pytest.approx([0.0, 0.5, 1.0], abs=1e-9)


@settings(max_examples=30)
@given(st.lists(st.integers(0, 1), min_size=1, max_size=40), st.floats(2.0, 9.0))
def test_any_sample_rate_sees_the_same_wave(raw: list[int], samples_per_bit: float) -> None:
    bits = np.array(raw, np.uint8)
    wave = gfsk(bits, samples_per_bit * 1e6, 0.32)
    fine = gfsk(bits, 512e6, 0.32)
    at = np.arange(len(wave)) * 512 / samples_per_bit

    inside = at < len(fine) - 1
    angles = np.interp(at[inside], np.arange(len(fine)), np.unwrap(np.angle(fine).astype(np.float64)))
    assert wave[inside] == pytest.approx(np.exp(1j * angles), abs=1e-4)


@pytest.mark.parametrize("rate_hz", [4e6, 5.3e6, 20e6])
def test_a_discriminator_reads_every_bit(rate_hz: float) -> None:
    bits = br_bits(PAYLOAD, 0x9E8B33, 0x1234, "DH5")
    samples = packet(rate_hz)
    noise = np.random.default_rng(1).standard_normal((2, len(samples))) * 10 ** (-30 / 20) / np.sqrt(2)

    assert len(samples) == int(np.ceil(len(bits) * rate_hz / 1e6))
    assert np.array_equal(discriminated(samples + noise[0] + 1j * noise[1], rate_hz, len(bits)), bits)
