"""WSN-DS: a simulated wireless sensor network (LEACH in NS-2) under four kinds of attacks.

Almomani, Al-Kasasbeh, Al-Akhras: WSN-DS: A Dataset for Intrusion Detection Systems in Wireless Sensor Networks,
Journal of Sensors 2016, doi:10.1155/2016/4731953.
"""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa

from tolfl.datasets.loaders.columns import is_number, numbers
from tolfl.datasets.loaders.places import PUBLIC_SETS, file_in
from tolfl.datasets.loaders.problems import DataFileError
from tolfl.datasets.loaders.rows import Rows
from tolfl.datasets.loaders.tables import read_columns, to_raw
from tolfl.datasets.raw import RawData

#: `id` is the round and the node, `who_CH` the id of its cluster head: neither is anything a node measured.
_NOT_MEASURED = ("id", "who_ch", "time", "attack_type")
_NODES_PER_ROUND = 1000


def read_wsn_ds(path: Path) -> RawData:
    """Return WSN-DS from its CSV file or the folder that it is in: one owner per node, class "Normal" is typical."""
    if path.is_dir():
        path = file_in(path, PUBLIC_SETS["wsn-ds"].files[0])
    # Copies differ in blanks: " id", "who CH" and "who_CH", "Attack type" and "Attack_type".
    columns = {re.sub(r"\s+", "_", name): column for name, column in read_columns(path).items()}
    spelled = {name.lower(): name for name in columns}
    for needed in _NOT_MEASURED:
        if needed not in spelled:
            raise DataFileError(path, f"there is no column {needed!r}, so this is not WSN-DS; get it again")
    rows = Rows.of(path)
    ids = columns.pop(spelled["id"])
    del columns[spelled["who_ch"]]
    if not is_number(ids.type) or ids.null_count:
        raise DataFileError(path, "column 'id' is not a whole number in every row; get the file again")
    nodes = (numbers(rows, "id", ids) % _NODES_PER_ROUND).astype("int64")
    columns["id"] = pa.chunked_array([nodes])
    return to_raw("wsn-ds", rows, columns, "id", spelled["attack_type"], spelled["time"])
