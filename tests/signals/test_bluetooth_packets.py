"""Bits of Bluetooth packets against the sample data of the Core specification (vol. 2 part G) and packets on air."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tolfl.core.errors import SpecError
from tolfl.signals.bluetooth import (
    advertisement,
    br_frequency_hz,
    br_packet,
    hop,
    hops,
    le_frequency_hz,
    le_packet,
)
from tolfl.signals.bluetooth.basic_rate import PACKET_TYPES, Link, br_bits
from tolfl.signals.bluetooth.codes import (
    access_code,
    bits_of,
    hamming,
    header_check,
    low_energy_check,
    number_bits,
    payload_check,
    repeated,
    whitened,
    whitening,
)
from tolfl.signals.bluetooth.low_energy import le_bits

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
LINK_OF_THE_EXAMPLES = Link(member=3, may_send=False, acknowledges=True)


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
    assert header_check(header, uap) == check
    bits = np.concatenate([number_bits(header, 10), number_bits(check, 8)])
    assert text(repeated(bits)) == "".join(f"{int(digit):03b}" for digit in sent)


def test_the_check_of_a_payload() -> None:
    assert payload_check(bytes.fromhex("4e010203040506070809"), 0x47).hex() == "6dd2"


def test_whitening_from_a_register_of_ones() -> None:
    assert text(whitening(0x7F)) == (
        "11100011101100010100101111101010100001011011110011100101011001100000110110101110100011001000100000010010"
        "01101001111011100001111"
    )


def test_the_clock_sets_where_whitening_starts() -> None:
    # From ones, one step leads to 1101111 and the next to 1001111: the clock's bits 6 to 1 behind a one.
    ones = br_bits(b"", 0, 0b1111110, "NULL")[72:]
    for steps, clock_bits in enumerate([0b111111, 0b101111, 0b001111]):
        assert text(whitening(1 << 6 | clock_bits)) == text(np.roll(whitening(0x7F), -steps))
    plain = br_bits(b"", 0, None, "NULL")[72:]
    assert np.array_equal((plain ^ ones)[::3], whitening(0x7F)[:18])


@pytest.mark.parametrize(
    ("place", "checks"),
    list(enumerate(["11010", "01101", "11100", "01110", "00111", "11001", "10110", "01011", "11111", "10101"])),
)
def test_the_hamming_code(place: int, checks: str) -> None:
    assert text(hamming(number_bits(1 << place, 10))[10:]) == checks


def test_a_dh1_packet() -> None:
    bits = br_bits(bytes([1, 2, 3, 4, 5]), 0x47000000, None, "DH1", LINK_OF_THE_EXAMPLES)

    assert text(bits[72:126]) == "111111000000000111000000111000000111111000000000000000"
    assert text(bits[126:]) == "011101001000000001000000110000000010000010100000" + "1110110000110110"


def test_a_dm1_packet() -> None:
    bits = br_bits(bytes([1, 2, 3, 4, 5]), 0x47000000, None, "DM1", LINK_OF_THE_EXAMPLES)

    assert text(bits[72:126]) == "111111000111111000000000111000111000000111111111111000"
    assert text(bits[126:]) == (
        "011101001011001" + "000000010001011" + "000011000011110" + "000010000000111" + "101000001101100"
        "101100001100010" + "011000000010001"
    )


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

    assert np.array_equal(whitened(sent, 64 | clock >> 1 & 63), np.concatenate([plain[72:126:3], plain[126:]]))
    assert np.array_equal(plain[:72], white[:72])


@pytest.mark.parametrize(
    ("address", "channels"),
    [(0, [8, 66, 10, 70, 12, 19, 14, 23]), (0x2A96EF25, [55, 26, 19, 20, 23, 22, 53, 40])],
)
def test_hops_of_the_sample_data(address: int, channels: list[int]) -> None:
    assert [hop(clock, address) for clock in range(0x10, 0x20, 2)] == channels


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
    assert sorted(le_frequency_hz(channel) for channel in range(40)) == [2402e6 + 2e6 * n for n in range(40)]


@pytest.mark.parametrize(
    ("pdu", "check", "sent"),
    [
        (
            "00119992b1ebd7900201050702031802180418",
            "a85def",
            "aad6be898e8dc3ce338c4cb1207730144f9474e0e15eedb378c3bc",
        ),
        (
            "05225f96ea3018009992b1ebd7901b0a8560a77b22020f0050000000d007ffffffff1fa9",
            "48da02",
            "aad6be898e88f00837d7977eb0eca3a0a341e7e3e9c3890cabbc513cd8ea9808241b3c038e5c0b4ac187731b",
        ),
    ],
    ids=["ADV_IND", "CONNECT_IND"],
)
def test_low_energy_packets_that_another_transmitter_sends_on_channel_37(pdu: str, check: str, sent: str) -> None:
    assert low_energy_check(bytes.fromhex(pdu), 0x555555).hex() == check
    assert np.packbits(le_bits(bytes.fromhex(pdu), 37), bitorder="little").tobytes().hex() == sent


@given(st.binary(min_size=2, max_size=50), st.integers(0, 39), st.integers(0, 399))
def test_the_low_energy_check_finds_any_wrong_bit(pdu: bytes, channel: int, place: int) -> None:
    bits = bits_of(pdu)
    bits[place % len(bits)] ^= 1
    damaged = np.packbits(bits, bitorder="little").tobytes()

    assert low_energy_check(damaged, 0x555555) != low_energy_check(pdu, 0x555555)
    assert len(le_bits(pdu, channel)) == 8 * (1 + 4 + len(pdu) + 3)


def test_the_preamble_alternates_into_the_access_address() -> None:
    assert text(le_bits(bytes(2), 0, access_address=0x71764129)[:9]) == "101010101"
    assert text(le_bits(bytes(2), 0)[:9]) == "010101010"


def test_an_advertisement_by_hand() -> None:
    assert advertisement(bytes.fromhex("c00000000001"), b"\x02\x01\x06").hex() == "4209" + "c00000000001" + "020106"


def test_what_bluetooth_cannot_send_is_refused() -> None:
    with pytest.raises(SpecError, match="28 bytes in a DH1 packet; use at most 27"):
        br_packet(bytes(28), 0, 0, rate_hz=4e6)
    with pytest.raises(SpecError, match="unknown packet type 'DH2'; choose one of: NULL, POLL"):
        br_packet(b"", 0, 0, rate_hz=4e6, packet_type="DH2")
    with pytest.raises(SpecError, match="member 8 of a piconet; use 0 to 7"):
        br_packet(b"", 0, 0, rate_hz=4e6, link=Link(member=8))
    with pytest.raises(SpecError, match=r"modulation index 0.5; use 0.28 to 0.35"):
        br_packet(b"", 0, 0, rate_hz=4e6, modulation_index=0.5)
    with pytest.raises(SpecError, match=r"1e\+06 samples/s for a Bluetooth packet; use at least 2e\+06"):
        le_packet(bytes(2), 0, rate_hz=1e6)
    with pytest.raises(SpecError, match="low-energy channel 40; use 0 to 39"):
        le_packet(bytes(2), 40, rate_hz=4e6)
    with pytest.raises(SpecError, match="a low-energy data unit of 1 bytes; use 2 to 257"):
        le_packet(bytes(1), 0, rate_hz=4e6)
    with pytest.raises(SpecError, match="an advertisement from an address of 6 bytes with 32 bytes of data"):
        advertisement(bytes(6), bytes(32))
    with pytest.raises(SpecError, match="Bluetooth channel 79; use 0 to 78"):
        br_frequency_hz(79)
