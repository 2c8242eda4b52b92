"""Imperfect transmitters: what each imperfection does, worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tolfl.core.seeding import Purpose, rng_for
from tolfl.signals.radio import Fingerprint


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
