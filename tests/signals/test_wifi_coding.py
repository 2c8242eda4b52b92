"""Scrambler, code, interleaver, mapping and checks: what must hold for any bits."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.signals.wifi_receiver import crc_fits, deinterleaved, filled_in, viterbi
from tolfl.core.errors import SpecError
from tolfl.signals.wifi import (
    KEPT,
    encode,
    interleaving,
    modulate,
    number_bits,
    points,
    polarity,
    scramble,
    scrambling_sequence,
)
from tolfl.signals.wifi_vht import crc8, encode_in_turn, layout, segments

Bits = np.ndarray
WIDTHS = [20, 40, 80, 160]


def bit_arrays(length: int) -> st.SearchStrategy[Bits]:
    return st.binary(min_size=length, max_size=length).map(lambda raw: np.frombuffer(raw, np.uint8) % 2)


def test_from_ones_the_scrambler_gives_the_standards_sequence() -> None:
    assert "".join(map(str, scrambling_sequence(127))) == (
        "0000111011110010110010010000001000100110001011101011011000001100"
        "110101001110011110110100001010101111101001010001101110001111111"
    )
    assert polarity(0, 20).tolist() == [1, 1, 1, 1, -1, -1, -1, 1, -1, -1, -1, -1, 1, 1, -1, 1, -1, -1, 1, 1]
    assert polarity(0, 127).sum() == -1


def test_a_seed_is_read_from_its_highest_bit() -> None:
    # x7 = 1 alone: the first bit is x7 + x4 = 1; x7 has left, and x4 is reached after three more steps.
    assert scrambling_sequence(0b1000000)[:8].tolist() == [1, 0, 0, 0, 1, 0, 0, 1]
    assert scrambling_sequence(0b0000001)[:8].tolist() == [0, 0, 0, 1, 0, 0, 1, 1]


@given(bit_arrays(300), st.integers(1, 127))
def test_scrambling_twice_changes_nothing(bits: Bits, seed: int) -> None:
    assert np.array_equal(scramble(scramble(bits, seed), seed), bits)
    assert not np.array_equal(scramble(bits, seed), bits)


def test_every_seed_is_the_same_sequence_from_another_place() -> None:
    doubled = "".join(map(str, scrambling_sequence(127))) * 2
    places = {doubled.index("".join(map(str, scrambling_sequence(seed)))) for seed in range(1, 128)}

    assert places == set(range(127))


@pytest.mark.parametrize("seed", [0, 128, -1])
def test_a_seed_that_is_no_state_is_refused(seed: int) -> None:
    with pytest.raises(SpecError, match=f"scrambler seed {seed}; use 1 to 127"):
        scrambling_sequence(seed)


@given(bit_arrays(60), bit_arrays(60), st.sampled_from(sorted(KEPT)))
def test_the_code_is_linear(one: Bits, other: Bits, rate: Fraction) -> None:
    assert np.array_equal(encode(one ^ other, rate), encode(one, rate) ^ encode(other, rate))
    assert len(encode(one, rate)) == 60 / rate


@given(bit_arrays(54), st.sampled_from(sorted(KEPT)))
def test_a_viterbi_decoder_undoes_it(bits: Bits, rate: Fraction) -> None:
    ended = np.concatenate([bits, np.zeros(6, np.uint8)])
    soft = 2 * encode(ended, rate).astype(np.float64) - 1

    assert np.array_equal(viterbi(filled_in(soft, str(rate))), ended)


@given(bit_arrays(54), st.lists(st.integers(0, 119), max_size=4, unique=True))
def test_it_mends_any_four_wrong_bits_at_rate_one_half(bits: Bits, wrong: list[int]) -> None:
    ended = np.concatenate([bits, np.zeros(6, np.uint8)])
    soft = 2 * encode(ended).astype(np.float64) - 1
    soft[wrong] *= -1  # the free distance is 10

    assert np.array_equal(viterbi(soft.reshape(-1, 2)), ended)


@given(bit_arrays(128), st.sampled_from([3, 4]))
def test_two_coders_work_on_every_other_bit_and_take_turns(bits: Bits, turn: int) -> None:
    both = encode_in_turn(bits[: 30 * turn], Fraction(1, 2), 2, turn)
    tail = np.zeros(6, np.uint8)

    by_turn = both.reshape(-1, 2, turn)
    for which in (0, 1):
        alone = encode(np.concatenate([bits[which : 30 * turn : 2], tail]))
        assert np.array_equal(by_turn[:, which].ravel(), alone)


@pytest.mark.parametrize("bits_per_tone", [1, 2, 4, 6, 8])
@pytest.mark.parametrize("width", WIDTHS)
def test_an_interleaver_is_a_permutation_that_the_receivers_formula_undoes(width: int, bits_per_tone: int) -> None:
    shape = layout(width)
    n_bits = len(shape.data) // shape.n_segments * bits_per_tone
    source = interleaving(shape.n_columns, n_bits, bits_per_tone)

    assert np.array_equal(np.sort(source), np.arange(n_bits))
    assert np.array_equal(deinterleaved(source.astype(float), shape.n_columns, bits_per_tone), np.arange(n_bits))


@pytest.mark.parametrize("bits_per_tone", [1, 2, 4, 6])
def test_the_legacy_interleaver_too(bits_per_tone: int) -> None:
    source = interleaving(16, 48 * bits_per_tone, bits_per_tone)

    assert np.array_equal(deinterleaved(source.astype(float), 16, bits_per_tone), np.arange(48 * bits_per_tone))
    # Neighbouring coded bits are three tones apart.
    tone_of = np.argsort(source) // bits_per_tone
    assert np.all(np.diff(tone_of[:16]) == 3)


def test_bpsk_at_160_mhz_sends_one_coders_output_in_each_half() -> None:
    lower, upper = segments(np.tile([0, 1], 234).astype(np.uint8)[None], 2, 1)[0]

    assert not lower.any()
    assert upper.all()


@given(st.sampled_from([1, 2, 3, 4]), st.sampled_from([1, 2]))
def test_the_segment_parser_follows_the_standards_formula(s: int, n_coders: int) -> None:
    bits = np.arange(48 * s) % 251
    parsed = segments(bits.astype(np.uint8)[None], 2, s * n_coders)[0]

    turn, k = s * n_coders, np.arange(24 * s)
    for segment in (0, 1):
        assert np.array_equal(parsed[segment], bits[2 * turn * (k // turn) + segment * turn + k % turn])


@pytest.mark.parametrize("bits_per_tone", [1, 2, 4, 6, 8])
def test_a_constellation_has_power_one_and_neighbours_differ_in_one_bit(bits_per_tone: int) -> None:
    table = points(bits_per_tone)

    assert np.mean(np.abs(table) ** 2) == pytest.approx(1.0, abs=1e-6)
    distance = np.abs(table[:, None] - table[None, :])
    least = distance[distance > 1e-6].min()
    ones, others = np.nonzero((distance > 1e-6) & (distance < 1.01 * least))
    assert set(np.bitwise_count(ones ^ others).tolist()) == {1}


@pytest.mark.parametrize(
    ("bits", "level", "scale"),
    [("00", -3, 10), ("01", -1, 10), ("010", -1, 42), ("100", 7, 42), ("0111", -5, 170), ("1000", 15, 170)],
)
def test_the_first_half_of_the_bits_is_the_real_part(bits: str, level: int, scale: int) -> None:
    lowest = "0" * len(bits)
    point = modulate(np.array([int(bit) for bit in bits + lowest], np.uint8), 2 * len(bits))[0]

    assert point * np.sqrt(scale) == pytest.approx(level - 1j * (2 ** len(bits) - 1), abs=1e-5)


def test_the_check_of_the_standards_ht_signal_field() -> None:
    bits = np.array([int(bit) for bit in "1111000100100110000000001110000000"], np.uint8)

    assert "".join(map(str, crc8(bits))) == "10101000"


@given(bit_arrays(34), st.integers(0, 34), st.integers(1, 255))
def test_the_check_finds_every_error_within_eight_bits(bits: Bits, place: int, pattern: int) -> None:
    sent = np.concatenate([bits, crc8(bits)])
    damaged = sent.copy()
    damaged[place : place + 8] ^= number_bits(pattern, 8)[: len(sent) - place]

    assert crc_fits(sent[:34], sent[34:])
    assert not crc_fits(damaged[:34], damaged[34:])
