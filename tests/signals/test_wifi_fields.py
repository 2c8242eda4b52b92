"""Fields of a frame: where they start, what they look like, and what a frame refuses."""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.signals.wifi_receiver import frames_of
from tolfl.core.errors import SpecError
from tolfl.signals.wifi import data_mpdu, l_stf, legacy_frame, symbol_samples
from tolfl.signals.wifi_vht import (
    VHT_SCHEMES,
    ampdu,
    delimiter,
    fill,
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


RECEIVER, ACCESS_POINT, SOURCE = (bytes.fromhex(text) for text in ("020000000001", "020000000002", "020000000003"))


def test_a_data_frame_by_hand() -> None:
    frame = data_mpdu(b"hello", RECEIVER, ACCESS_POINT, SOURCE, sequence_number=5)

    assert frame[:-4].hex() == "8802" + "0000" + "020000000001" + "020000000002" + "020000000003" + "5000" + "0000" + (
        b"hello".hex()
    )
    assert zlib.crc32(frame) == 0x2144DF1C  # what is left of any frame with a right check sequence
    upwards = data_mpdu(b"hello", RECEIVER, ACCESS_POINT, SOURCE, sequence_number=5, to_access_point=True)
    assert upwards[:2].hex() == "8801"
    assert upwards[2:-4] == frame[2:-4]


def test_delimiters_by_hand() -> None:
    # End of frame, length 0; 1500 = 0x5dc in the upper twelve bits; 5000 = 0x1388, whose thirteenth bit comes first.
    assert delimiter(0, end_of_frame=True).hex() == "0100794e"
    assert delimiter(1500, end_of_frame=False)[:2].hex() == "c05d"
    assert delimiter(5000, end_of_frame=False)[:2].hex() == "8438"


@given(st.lists(st.binary(min_size=0, max_size=60), min_size=1, max_size=5), st.integers(0, 40))
def test_an_aggregate_gives_its_frames_back_whatever_fills_it_up(payloads: list[bytes], room: int) -> None:
    frames = [data_mpdu(payload, RECEIVER, ACCESS_POINT, SOURCE, n) for n, payload in enumerate(payloads)]
    aggregate = ampdu(frames)
    full = fill(aggregate, len(aggregate) + room)

    assert len(aggregate) % 4 == 0
    assert len(full) == len(aggregate) + room
    assert frames_of(full) == [frame[:-4] for frame in frames]


@given(st.binary(min_size=1, max_size=50), st.integers(0, 20))
def test_filling_keeps_what_is_there_and_ends_with_delimiters(psdu: bytes, room: int) -> None:
    full = fill(psdu, len(psdu) + room)

    assert full.startswith(psdu)
    rest = full[len(psdu) + min(-len(psdu) % 4, room) :]
    assert rest == (delimiter(0, end_of_frame=True) * 6)[: len(rest) // 4 * 4] + bytes(len(rest) % 4)


def test_a_frame_alone_is_the_end_and_one_of_many_is_not() -> None:
    frame = data_mpdu(b"", RECEIVER, ACCESS_POINT, SOURCE)

    assert ampdu([frame])[0] & 1 == 1
    assert ampdu([frame, frame])[0] & 1 == 0


def test_a_damaged_delimiter_loses_its_frame_and_not_the_next() -> None:
    frames = [data_mpdu(text, RECEIVER, ACCESS_POINT, SOURCE) for text in (b"first", b"second")]
    aggregate = bytearray(ampdu(frames))
    aggregate[1] ^= 1

    assert frames_of(bytes(aggregate)) == [frames[1][:-4]]


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(SpecError, match="address 00:00:00:00:00 has 5 bytes; use 6"):
        data_mpdu(b"", bytes(5), ACCESS_POINT, SOURCE)
    with pytest.raises(SpecError, match="an aggregate of no frames; use at least one"):
        ampdu([])
    with pytest.raises(SpecError, match="a frame of 11455 bytes in an aggregate; use 1 to 11454"):
        ampdu([bytes(11_455)])
