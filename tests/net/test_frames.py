"""Messages in chunks: put together again however they were cut, and never more memory than a model takes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.net.test_codec import FLEET, HEADER, closed, mean, report
from tests.net.wire_messages import any_message, fleets, plain
from tolfl.net import wire_pb2 as pb
from tolfl.net.codec import Expected, RefusedMessageError, encode
from tolfl.net.frames import CHUNK_BYTES, MAX_FRAME_BYTES, Assembler, chunks
from tolfl.protocol import messages
from tolfl.protocol.messages import AnyMessage


def cut(content: bytes, places: Sequence[float]) -> Iterator[bytes]:
    """Cut bytes at places between 0 and 1, and wherever a piece would be too large."""
    ends = sorted({int(place * len(content)) for place in places} | {len(content)})
    for first, last in zip([0, *ends], ends, strict=False):
        for start in range(first, last, CHUNK_BYTES):
            yield content[start : min(last, start + CHUNK_BYTES)]


def assembled(assembler: Assembler, message: pb.Message, pieces: Sequence[bytes]) -> AnyMessage | None:
    whole = assembler.start(message)
    for piece in pieces:
        assert whole is None
        whole = assembler.add(piece)
    return whole


@settings(max_examples=60)
@given(st.data(), st.lists(st.floats(0, 1), max_size=6))
def test_a_message_is_put_together_however_it_was_cut(data: st.DataObject, places: list[float]) -> None:
    fleet = data.draw(fleets())
    sent = data.draw(st.lists(any_message(fleet), min_size=1, max_size=3))
    assembler = Assembler(fleet)
    for message in sent:
        encoded, tensors = encode(message)
        content = b"".join(frame.chunk for frame in chunks(tensors))
        whole = assembled(assembler, encoded, list(cut(content, places)))
        assert whole is not None
        assert plain(whole) == plain(message)


@settings(max_examples=5)
@given(st.data(), st.integers(CHUNK_BYTES // 8 - 1, CHUNK_BYTES // 2 + 1))
def test_a_large_model_travels_in_frames_of_bounded_size(data: st.DataObject, n_params: int) -> None:
    small_one = data.draw(fleets())
    fleet = Expected(small_one.topology, small_one.keys, n_params, small_one.dtype)
    message = data.draw(any_message(fleet, messages.Closed))
    encoded, tensors = encode(message)
    frames = list(chunks(tensors))

    assert all(0 < len(frame.chunk) <= CHUNK_BYTES for frame in frames)
    assert all(frame.ByteSize() <= MAX_FRAME_BYTES for frame in frames)
    assert sum(len(frame.chunk) for frame in frames) == sum(tensor.nbytes for tensor in tensors)
    whole = assembled(Assembler(fleet), encoded, [frame.chunk for frame in frames])
    assert whole is not None
    assert plain(whole) == plain(message)


@pytest.mark.parametrize("order", ["<", ">"], ids=["little-endian", "big-endian"])
def test_bytes_are_little_endian_whatever_the_machine_has(order: Literal["<", ">"]) -> None:
    vector = np.array([1.0, -2.0], np.dtype(np.float32).newbyteorder(order))

    assert b"".join(frame.chunk for frame in chunks([vector])) == bytes.fromhex("0000803f 000000c0")


def test_a_vector_with_gaps_travels_without_them() -> None:
    vector = np.arange(8, dtype=np.float64)[::2]

    assert b"".join(frame.chunk for frame in chunks([vector])) == np.array([0.0, 2, 4, 6]).tobytes()


# -- refused ----------------------------------------------------------------------------------------------------------


def refused(assembler: Assembler, message: pb.Message | None, *pieces: bytes) -> str:
    """Return under which kind a message or the chunks after it are refused."""
    try:
        if message is not None:
            assembler.start(message)
        for piece in pieces:
            assembler.add(piece)
    except RefusedMessageError as error:
        return error.kind
    return "nothing"


def test_chunks_without_a_message_are_refused() -> None:
    assert refused(Assembler(FLEET), None, b"1234") == "malformed"


def test_chunks_after_the_end_of_a_message_are_refused() -> None:
    encoded, _ = encode(report())

    assert refused(Assembler(FLEET), encoded, b"\0" * 12, b"\0") == "malformed"


def test_a_message_inside_another_is_refused() -> None:
    assembler = Assembler(FLEET)
    encoded, _ = encode(report())
    assembler.start(encoded)

    assert refused(assembler, encode(messages.Heartbeat(*HEADER))[0]) == "malformed"


def test_more_bytes_than_announced_are_refused() -> None:
    encoded, _ = encode(report())

    assert refused(Assembler(FLEET), encoded, b"\0" * 11, b"\0\0") == "oversize"


def test_a_chunk_larger_than_any_is_refused() -> None:
    fleet = Expected(FLEET.topology, ("global",), CHUNK_BYTES, FLEET.dtype)
    encoded, _ = encode(report())
    encoded.report.contribution.parts[0].vector.length = CHUNK_BYTES

    assert refused(Assembler(fleet), encoded, b"\0" * (CHUNK_BYTES + 1)) == "malformed"


def test_bytes_that_are_no_finite_numbers_are_refused() -> None:
    encoded, _ = encode(mean())

    assert refused(Assembler(FLEET), encoded, b"\xff" * 12) == "non-finite"


def test_what_a_stranger_announces_costs_no_memory() -> None:
    encoded, _ = encode(closed())
    encoded.closed.models[0].params.length = 2**40
    tracemalloc.start()
    kind = refused(Assembler(FLEET), encoded, *[b"\0" * CHUNK_BYTES] * 4)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert kind == "shape"
    assert peak < 4 * CHUNK_BYTES


def test_a_stream_of_chunks_takes_no_more_memory_than_the_models_of_the_fleet() -> None:
    fleet = Expected(FLEET.topology, ("global",), CHUNK_BYTES, np.dtype(np.float32))
    encoded, _ = encode(report())
    encoded.report.contribution.parts[0].vector.length = fleet.n_params
    model_bytes, piece = 4 * fleet.n_params, b"\0" * (CHUNK_BYTES - 1)
    assembler = Assembler(fleet)
    tracemalloc.start()
    kind = refused(assembler, encoded, *[piece] * 1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert kind == "oversize"
    assert peak < 2 * model_bytes + 2 * CHUNK_BYTES
