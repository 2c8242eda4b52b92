"""A table as `fit`, `simulate` and the network read it."""

from __future__ import annotations

from pathlib import Path

from tolfl.core.spec import DatasetSpec
from tolfl.datasets import own_table
from tolfl.datasets.federated import RawData


def read_table(path: Path, device_column: str = "", label_column: str = "", time_column: str = "") -> RawData:
    spec = DatasetSpec(device_column=device_column, label_column=label_column, time_column=time_column)
    return own_table.read_table(str(path), spec)
