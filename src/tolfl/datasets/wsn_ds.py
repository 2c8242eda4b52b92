"""WSN-DS: a simulated wireless sensor network (LEACH in NS-2) under four kinds of attacks.

Almomani, Al-Kasasbeh, Al-Akhras: WSN-DS: A Dataset for Intrusion Detection Systems in Wireless Sensor Networks,
Journal of Sensors 2016, doi:10.1155/2016/4731953.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa

from tolfl.core.errors import DataFileError
from tolfl.datasets.public_sets import PUBLIC_SETS, file_in
from tolfl.datasets.raw import RawData
from tolfl.tables import Block, Roles, blocks, settle
from tolfl.tables.values import numbers, plain

#: `id` is the round and the node, `who_CH` the id of its cluster head: neither is anything a node measured.
_NOT_MEASURED = ("id", "who_ch", "time", "attack_type")
_NODES_PER_ROUND = 1000


def read_wsn_ds(path: Path) -> RawData:
    """Return WSN-DS from its CSV file or the folder that it is in: one owner per node, class "Normal" is typical."""
    if path.is_dir():
        path = file_in(path, PUBLIC_SETS["wsn-ds"].files[0])
    read = [block.table for block in blocks(path)]
    # Copies differ in blanks: " id", "who CH" and "who_CH", "Attack type" and "Attack_type".
    table = pa.concat_tables(read).rename_columns([re.sub(r"\s+", "_", name) for name in read[0].column_names])
    spelled = {name.lower(): name for name in table.column_names}
    for needed in _NOT_MEASURED:
        if needed not in spelled:
            raise DataFileError(path, f"there is no column {needed!r}, so this is not WSN-DS; get it again")
    ids, is_bad = numbers(plain(table.column(spelled["id"])))
    if is_bad.any() or not np.isfinite(ids).all():
        raise DataFileError(path, "column 'id' is not a whole number in every row; get the file again")
    table = table.drop_columns([spelled["id"], spelled["who_ch"]])
    roles = Roles(label=spelled["attack_type"], time=spelled["time"])
    measured = [name for name in table.column_names if name not in roles.columns]
    block = Block(table, source=str(path))
    rows = settle([block], roles, columns=measured).rows(block)
    if rows.errors:
        raise block.error(min(rows.errors), rows.errors[min(rows.errors)])
    assert rows.labels is not None
    nodes = (ids % _NODES_PER_ROUND).astype(np.int64).astype(str)
    return RawData("wsn-ds", rows.values, rows.labels, owners=nodes, times=rows.times, feature_names=tuple(measured))
