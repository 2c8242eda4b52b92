"""Whether two folders of results hold the same rows: `python -m benchmarks.rows OLD NEW`.

For whoever changes an experiment: every row of OLD must be in NEW, with the same numbers. How long something took and
the names of jobs may differ; new rows and new columns are counted.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

#: What tells rows of one file apart, beside their texts; rows that are alike in all of it are taken in their order.
_NUMBERS = ("split", "seed", "lr", "k", "seconds_per_sample")
_MAY_DIFFER = ("cell", "job", "seconds", "too_large", "clusters")
_NO_NAMES = (*_MAY_DIFFER, "model_sha256")


def main(old: Path, new: Path) -> int:
    """Compare file by file; return how many rows differ or are gone."""
    n_wrong = 0
    for path in sorted(old.glob("*.json")):
        if not (new / path.name).is_file():
            print(f"{path.name}: not in {new}")
            continue
        before, after = (json.loads((folder / path.name).read_text())["rows"] for folder in (old, new))
        shared = {column for row in before for column in row} & {column for row in after for column in row}
        there = _by_name(after, shared)
        differing: dict[str, int] = {}
        n_same = n_gone = 0
        for name, row in _by_name(before, shared).items():
            other = there.get(name)
            n_gone += other is None
            columns = [] if other is None else [c for c in row if c not in _MAY_DIFFER and row[c] != other.get(c)]
            n_same += other is not None and not columns
            for column in columns:
                differing[column] = differing.get(column, 0) + 1
        n_wrong += len(before) - n_same
        said = ", ".join(f"{column} differs in {count}" for column, count in differing.items()) or "all else equal"
        print(f"{path.name}: {len(before)} rows, {n_same} the same, {n_gone} gone; {said}; {len(after)} rows now")
    return n_wrong


def _by_name(rows: list[dict[str, Any]], shared: set[str]) -> dict[tuple[Any, ...], dict[str, Any]]:
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        texts = [c for c in row if isinstance(row[c], str) and c not in _NO_NAMES]
        name = tuple((column, row[column]) for column in sorted({*texts, *_NUMBERS} & shared & row.keys()))
        same = next(n for n in itertools.count() if (n, name) not in found)
        found[same, name] = row
    return found


if __name__ == "__main__":
    sys.exit(1 if main(Path(sys.argv[1]), Path(sys.argv[2])) else 0)
