"""msgpack, as much of it as calls and answers need: the app's environment has no library for it."""

from __future__ import annotations

import struct
from typing import Any, BinaryIO


def pack(value: Any) -> bytes:
    """Return a value of plain kinds as msgpack."""
    out: list[bytes] = []
    _write(value, out)
    return b"".join(out)


def unpack(data: bytes) -> Any:
    """Return the value that msgpack holds."""
    return _Reader(data).value()


def send(pipe: BinaryIO, value: Any) -> None:
    """Write one frame: its length, then msgpack."""
    data = pack(value)
    pipe.write(struct.pack("<Q", len(data)))
    pipe.write(data)
    pipe.flush()


def receive(pipe: BinaryIO) -> Any:
    """Read one frame; `EOFError` if the other side is gone."""
    head = pipe.read(8)
    if len(head) < 8:
        raise EOFError
    n_bytes = struct.unpack("<Q", head)[0]
    data = pipe.read(n_bytes)
    if len(data) < n_bytes:
        raise EOFError
    return unpack(data)


def _write(value: Any, out: list[bytes]) -> None:
    if value is None:
        out.append(b"\xc0")
    elif value is True or value is False:
        out.append(b"\xc3" if value else b"\xc2")
    elif isinstance(value, int):
        out.append(struct.pack(">Bq", 0xD3, value) if value < 2**63 else struct.pack(">BQ", 0xCF, value))
    elif isinstance(value, float):
        out.append(struct.pack(">Bd", 0xCB, value))
    elif isinstance(value, str):
        data = value.encode("utf-8", "replace")
        out += [struct.pack(">BI", 0xDB, len(data)), data]
    elif isinstance(value, (bytes, bytearray, memoryview)):
        out += [struct.pack(">BI", 0xC6, len(value)), bytes(value)]
    elif isinstance(value, (list, tuple)):
        out.append(struct.pack(">BI", 0xDD, len(value)))
        for one in value:
            _write(one, out)
    elif isinstance(value, dict):
        out.append(struct.pack(">BI", 0xDF, len(value)))
        for key, one in value.items():
            _write(key, out)
            _write(one, out)
    else:
        raise TypeError(type(value).__name__)


#: Kinds of fixed size by their first byte, and lengths of texts, bytes, lists and maps.
_NUMBERS = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i",
    0xD3: ">q",
}  # fmt: skip
_SIZED = {
    0xC4: ("bin", ">B"), 0xC5: ("bin", ">H"), 0xC6: ("bin", ">I"), 0xD9: ("str", ">B"), 0xDA: ("str", ">H"),
    0xDB: ("str", ">I"), 0xDC: ("list", ">H"), 0xDD: ("list", ">I"), 0xDE: ("map", ">H"), 0xDF: ("map", ">I"),
}  # fmt: skip
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = memoryview(data), 0

    def value(self) -> Any:
        first = self._take(1)[0]
        if first in _CONSTANTS:
            return _CONSTANTS[first]
        if first in _NUMBERS:
            return self._number(_NUMBERS[first])
        if first <= 0x7F:
            return first
        if first >= 0xE0:
            return first - 256
        if first in _SIZED:
            kind, form = _SIZED[first]
            return self._sized(kind, self._number(form))
        if first < 0xC0:
            kind, length = (
                ("map", first & 15) if first < 0x90 else ("list", first & 15) if first < 0xA0 else ("str", first & 31)
            )
            return self._sized(kind, length)
        raise ValueError(f"no msgpack that is used here: {first:#x}")

    def _sized(self, kind: str, length: int) -> Any:
        if kind == "map":
            return {self.value(): self.value() for _ in range(length)}
        if kind == "list":
            return [self.value() for _ in range(length)]
        data = self._take(length)
        return bytes(data) if kind == "bin" else str(data, "utf-8", "replace")

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _take(self, length: int) -> memoryview:
        data = self._data[self._at : self._at + length]
        if len(data) < length:
            raise ValueError("msgpack ends too early")
        self._at += length
        return data
