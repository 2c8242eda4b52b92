"""The short training field against numbers worked out from the standard's tones."""

from __future__ import annotations

import numpy as np
import pytest

from tolfl.core.errors import SpecError
from tolfl.signals.wifi import l_stf

#: The standard's printed samples (Annex I of IEEE 802.11, 20 MHz, 1/64 scaling), to the three digits it gives.
ANNEX = [0.046 + 0.046j, -0.132 + 0.002j, -0.013 - 0.079j, 0.143 - 0.013j, 0.092, 0.143 - 0.013j]


def test_the_field_at_160_mhz_and_240_million_samples_per_second() -> None:
    field = l_stf()
    magnitude = np.abs(field)

    assert len(field) == 1920
    assert np.mean(magnitude**2) == pytest.approx(1.0, abs=1e-9)
    assert magnitude[:8] == pytest.approx(
        [0.816497, 0.489067, 0.542908, 0.832826, 0.215047, 0.342284, 0.982605, 0.406223], abs=1e-6
    )
    assert field[0] == pytest.approx(-0.577350 * (1 + 1j), abs=1e-6)
    assert (magnitude.min(), magnitude.max()) == pytest.approx((0.215047, 1.830136), abs=1e-6)
    assert magnitude[:100].sum() == pytest.approx(88.157444, abs=1e-6)
    assert magnitude[:200].sum() == pytest.approx(175.579749, abs=1e-6)


def test_it_repeats_every_192_samples_and_its_magnitude_every_96() -> None:
    field = l_stf()

    assert field[192:] == pytest.approx(field[:-192], abs=1e-12)
    assert np.abs(field)[96:] == pytest.approx(np.abs(field)[:-96], abs=1e-12)


def test_at_20_mhz_it_is_the_standards_own_example() -> None:
    field = l_stf(20, 1.0)

    # Here power 1 over 12 tones; there tones of sqrt(13/6) (1 + j), of power 13/3 each, behind a transform over 64.
    assert field[:6] * np.sqrt(12 * 13 / 3) / 64 == pytest.approx(ANNEX, abs=7.1e-4)  # both parts are rounded to 5e-4


@pytest.mark.parametrize("bandwidth_mhz", [20, 40, 80, 160])
@pytest.mark.parametrize("oversampling", [1.0, 1.37, 1.5, 2.0])
def test_every_width_has_power_one_and_eight_microseconds(bandwidth_mhz: int, oversampling: float) -> None:
    field = l_stf(bandwidth_mhz, oversampling)

    assert len(field) == round(8 * bandwidth_mhz * oversampling)
    assert np.mean(np.abs(field) ** 2) == pytest.approx(1.0, abs=0.01)


def test_a_symbol_that_is_no_whole_number_of_samples_lies_between_those_that_are() -> None:
    often, odd = l_stf(160, 3.0), l_stf(160, 3.0 / 2.0 * (1 + 1e-12))

    assert l_stf(160, 1.5) == pytest.approx(often[::2], abs=1e-9)
    assert odd == pytest.approx(often[::2], abs=1e-6)
    assert l_stf(20, 1.3)[::13] == pytest.approx(l_stf(20, 1.0)[::10], abs=1e-9)


def test_the_slots_are_turned_as_the_standard_says() -> None:
    # Without the rotations the peak-to-average ratio of many equal slots would be far higher.
    assert np.abs(l_stf(80, 4.0)).max() ** 2 < 4.0
    spectrum = np.fft.fft(l_stf(40, 1.0)[:128])

    assert spectrum[32 + 4] / spectrum[-32 + 4] == pytest.approx(1j, abs=1e-9)


def test_the_window_fades_the_field_in_over_50_nanoseconds() -> None:
    ratio = np.abs(l_stf(window="ieee")) / np.abs(l_stf())

    ramp = [0.5, 0.5653, 0.6294, 0.6913, 0.75, 0.8044, 0.8536, 0.8967, 0.9330, 0.9619, 0.9830, 0.9957]
    assert ratio[:12] == pytest.approx(ramp, abs=1e-4)
    assert ratio[12:] == pytest.approx(1.0)


@pytest.mark.parametrize(("width", "oversampling"), [(30, 1.0), (160, 0.9), (160, float("nan")), (160, float("inf"))])
def test_what_has_no_field_is_refused(width: int, oversampling: float) -> None:
    with pytest.raises(SpecError, match=r"bandwidth 30 MHz; use one of|oversampling .*; use at least 1"):
        l_stf(width, oversampling)
