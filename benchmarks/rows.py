"""Whether two folders of results hold the same rows: `python -m benchmarks.rows OLD NEW`.

For whoever changes an experiment: every row of OLD must be in NEW, with the same numbers. How long something took and
the names of jobs may differ; new rows and new columns are counted.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

#: What tells rows of one file apart, where they have it.
_NAMES = (
    *("scenario", "question", "varied", "data", "scheme", "policy", "fail", "split", "seed", "attack", "defence", "lr"),
    *("kind", "training", "k", "uplink", "seconds_per_sample", "class"),
)
_MAY_DIFFER = ("cell", "job", "seconds", "too_large", "clusters")


def main(old: Path, new: Path) -> int:
    """Compare file by file; return how many rows differ or are gone."""
    n_wrong = 0
    for path in sorted(old.glob("*.json")):
        if not (new / path.name).is_file():
            print(f"{path.name}: not in {new}")
            continue
        before, after = (json.loads((folder / path.name).read_text())["rows"] for folder in (old, new))
        there = {_name(row): row for row in after}
        gone = [row for row in before if _name(row) not in there]
        differing: dict[str, int] = {}
        n_same = 0
        for row in before:
            other = there.get(_name(row))
            columns = [] if other is None else [c for c in row if c not in _MAY_DIFFER and row[c] != other.get(c)]
            n_same += other is not None and not columns
            for column in columns:
                differing[column] = differing.get(column, 0) + 1
        n_wrong += len(before) - n_same
        said = ", ".join(f"{column} differs in {count}" for column, count in differing.items()) or "all else equal"
        print(f"{path.name}: {len(before)} rows, {n_same} the same, {len(gone)} gone; {said}; {len(after)} rows now")
    return n_wrong


def _name(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(column, "") for column in _NAMES)


if __name__ == "__main__":
    sys.exit(1 if main(Path(sys.argv[1]), Path(sys.argv[2])) else 0)
