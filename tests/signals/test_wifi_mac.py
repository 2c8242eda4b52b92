"""Data frames and aggregates, read by the rules of the receiving side."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.signals.wifi_receiver import frames_of
from tolfl.core.errors import SpecError
from tolfl.signals.wifi import data_mpdu
from tolfl.signals.wifi_vht import ampdu, delimiter, fill

RECEIVER, ACCESS_POINT, SOURCE = (bytes.fromhex(text) for text in ("020000000001", "020000000002", "020000000003"))


def test_a_data_frame_by_hand() -> None:
    frame = data_mpdu(b"hello", RECEIVER, ACCESS_POINT, SOURCE, sequence_number=5)

    assert frame[:-4].hex() == "8802" + "0000" + "020000000001" + "020000000002" + "020000000003" + "5000" + "0000" + (
        b"hello".hex()
    )
    assert zlib.crc32(frame) == 0x2144DF1C  # what is left of any frame with a right check sequence


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
    with pytest.raises(SpecError, match="the receiver's address has 5 bytes; use 6"):
        data_mpdu(b"", bytes(5), ACCESS_POINT, SOURCE)
    with pytest.raises(SpecError, match="an aggregate of no frames; use at least one"):
        ampdu([])
    with pytest.raises(SpecError, match="a frame of 11455 bytes in an aggregate; use 1 to 11454"):
        ampdu([bytes(11_455)])
