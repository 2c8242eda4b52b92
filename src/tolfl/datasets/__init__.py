"""Data for a fleet: load, describe, split, partition over devices."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tolfl.datasets.catalog import DATASETS, check_name, is_path, load, load_raw
    from tolfl.datasets.federated import FederatedDataset, RawData

__all__ = ["DATASETS", "FederatedDataset", "RawData", "check_name", "is_path", "load", "load_raw"]

#: The module of each name that is not in `catalog`.
_ELSEWHERE = {"FederatedDataset": "federated", "RawData": "federated"}


def __getattr__(name: str) -> object:
    """Import a name when it is first asked for: a detector that scores needs no generator of data."""
    if name not in __all__:
        raise AttributeError(f"module 'tolfl.datasets' has no attribute {name!r}")
    return getattr(import_module(f"tolfl.datasets.{_ELSEWHERE.get(name, 'catalog')}"), name)
