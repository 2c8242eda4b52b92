"""A folder with one file per device: the files that are read, and the device of each."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

from tolfl.core.errors import DataFileError, MissingDataError

#: Kinds of files by how their names end; a folder holds only one: files of one kind have the same features.
_ENDINGS = {
    "tables": (".csv.gz", ".tsv.gz", ".csv.zst", ".csv", ".tsv", ".jsonl.gz", ".jsonl", ".ndjson", ".arrow", ".feather",
               ".parquet", ".pq"),
    "arrays": (".npz", ".npy"),
    "captures": (".pcap.gz", ".pcapng.gz", ".pcap", ".pcapng", ".cap"),
    "recordings": (".sigmf-meta", ".sigmf-data", ".sigmf"),
    "raw samples": (".cu8", ".cs8", ".cs16", ".cf32"),
}  # fmt: skip
_KINDS = {ending: kind for kind, endings in _ENDINGS.items() for ending in endings}
#: Reading any of these can run code of its author's choice.
_PICKLED = (".pkl", ".pickle", ".pt", ".pth", ".joblib")
#: How dumpcap calls the files that follow one another: a number, and the time of the first packet.
_ROTATED = re.compile(r"_\d{5}(_\d{14})?$")
#: Files that may lie beside data. Any other is refused: it might be a device's.
_COMPANIONS = (".md", ".txt", ".rst", ".html", ".pdf")


def refuse_pickle(path: Path) -> None:
    """Raise an error where a file is pickled by its name."""
    if path.suffix.lower() in _PICKLED:
        raise DataFileError(
            path, "pickled files are never read: they can run code; save the data as CSV, Parquet or NPZ instead"
        )


def unreadable(path: Path, problem: OSError) -> DataFileError | MissingDataError:
    """Return the error for a file that cannot be opened."""
    if isinstance(problem, FileNotFoundError):
        return MissingDataError(f"{path}: no such file; check the path")
    return DataFileError(path, f"cannot be read ({problem.strerror or problem}); check the path and its permissions")


def owner_of(path: Path) -> str:
    """Return the device of a file.

    >>> owner_of(Path("data/site-7.csv.gz")), owner_of(Path("router_00002_20240101120000.pcap"))
    ('site-7', 'router')
    """
    name = path.name[: len(path.name) - len(_ending(path))]
    return _ROTATED.sub("", name) if kind_of(path) == "captures" else name


def kind_of(path: Path) -> str:
    """Return what a file holds by its name; empty: not known from the name.

    >>> kind_of(Path("site-7.csv.gz")), kind_of(Path("router.pcap")), kind_of(Path("notes"))
    ('tables', 'captures', '')
    """
    return _KINDS.get(_ending(path), "")


def device_files(folder: Path) -> list[Path]:
    """Return the files of a folder, one per device, in the order of their names."""
    try:
        entries = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as problem:
        raise unreadable(folder, problem) from None
    files = [path for path in entries if not _is_companion(path)]
    if not files:
        raise DataFileError(
            folder, "there is no file in it; put one CSV, Parquet, NPZ, pcap or SigMF file per device there"
        )
    by_owner: dict[str, Path] = {}
    for path in files:
        if path.is_dir():
            raise DataFileError(path, "a folder inside the folder of devices; put one file per device there")
        kinds = sorted({_known_kind(path), _known_kind(files[0])})
        if len(kinds) > 1:
            mixed = " and ".join(kinds)
            raise DataFileError(path, f"{mixed} are mixed ({files[0].name}); use one kind for all devices")
        other = by_owner.setdefault(owner_of(path), path)
        if other != path and not (kinds == ["captures"] and _follows(other) and _follows(path)):
            raise DataFileError(path, f"the same device as {other.name}; give each device one file")
    return files


def _is_companion(path: Path) -> bool:
    """Return whether a file is no data of its own; the samples of a recording belong to its metadata."""
    ending = path.suffix.lower()
    is_samples = ending == ".sigmf-data" and path.with_suffix(".sigmf-meta").exists()
    return is_samples or ending in (*_COMPANIONS, ".sigmf-collection") or path.name == "LICENSE"


def by_device(files: list[Path]) -> list[tuple[str, list[Path]]]:
    """Return files by the device they belong to: one each, but for captures that follow one another."""
    ordered = sorted(files, key=lambda path: (owner_of(path), path.name))
    return [(owner, list(own)) for owner, own in groupby(ordered, key=owner_of)]


def _known_kind(path: Path) -> str:
    refuse_pickle(path)
    if not (kind := kind_of(path)):
        raise DataFileError(path, f"unknown kind of file; use one of {', '.join(_KINDS)}")
    return kind


def _follows(path: Path) -> bool:
    """Return whether a capture is one of several that follow one another, by its name."""
    return _ROTATED.search(path.name[: len(path.name) - len(_ending(path))]) is not None


def _ending(path: Path) -> str:
    return next((ending for ending in _KINDS if path.name.lower().endswith(ending)), "")
