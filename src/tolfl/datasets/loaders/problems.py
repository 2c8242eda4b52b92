"""What can be wrong with data on disk or on their way here: one sentence each, with the file and what to do."""

from __future__ import annotations

from pathlib import Path

from tolfl.core.errors import DataError, TolFLError

#: Reading any of these back would run code of the writer's choice.
_PICKLED = (".pkl", ".pickle", ".pt", ".pth", ".joblib")


class DataFileError(DataError):
    """A file does not hold what its kind promises."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path, self.problem = path, problem


class MissingDataError(DataError, FileNotFoundError):
    """A file or a public data set is not where it was looked for."""


class DownloadError(TolFLError, OSError):
    """A public data set could not be fetched."""


def refuse_pickle(path: Path) -> None:
    """Raise an error where a file is pickled by its name."""
    if path.suffix.lower() in _PICKLED:
        raise DataFileError(
            path, "pickled files are never read, they can run code; save the data as CSV, Parquet or NPZ instead"
        )
