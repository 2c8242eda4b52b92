"""Readers of data on disk: public picture sets, WSN-DS, tables of one's own; and how to find and fetch them."""

from tolfl.datasets.loaders.cifar import read_cifar
from tolfl.datasets.loaders.class_names import CLASS_NAMES
from tolfl.datasets.loaders.downloads import DownloadProgress, download
from tolfl.datasets.loaders.idx import read_idx_pictures
from tolfl.datasets.loaders.places import PUBLIC_SETS, cache_dir, find, search_order
from tolfl.datasets.loaders.problems import DataFileError, DownloadError, MissingDataError
from tolfl.datasets.loaders.tables import read_table
from tolfl.datasets.loaders.wsn_ds import read_wsn_ds
from tolfl.datasets.raw import RawData

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


def load_public(name: str, data_dir: str = "", colour: bool = False, fine: bool = False) -> RawData:
    """Return a public data set from wherever it lies; `colour` is for CIFAR, `fine` for CIFAR-100."""
    folder = find(name, data_dir)
    if name.startswith("cifar"):
        return read_cifar(folder, name, colour, fine)
    if name == "wsn-ds":
        return read_wsn_ds(folder)
    return read_idx_pictures(folder, name)
