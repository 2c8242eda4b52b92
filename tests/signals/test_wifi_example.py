"""The standard's own example: 100 bytes at 36 Mb/s, followed from bytes to samples (IEEE 802.11-2020, Annex I.1)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tests.signals.wifi_receiver import receive
from tolfl.signals.wifi import (
    data_bits,
    encode,
    interleave_and_modulate,
    interleaving,
    l_sig_bits,
    legacy_extent,
    legacy_frame,
    legacy_points,
    modulate,
    scrambling_sequence,
    with_check_sequence,
)

HEADER = bytes.fromhex("0402002e 006008cd37a6 0020d6013cf1 006008ad3baf 0000")
TEXT = b"Joy, bright spark of divinity,\nDaughter of Elysium,\nFire-insired we trea"
PSDU = HEADER + TEXT + bytes.fromhex("673321b6")
SEED = 0b1011101
EXTENT = legacy_extent(100, 36)
#: The printed samples come from a transform over 64 with tones of power 1: here every symbol has power 1.
SCALE = np.sqrt(52) / 64


def text(bits: np.ndarray) -> str:
    return "".join(map(str, bits))


def test_the_check_sequence_is_the_crc_of_the_bytes_before_it() -> None:
    assert with_check_sequence(HEADER + TEXT) == PSDU


def test_the_message_takes_six_symbols_with_42_bits_of_padding() -> None:
    assert (EXTENT.n_symbols, EXTENT.data_bits) == (6, 144)
    assert EXTENT.n_symbols * EXTENT.data_bits - 16 - 8 * 100 - 6 == 42


def test_the_signal_field() -> None:
    bits = l_sig_bits(36, 100)
    interleaved = encode(bits)[interleaving(16, 48, 1)]

    assert text(bits) == "1011" + "0" + "001001100000" + "0" + "000000"
    assert text(encode(bits)) == "110100011010000100000010001111100111000000000000"
    assert text(interleaved) == "100101001101000000010100100000110010010010010100"
    assert legacy_points(bits)[0] == pytest.approx(2.0 * interleaved - 1)


def test_the_scrambler() -> None:
    # Table I-14, the whole period.
    assert text(scrambling_sequence(SEED)) == (
        "011011000001100110101001110011110110100001010101111101001010001101110001111111000011101111001011001001000000"
        "1000100110001011101"
    )
    assert text(data_bits(PSDU, EXTENT, SEED)[:48]) == "011011000001100110001001100011110110100000100001"


def test_the_code_and_the_interleaver_of_the_first_symbol() -> None:
    first = encode(data_bits(PSDU, EXTENT, SEED), Fraction(3, 4))[:192]
    interleaved = first[interleaving(16, 192, 4)]

    assert np.packbits(first).tobytes().hex() == "2b08a1f09db59a1d4afbe8c28fc0c873c043e019e0d3ebb2"
    assert np.packbits(interleaved).tobytes().hex() == "77f0efc47300bf11109a1d126e38f5691b6b9843000db36d"
    assert modulate(interleaved, 4)[:6] == pytest.approx(
        [-0.316 + 0.316j, -0.316 + 0.316j, 0.316 + 0.316j, -0.949 - 0.949j, 0.316 + 0.949j, 0.316 + 0.316j], abs=5e-4
    )
    assert interleave_and_modulate(first[None], 4, 16)[0] == pytest.approx(modulate(interleaved, 4))


def test_the_tail_is_zero_and_the_padding_is_not() -> None:
    bits = data_bits(PSDU, EXTENT, SEED)

    assert not bits[816:822].any()
    assert text(bits[822:]) == text(np.resize(scrambling_sequence(SEED), 864)[822:])


def test_the_training_fields_in_time() -> None:
    frame = legacy_frame(PSDU, 36, seed=SEED) * SCALE

    assert len(frame) == 20 * (8 + 8 + 4 + 6 * 4)
    short = [0.046 + 0.046j, -0.132 + 0.002j, -0.013 - 0.079j, 0.143 - 0.013j, 0.092]
    assert frame[:5] == pytest.approx(short, abs=7.1e-4)
    assert frame[16:160] == pytest.approx(frame[:144], abs=1e-6)
    guard = [-0.156, 0.012 - 0.098j, 0.092 - 0.106j, -0.092 - 0.115j]
    assert frame[160:164] == pytest.approx(guard, abs=7.1e-4)
    long = [0.156, -0.005 - 0.120j, 0.040 - 0.111j, 0.097 + 0.083j]
    assert frame[192:196] == pytest.approx(long, abs=7.1e-4)
    assert frame[256:320] == pytest.approx(frame[192:256], abs=1e-6)


def test_the_standards_window_halves_the_first_sample_of_every_field_and_adds_the_last_one_s_next() -> None:
    frame = legacy_frame(PSDU, 36, seed=SEED, window_s=100e-9) * SCALE
    plain = legacy_frame(PSDU, 36, seed=SEED) * SCALE

    assert frame[0] == pytest.approx(0.023 + 0.023j, abs=7.1e-4)
    # -0.078 from the long field, 0.023 + 0.023j from the short one, which would go on as it began.
    assert frame[160] == pytest.approx(-0.055 + 0.023j, abs=1.2e-3)
    changed = np.flatnonzero(np.abs(frame - plain) > 1e-6)
    assert set(changed) <= {0, 160, *range(320, 880, 80)}


def test_a_receiver_reads_the_text() -> None:
    received = receive(np.pad(legacy_frame(PSDU, 36, seed=SEED), 50))

    assert received.psdu == PSDU
    assert received.rate_mbps == 36
