"""Readers of data on disk: public picture sets, WSN-DS, tables of one's own; and how to find and fetch them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tolfl.datasets.loaders.cifar import read_cifar
from tolfl.datasets.loaders.class_names import CLASS_NAMES
from tolfl.datasets.loaders.downloads import DownloadProgress, download
from tolfl.datasets.loaders.idx import read_idx_pictures
from tolfl.datasets.loaders.places import PUBLIC_SETS, cache_dir, find, search_order
from tolfl.datasets.loaders.problems import DataFileError, DownloadError, MissingDataError
from tolfl.datasets.raw import RawData

if TYPE_CHECKING:
    from tolfl.datasets.loaders.tables import read_table
    from tolfl.datasets.loaders.wsn_ds import read_wsn_ds

__all__ = [
    "CLASS_NAMES",
    "PUBLIC_SETS",
    "DataFileError",
    "DownloadError",
    "DownloadProgress",
    "MissingDataError",
    "cache_dir",
    "download",
    "find",
    "load_public",
    "read_cifar",
    "read_idx_pictures",
    "read_table",
    "read_wsn_ds",
    "search_order",
]


#: Readers of tables, which need pyarrow: imported when they are first asked for.
_OF_TABLES = {"read_table": "tables", "read_wsn_ds": "wsn_ds"}


def __getattr__(name: str) -> object:
    """Import a reader of tables when it is first asked for."""
    if name not in _OF_TABLES:
        raise AttributeError(f"module 'tolfl.datasets.loaders' has no attribute {name!r}")
    return getattr(import_module(f"tolfl.datasets.loaders.{_OF_TABLES[name]}"), name)


def load_public(name: str, data_dir: str = "", colour: bool = False, fine: bool = False) -> RawData:
    """Return a public data set from wherever it lies; `colour` is for CIFAR, `fine` for CIFAR-100."""
    folder = find(name, data_dir)
    if name.startswith("cifar"):
        return read_cifar(folder, name, colour, fine)
    if name == "wsn-ds":
        from tolfl.datasets.loaders.wsn_ds import read_wsn_ds  # noqa: PLC0415  (pyarrow is an extra)

        return read_wsn_ds(folder)
    return read_idx_pictures(folder, name)
