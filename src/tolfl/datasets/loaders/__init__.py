"""Public data sets: pictures and WSN-DS, how to find, fetch and read them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tolfl.datasets.loaders.cifar import read_cifar
from tolfl.datasets.loaders.class_names import CLASS_NAMES
from tolfl.datasets.loaders.downloads import DownloadProgress, download
from tolfl.datasets.loaders.idx import read_idx_pictures
from tolfl.datasets.loaders.places import PUBLIC_SETS, cache_dir, find, search_order
from tolfl.datasets.loaders.problems import DownloadError
from tolfl.datasets.raw import RawData

if TYPE_CHECKING:
    from tolfl.datasets.loaders.wsn_ds import read_wsn_ds

__all__ = [
    "CLASS_NAMES",
    "PUBLIC_SETS",
    "DownloadError",
    "DownloadProgress",
    "cache_dir",
    "download",
    "find",
    "load_public",
    "read_cifar",
    "read_idx_pictures",
    "read_wsn_ds",
    "search_order",
]


def __getattr__(name: str) -> object:
    """Import the reader of WSN-DS, which needs pyarrow, when it is first asked for."""
    if name != "read_wsn_ds":
        raise AttributeError(f"module 'tolfl.datasets.loaders' has no attribute {name!r}")
    return getattr(import_module("tolfl.datasets.loaders.wsn_ds"), name)


def load_public(name: str, data_dir: str = "", colour: bool = False, fine: bool = False) -> RawData:
    """Return a public data set from wherever it lies; `colour` is for CIFAR, `fine` for CIFAR-100."""
    folder = find(name, data_dir)
    if name.startswith("cifar"):
        return read_cifar(folder, name, colour, fine)
    if name == "wsn-ds":
        from tolfl.datasets.loaders.wsn_ds import read_wsn_ds  # noqa: PLC0415  (pyarrow is an extra)

        return read_wsn_ds(folder)
    return read_idx_pictures(folder, name)
