"""Rows from anywhere: `blocks` reads them, a `Schema` says what their columns mean."""

from tolfl.tables.block_reader import Block, Reading, blocks, blocks_of, spooled
from tolfl.tables.rows import Rows, settle
from tolfl.tables.schema import Column, Roles, Schema

__all__ = ["Block", "Column", "Reading", "Roles", "Rows", "Schema", "blocks", "blocks_of", "settle", "spooled"]
