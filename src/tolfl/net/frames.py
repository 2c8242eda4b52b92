"""Messages in frames: a message with tensors is cut into chunks, so that nothing has to wait long for anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tolfl.core.contribution import Vector
from tolfl.net import wire_pb2 as pb
from tolfl.net.codec import Expected, RefusedMessageError, decode, tensors_of
from tolfl.protocol.messages import AnyMessage

#: Small enough that a chunk on a link of 20 Mbit/s takes a tenth of a second, large enough to cost nothing.
CHUNK_BYTES = 256 * 1024
#: No frame is larger: a chunk, or a message whose dead, roster and addresses are those of 10,000 devices.
MAX_FRAME_BYTES = 1024 * 1024


def chunks(tensors: Sequence[Vector]) -> Iterator[pb.Frame]:
    """Yield the bytes of tensors, little-endian, in frames."""
    for tensor in tensors:
        little = tensor.astype(tensor.dtype.newbyteorder("<"), copy=False)
        view = np.ascontiguousarray(little).view(np.uint8).data
        for first in range(0, len(view), CHUNK_BYTES):
            yield pb.Frame(chunk=bytes(view[first : first + CHUNK_BYTES]))


class Assembler:
    """Puts the frames of one stream together again."""

    def __init__(self, expected: Expected) -> None:
        self._expected = expected
        self._message: pb.Message | None = None  #: whose chunks are coming in
        self._tensors: list[Vector] = []
        self._buffer = bytearray()
        self._n_bytes = 0

    def start(self, message: pb.Message) -> AnyMessage | None:
        """Take in a message; return it if nothing follows it."""
        if self._message is not None:
            raise RefusedMessageError("malformed", "a message inside another")
        named = tensors_of(message, self._expected)
        if not named:
            return decode(message, [], self._expected)
        self._message = message
        self._n_bytes = len(named) * self._expected.n_params * self._expected.dtype.itemsize
        return None

    def add(self, chunk: bytes) -> AnyMessage | None:
        """Take in a chunk; return the message that it completes."""
        if self._message is None or len(chunk) > CHUNK_BYTES:
            raise RefusedMessageError("malformed", "a chunk that belongs to no message, or is too large")
        self._buffer += chunk
        if len(self._buffer) > self._n_bytes:
            raise RefusedMessageError("oversize", "more bytes than its tensors have")
        if len(self._buffer) < self._n_bytes:
            return None
        message, self._message = self._message, None
        numbers = np.frombuffer(self._buffer, self._expected.dtype.newbyteorder("<")).astype(self._expected.dtype)
        self._buffer = bytearray()
        return decode(message, list(numbers.reshape(-1, self._expected.n_params)), self._expected)
