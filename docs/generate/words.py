"""Small parts of Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def cell(text: str) -> str:
    r"""Return plain words so that Markdown takes none of them for a sign of its own, not even in a table.

    >>> cell("cut:3|4 <a>")
    'cut:3\\|4 &lt;a>'
    """
    # What stands between backquotes is code already.
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [re.sub(r"([*_\[\]])", r"\\\1", part).replace("<", "&lt;") for part in parts[::2]]
    return "".join(parts).replace("|", "\\|")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; its cells are Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: object, name: str) -> str:
    """Return a value with the unit that the end of its name says.

    >>> number(262144, "CHUNK_BYTES"), number(2.0, "_IDLE_S"), number(16, "MAX_STREAMS")
    ('256 KiB', '2 s', '16')
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"`{value!r}`" if isinstance(value, str) else f"`{value}`"
    ending = name.lower().rpartition("_")[2]
    if ending == "bytes":
        return _bytes(value)
    units = {"s": " s", "ms": " ms", "hz": " Hz", "db": " dB", "bps": " bit/s", "mhz": " MHz", "years": " years"}
    if name.lower().endswith("_per_s"):
        return f"{value:,} per second"
    return f"{_amount(value)}{units.get(ending, '')}"


def _amount(value: float) -> str:
    if isinstance(value, int) and value >= 2**30 and value.bit_count() == 1:
        return f"2^{value.bit_length() - 1}^"
    is_whole = value == int(value) and 1000 <= abs(value) < 1e15
    return f"{int(value):,}" if is_whole else f"{value:g}"


def _bytes(value: float) -> str:
    for size, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value >= size and value % size == 0:
            return f"{value // size:g} {unit}"
    return f"{_amount(value)} bytes"
