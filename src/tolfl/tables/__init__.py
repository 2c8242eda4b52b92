"""Rows from anywhere: `blocks` reads them, a `Schema` says what their columns mean."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tolfl.tables.schema import Column, Roles, Schema

if TYPE_CHECKING:
    from tolfl.tables.block_reader import Block, Reading, blocks, blocks_of, spooled
    from tolfl.tables.rows import Rows, settle

__all__ = ["Block", "Column", "Reading", "Roles", "Rows", "Schema", "blocks", "blocks_of", "settle", "spooled"]

#: What needs pyarrow, which is an extra, and where it is.
_ELSEWHERE = {
    "Block": "block_reader",
    "Reading": "block_reader",
    "Rows": "rows",
    "blocks": "block_reader",
    "blocks_of": "block_reader",
    "settle": "rows",
    "spooled": "block_reader",
}


def __getattr__(name: str) -> object:
    """Import a name when it is first asked for."""
    if name not in _ELSEWHERE:
        raise AttributeError(f"module 'tolfl.tables' has no attribute {name!r}")
    return getattr(import_module(f"tolfl.tables.{_ELSEWHERE[name]}"), name)
