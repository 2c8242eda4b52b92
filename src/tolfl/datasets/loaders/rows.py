"""Which file and which row a value comes from, so that an error can name both."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path

from tolfl.datasets.loaders.problems import DataFileError


@dataclass(frozen=True)
class Rows:
    """The rows of one or more files, one after the other.

    >>> rows = Rows(Path("site"), (Path("a.csv"), Path("b.csv")), (0, 10))
    >>> str(rows.error(12, "too hot"))
    'b.csv: data row 3: too hot'
    """

    path: Path
    """What was asked for: a file, or a folder of files."""
    files: tuple[Path, ...]
    starts: tuple[int, ...]
    """The first row of each file."""

    @classmethod
    def of(cls, path: Path) -> Rows:
        """Return the rows of a single file."""
        return cls(path, (path,), (0,))

    def error(self, row: int, problem: str) -> DataFileError:
        """Return the error about a row; rows of data count from 1, below the header."""
        file = bisect_right(self.starts, row) - 1
        return DataFileError(self.files[file], f"data row {row - self.starts[file] + 1}: {problem}")
