"""A folder with one file per device: which files count, and whose they are."""

from __future__ import annotations

from pathlib import Path

from tolfl.datasets.loaders.files import unreadable
from tolfl.datasets.loaders.problems import DataFileError, refuse_pickle

#: Kinds of files by how their names end; the longer ending first.
_KINDS = {
    ".csv.gz": "csv",
    ".tsv.gz": "csv",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npz": "npz",
    ".npy": "npy",
}
#: Kinds that hold arrays instead of named columns.
ARRAY_KINDS = ("npz", "npy")
#: Companions of data, which may lie beside them. Anything else is refused: it might be a device.
_COMPANIONS = (".md", ".txt", ".rst", ".html", ".pdf")


def kind_of(path: Path) -> str:
    """Return what kind of file it is by its name: csv, parquet, npz or npy."""
    refuse_pickle(path)
    ending = _ending(path)
    if not ending:
        raise DataFileError(path, f"unknown kind of file; use one of {', '.join(_KINDS)}")
    return _KINDS[ending]


def owner_of(path: Path) -> str:
    """Return whose file it is.

    >>> owner_of(Path("data/site-7.csv.gz"))
    'site-7'
    """
    return path.name[: len(path.name) - len(_ending(path))]


def device_files(folder: Path) -> list[Path]:
    """Return the files of a folder, one per device, in the order of their names."""
    try:
        entries = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as problem:
        raise unreadable(folder, problem) from None
    files = [path for path in entries if path.suffix.lower() not in _COMPANIONS and path.name != "LICENSE"]
    if not files:
        raise DataFileError(folder, "there is no file in it; put one CSV, Parquet, NPZ or NPY file per device there")
    by_owner: dict[str, Path] = {}
    for path in files:
        if path.is_dir():
            raise DataFileError(path, "a folder inside the folder of devices; put one file per device there")
        if (kind_of(path) in ARRAY_KINDS) != (kind_of(files[0]) in ARRAY_KINDS):
            raise DataFileError(path, f"arrays and tables are mixed ({files[0].name}); use one kind for all devices")
        other = by_owner.setdefault(owner_of(path), path)
        if other != path:
            raise DataFileError(path, f"the same device as {other.name}; give each device one file")
    return files


def _ending(path: Path) -> str:
    return next((ending for ending in _KINDS if path.name.lower().endswith(ending)), "")
