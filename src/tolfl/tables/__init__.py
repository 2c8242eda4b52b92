"""Rows of files, streams and frames: `blocks` reads them, a `Schema` has the meaning of their columns."""

from tolfl.tables.block_reader import Block, Reading, blocks, blocks_of, spooled
from tolfl.tables.schema import Column, Roles, Rows, Schema
from tolfl.tables.settling import settle

__all__ = ["Block", "Column", "Reading", "Roles", "Rows", "Schema", "blocks", "blocks_of", "settle", "spooled"]
