"""Fields of a frame: where they start, what they look like, and what a frame refuses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tolfl.core.errors import SpecError
from tolfl.signals.wifi import l_stf, legacy_frame, symbol_samples
from tolfl.signals.wifi_vht import (
    VHT_SCHEMES,
    layout,
    sig_a_bits,
    sig_b_bits,
    vht_extent,
    vht_frame,
    vht_legacy_length,
    vht_pilots,
)

WIDTHS = [20, 40, 80, 160]


def text(bits: np.ndarray) -> str:
    return "".join(map(str, bits))


def field(frame: np.ndarray, width: int, start_us: float, us: float, oversampling: float = 1) -> np.ndarray:
    rate = width * oversampling
    return frame[round(start_us * rate) : round((start_us + us) * rate)]


@pytest.mark.parametrize("oversampling", [1, 1.5, 2, 4])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_vht_frame_starts_with_the_short_training_field(width: int, oversampling: float) -> None:
    frame = vht_frame(bytes(30), width, 3, oversampling=oversampling)

    assert frame[: round(8 * width * oversampling)] == pytest.approx(l_stf(width, oversampling), abs=1e-5)
    assert frame.dtype == np.complex64


def test_the_check_numbers_at_160_mhz_and_240_million_samples_per_second() -> None:
    frame = vht_frame(bytes(300), 160, 1, oversampling=1.5)
    magnitude = np.abs(frame)

    assert len(frame) == 9600 + 960 * math.ceil((8 * 300 + 22) / 468)
    assert frame[0] == pytest.approx(-0.577350 * (1 + 1j), abs=1e-5)
    assert magnitude[:100].sum() == pytest.approx(88.157444, abs=1e-3)
    assert magnitude[:200].sum() == pytest.approx(175.579749, abs=1e-3)


def test_nothing_before_the_signal_field_depends_on_what_is_sent() -> None:
    one = vht_frame(bytes(300), 160, 1, oversampling=1.5, seed=1)
    other = vht_frame(b"x" * 90, 160, 7, short_gi=True, oversampling=1.5, seed=99)

    assert np.array_equal(one[:3840], other[:3840])
    assert not np.array_equal(one[3840:4800], other[3840:4800])


@pytest.mark.parametrize("width", WIDTHS)
def test_guard_intervals_repeat_the_end_of_their_symbol(width: int) -> None:
    n = 64 * width // 20
    long = vht_frame(bytes(200), width, 0)
    short = vht_frame(bytes(200), width, 0, short_gi=True)

    for start_us in (16, 20, 24, 32, 36, 40):  # L-SIG, SIG-A twice, VHT-LTF, SIG-B, data
        symbol = field(long, width, start_us, 4)
        assert symbol[: n // 4] == pytest.approx(symbol[-n // 4 :], abs=1e-6)
    symbol = field(short, width, 40 + 3.6, 3.6)
    assert symbol[: n // 8] == pytest.approx(symbol[-n // 8 :], abs=1e-6)
    assert field(long, width, 28, 0.8) == pytest.approx(field(long, width, 28.8, 0.8), abs=1e-6)


@pytest.mark.parametrize(("width", "papr_db"), [(20, 3.58), (40, 6.36), (80, 5.11), (160, 8.09)])
def test_the_vht_long_training_field_has_the_peak_that_its_rotation_gives(width: int, papr_db: float) -> None:
    # At four samples per reading. Without the rotation of the 20 MHz slots: 3.58, 5.63, 8.63 and 11.64 dB.
    symbol = field(vht_frame(bytes(30), width, 0, oversampling=4), width, 32.8, 3.2, 4)
    power = np.abs(symbol) ** 2

    assert 10 * np.log10(power.max() / power.mean()) == pytest.approx(papr_db, abs=0.01)
    assert power.mean() == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(("width", "counts"), [(20, (56, 52)), (40, (114, 108)), (80, (242, 234)), (160, (484, 468))])
def test_a_layout_has_the_standards_number_of_tones(width: int, counts: tuple[int, int]) -> None:
    shape = layout(width)

    assert (len(shape.tones), len(shape.data)) == counts
    assert np.array_equal(shape.tones, -shape.tones[::-1])
    assert np.array_equal(np.sort(np.concatenate([shape.data, shape.pilots])), shape.tones)
    assert shape.n_fft == 3.2 * width


def test_pilots_move_on_by_one_with_every_symbol_and_share_a_sign() -> None:
    pilots = vht_pilots(layout(20), 4, 3)

    # p_4, p_5 and p_6 are -1.
    assert pilots.tolist() == [[-1, -1, -1, 1], [-1, -1, 1, -1], [-1, 1, -1, -1]]


@pytest.mark.parametrize(
    ("width", "mcs", "data_bits"),
    [(20, 0, 26), (20, 8, 312), (40, 1, 108), (40, 9, 720), (80, 0, 117), (80, 9, 1560), (160, 1, 468), (160, 9, 3120)],
)
def test_bits_of_a_symbol(width: int, mcs: int, data_bits: int) -> None:
    assert vht_extent(1, width, mcs).data_bits == data_bits


def test_two_coders_from_mcs_7_at_160_mhz_and_nowhere_else() -> None:
    # 650 Mb/s with the short guard interval; one coder goes up to 600.
    all_of_them = [(width, mcs) for width in WIDTHS for mcs in range(len(VHT_SCHEMES)) if (width, mcs) != (20, 9)]
    twice = [case for case in all_of_them if vht_extent(1, *case).n_coders == 2]

    assert twice == [(160, 7), (160, 8), (160, 9)]


@pytest.mark.parametrize(
    ("n_symbols", "short_gi", "length"), [(1, False, 15), (6, False, 30), (10, True, 39), (9, True, 39), (11, True, 42)]
)
def test_the_legacy_length_covers_the_whole_frame(n_symbols: int, short_gi: bool, length: int) -> None:
    txtime_us = 40 + (4 * math.ceil(3.6 * n_symbols / 4) if short_gi else 4 * n_symbols)

    assert vht_legacy_length(n_symbols, short_gi) == length == math.ceil((txtime_us - 20) / 4) * 3 - 3


def test_sig_a_says_what_follows() -> None:
    bits = sig_a_bits(80, 7, short_gi=True, n_symbols=19)

    assert text(bits[:24]) == "01" + "1" + "0" + "111111" + "000" + "000000000" + "0" + "1"
    assert text(bits[24:34]) == "1" + "1" + "0" + "0" + "1110" + "0" + "1"
    assert text(bits[42:]) == "000000"
    assert sig_a_bits(80, 7, short_gi=True, n_symbols=18)[25] == 0
    assert sig_a_bits(80, 7, short_gi=False, n_symbols=19)[25] == 0


@pytest.mark.parametrize(("width", "n_bits"), [(20, 20), (40, 21), (80, 23), (160, 23)])
def test_sig_b_has_the_length_in_words_and_ones_behind_it(width: int, n_bits: int) -> None:
    bits = sig_b_bits(width, 101)

    assert len(bits) == n_bits
    assert text(bits[:8]) == "01011000"  # 26 words of four bytes
    assert bits[-2:].all()


@pytest.mark.parametrize("window_s", [0.0, 100e-9])
@pytest.mark.parametrize("width", WIDTHS)
def test_oversampling_adds_samples_between(width: int, window_s: float) -> None:
    once, thrice = (vht_frame(b"abcd" * 20, width, 4, short_gi=True, oversampling=n, window_s=window_s) for n in (1, 3))

    assert thrice[::3] == pytest.approx(once, abs=2e-5)


@pytest.mark.parametrize("width", WIDTHS)
def test_every_symbol_has_power_one_on_average(width: int) -> None:
    rng = np.random.default_rng(width)
    frame = vht_frame(rng.bytes(4000), width, 4)

    assert np.mean(np.abs(frame) ** 2) == pytest.approx(1.0, abs=0.03)


def test_a_window_calms_the_spectrum_outside_of_the_band() -> None:
    payload = np.random.default_rng(0).bytes(1000)
    outside = []
    for window_s in (0.0, 100e-9):
        spectrum = np.abs(np.fft.fft(legacy_frame(payload, 24, oversampling=4, window_s=window_s))) ** 2
        frequency_mhz = np.fft.fftfreq(len(spectrum), 1 / 80)
        outside.append(spectrum[np.abs(frequency_mhz) > 20].sum() / spectrum.sum())

    assert outside[0] > 1e-3
    assert outside[1] < outside[0] / 50


def test_a_window_leaves_the_middle_of_symbols_alone_and_fades_in_as_the_short_training_field_does() -> None:
    plain, faded = (vht_frame(bytes(100), 160, 1, oversampling=1.5, window_s=window_s) for window_s in (0.0, 100e-9))

    assert len(plain) == len(faded)
    assert faded[:12] == pytest.approx(l_stf(window="ieee")[:12], abs=1e-5)
    near = np.abs(np.arange(len(plain))[:, None] - [0, 1920, *range(3840, len(plain) + 1, 960)]).min(axis=1)
    assert np.array_equal(plain[near > 12], faded[near > 12])
    assert not np.array_equal(plain[near < 12], faded[near < 12])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((bytes(10), 20, 9), "MCS 9 at 20 MHz has no whole number of bits in a symbol; use 0 to 8"),
        ((bytes(10), 20, 10), "MCS 10; use 0 to 9"),
        ((bytes(10), 20, -1), "MCS -1; use 0 to 9"),
        ((bytes(10), 30, 1), "bandwidth 30 MHz; use one of 20, 40, 80, 160"),
        ((b"", 20, 1), "a VHT frame without data; use at least 1 byte"),
        ((bytes(9000), 20, 0), "symbols last longer than 5.484 ms; send fewer bytes"),
    ],
)
def test_what_vht_cannot_send_is_refused(arguments: tuple[bytes, int, int], sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        vht_frame(*arguments)


@pytest.mark.parametrize(
    ("n_bytes", "rate_mbps", "sentence"),
    [
        (10, 11, "11 Mb/s; use one of 6, 9, 12, 18, 24, 36, 48, 54"),
        (0, 6, "a legacy frame of 0 bytes; use 1 to 4095"),
        (4096, 6, "a legacy frame of 4096 bytes; use 1 to 4095"),
    ],
)
def test_what_legacy_cannot_send_is_refused(n_bytes: int, rate_mbps: int, sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        legacy_frame(bytes(n_bytes), rate_mbps)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"oversampling": 0.5}, "oversampling 0.5; use at least 1"),
        ({"oversampling": math.nan}, "oversampling nan; use at least 1"),
        ({"oversampling": 1.1}, "oversampling 1.1 at 20 MHz cuts a guard interval; use a whole number"),
        ({"window_s": 1e-6}, "a window of 1e-06 s; use 0 to 4e-07 s"),
        ({"window_s": math.nan}, "a window of nan s"),
        ({"seed": 0}, "scrambler seed 0; use 1 to 127"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        legacy_frame(bytes(10), 6, **options)


def test_a_symbol_at_one_and_a_half_times_160_mhz_has_768_samples() -> None:
    assert symbol_samples(160, 1.5) == 768
    assert len(legacy_frame(bytes(4095), 54)) == 20 * (20 + 4 * math.ceil((22 + 8 * 4095) / 216))
