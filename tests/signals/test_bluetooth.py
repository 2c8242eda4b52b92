"""Bluetooth packets bit by bit, against the samples of the specification, and their waveform."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tolfl.core.errors import SpecError
from tolfl.signals.bluetooth import (
    MODULATION_INDEX,
    PACKET_TYPES,
    access_code,
    br_bits,
    br_frequency_hz,
    br_packet,
    gfsk,
    header_check,
    hops,
    payload_check,
    pulse,
    pulse_so_far,
    whiten,
    whitening,
)
from tolfl.signals.wifi import number_bits

#: Lower address part, and its access code in the order it is sent.
ACCESS_CODES = {
    0x000000: "57e7041e34000000d5",
    0xFFFFFF: "ae758b5227ffffff2a",
    0x9E8B33: "5475c58cc73345e72a",
    0x9E8B34: "528ed3c34cb345e72a",
    0x9E9313: "ac142bdde32325e72a",
    0x616CEC: "5586a491f0dcda18d5",
    0x61650C: "aec4c69b54c29a18d5",
}
#: Upper address part, header, its check, and what is sent, three bits to a digit.
HEADERS = [
    (0x00, 0x123, 0xE1, "770007007070000777"),
    (0x47, 0x123, 0x06, "770007007007700000"),
    (0x00, 0x124, 0x32, "007007007007007700"),
    (0x47, 0x11B, 0x79, "770770007070077770"),
    (0x00, 0x11F, 0xF5, "777770007070707777"),
]
LINK_OF_THE_EXAMPLES = 3 | 1 << 8  #: member 3, which may not send; acknowledged


def text(bits: np.ndarray) -> str:
    return "".join(map(str, bits))


@pytest.mark.parametrize("lap", ACCESS_CODES, ids=hex)
def test_access_codes(lap: int) -> None:
    assert np.packbits(access_code(lap)).tobytes().hex() == ACCESS_CODES[lap]


@given(st.lists(st.integers(0, 2**24 - 1), min_size=2, max_size=2, unique=True))
def test_two_sync_words_differ_in_fourteen_bits_at_least(laps: list[int]) -> None:
    one, other = (access_code(lap)[4:68] for lap in laps)

    assert (one != other).sum() >= 14


@pytest.mark.parametrize(("uap", "header", "check", "sent"), HEADERS)
def test_headers(uap: int, header: int, check: int, sent: str) -> None:
    bits = np.concatenate([number_bits(header, 10), number_bits(check, 8)])
    assert text(header_check(bits[:10], uap)) == text(bits[10:])
    assert text(np.repeat(bits, 3)) == "".join(f"{int(digit):03b}" for digit in sent)


def test_the_check_of_a_payload() -> None:
    assert payload_check(bytes.fromhex("4e010203040506070809"), 0x47).hex() == "6dd2"


def test_whitening_from_a_register_of_ones() -> None:
    assert text(whitening(0x7F)) == (
        "11100011101100010100101111101010100001011011110011100101011001100000110110101110100011001000100000010010"
        "01101001111011100001111"
    )


def test_the_clock_sets_where_whitening_starts() -> None:
    # From ones, one step leads to 1101111 and the next to 1001111: the clock's bits 6 to 1 behind a one.
    ones = br_bits(b"", 0, 0b1111110)[72:126]
    for steps, clock_bits in enumerate([0b111111, 0b101111, 0b001111]):
        assert text(whitening(1 << 6 | clock_bits)) == text(np.roll(whitening(0x7F), -steps))
    plain = br_bits(b"", 0, None)[72:126]
    assert np.array_equal((plain ^ ones)[::3], whitening(0x7F)[:18])


def test_a_dh1_packet() -> None:
    bits = br_bits(bytes([1, 2, 3, 4, 5]), 0x47000000, None, "DH1", LINK_OF_THE_EXAMPLES)

    assert text(bits[72:126]) == "111111000000000111000000111000000111111000000000000000"
    assert text(bits[126:]) == "011101001000000001000000110000000010000010100000" + "1110110000110110"


@pytest.mark.parametrize("name", PACKET_TYPES)
def test_the_longest_packet_of_a_type_ends_in_time_for_the_next_hop(name: str) -> None:
    kind = PACKET_TYPES[name]
    bits = br_bits(bytes(kind.most_bytes), 0x9E8B33, 0, name)

    # A synthesiser needs about 220 us of the last slot to change its frequency.
    assert len(bits) <= 625 * kind.n_slots - 220


@given(st.binary(max_size=27), st.integers(0, 2**48 - 1), st.integers(0, 2**28 - 1))
def test_whitening_is_undone_by_the_same_clock(payload: bytes, address: int, clock: int) -> None:
    plain, white = (br_bits(payload, address, tick) for tick in (None, clock))
    sent = np.concatenate([white[72:126:3], white[126:]])

    assert np.array_equal(whiten(sent, 64 | clock >> 1 & 63), np.concatenate([plain[72:126:3], plain[126:]]))
    assert np.array_equal(plain[:72], white[:72])


@pytest.mark.parametrize(
    ("address", "channels"),
    [(0, [8, 66, 10, 70, 12, 19, 14, 23]), (0x2A96EF25, [55, 26, 19, 20, 23, 22, 53, 40])],
)
def test_hops_of_the_sample_data(address: int, channels: list[int]) -> None:
    assert hops(range(0x10, 0x20, 2), address).tolist() == channels


@given(st.integers(0, 2**28 - 1), st.integers(0, 2**27))
def test_thirty_two_hops_in_a_row_use_thirty_two_channels(address: int, start: int) -> None:
    first = start & ~0x7F  # so that the clock's upper bits stay as they are
    channels = hops(first + 4 * np.arange(32), address)

    assert len(set(channels.tolist())) == 32


def test_all_79_channels_are_used_equally_often() -> None:
    counts = np.bincount(hops(2 * np.arange(79 * 4096), 0x2A96EF25), minlength=79)

    assert len(counts) == 79
    assert counts.min() > 0.9 * 4096
    assert counts.max() < 1.1 * 4096


def test_only_28_bits_of_the_address_matter_for_hopping() -> None:
    clocks = np.arange(0, 4096, 2)

    assert np.array_equal(hops(clocks, 0x123456789ABC), hops(clocks, 0x6789ABC))
    assert not np.array_equal(hops(clocks, 0x6789ABC), hops(clocks, 0x6789ABD))


def test_frequencies() -> None:
    assert (br_frequency_hz(0), br_frequency_hz(78)) == (2402e6, 2480e6)


def test_what_bluetooth_cannot_send_is_refused() -> None:
    with pytest.raises(SpecError, match="28 bytes in a DH1 packet; use at most 27"):
        br_packet(bytes(28), 0, 0, rate_hz=4e6)
    with pytest.raises(SpecError, match="unknown packet type 'DM1'; choose one of: DH1, DH3, DH5"):
        br_packet(b"", 0, 0, rate_hz=4e6, packet_type="DM1")
    with pytest.raises(SpecError, match=r"1e\+06 samples/s for a Bluetooth packet; use at least 2e\+06"):
        br_packet(b"", 0, 0, rate_hz=1e6)
    with pytest.raises(SpecError, match="Bluetooth channel 79; use 0 to 78"):
        br_frequency_hz(79)


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
