"""The app's side speaks the msgpack that the device's side reads, and the other way round."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tolfl.flower.inside.packing import pack, unpack

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(max_size=300),
    lambda inner: (
        st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=40) | st.integers(0, 9), inner, max_size=5)
    ),
    max_leaves=12,
)


@given(plain)
def test_both_sides_read_what_either_writes(value: Any) -> None:
    assert msgspec.msgpack.decode(pack(value), strict=False) == value
    assert unpack(msgspec.msgpack.encode(value)) == value


def test_long_texts_lists_and_bytes_pass() -> None:
    value = {"a": "x" * 70_000, "b": list(range(70_000)), "c": bytes(70_000), "d": {str(i): i for i in range(70_000)}}

    assert unpack(msgspec.msgpack.encode(value)) == value == msgspec.msgpack.decode(pack(value))
