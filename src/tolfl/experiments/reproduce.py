"""From an experiment to files that a stranger can check: rows with command, seeds and versions, tables, figures."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from tolfl.core.errors import RunDirectoryError
from tolfl.experiments.report import ExperimentReport
from tolfl.runs.directory import write_file

#: Raise it when rows change their meaning.
SCHEMA = 1


def provenance(
    command: str, seconds: float, specs: Mapping[str, str] | None = None, computing_s: float | None = None
) -> dict[str, Any]:
    """Return what a reader needs to compute rows again; `computing_s` counts runs from the cache too."""
    return {
        "schema": SCHEMA,
        "command": command,
        "seconds": round(seconds, 1),
        "seconds_computing": round(seconds if computing_s is None else computing_s, 1),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("tolfl", "numpy", "scikit-learn")},
        "specs": dict(specs or {}),
    }


def write_report(folder: Path, report: ExperimentReport, origin: Mapping[str, Any]) -> list[Path]:
    """Write rows, tables and figures; return the files."""
    content = {**origin, "name": report.name, "title": report.title, "rows": list(report.rows)}
    content["verdicts"] = [{"claim": v.claim, "held": v.held, "evidence": v.evidence} for v in report.verdicts]
    write_file(folder, f"{report.name}.json", _lines(content))
    total_s = origin.get("seconds_computing", origin["seconds"])
    minutes = f"its runs took {total_s / 60:.1f} min by the clock, whenever that was and whatever ran beside"
    head = f"# {report.title}\n\nCommand: `{origin['command']}` ({minutes}; {origin['machine']}).\n"
    write_file(folder, f"{report.name}.md", (head + "\n" + report.to_markdown()).encode())
    paths = [folder / f"{report.name}.json", folder / f"{report.name}.md"]
    for name, draw in report.figures.items():
        path = folder / f"{name}.png"
        try:
            draw().savefig(path, dpi=160)
        except OSError as error:
            raise RunDirectoryError(path, f"cannot be written ({error.strerror}); choose another --out") from None
        paths.append(path)
    return paths


def read_results(path: Path) -> dict[str, Any]:
    """Return a results file: its rows, and where they come from."""
    try:
        content: dict[str, Any] = msgspec.json.decode(path.read_bytes())
        is_known = content["schema"] == SCHEMA and isinstance(content["rows"], list)
    except (OSError, msgspec.DecodeError, KeyError, TypeError) as error:
        raise RunDirectoryError(path, f"holds no results that can be read ({error})") from None
    if not is_known:
        raise RunDirectoryError(path, f"has schema {content['schema']}; this version reads {SCHEMA}")
    return content


def _lines(content: Mapping[str, Any]) -> bytes:
    """Return JSON with one row per line: short, and fit for a diff."""
    rows: Sequence[Any] = content["rows"]
    head = {name: value for name, value in content.items() if name != "rows"}
    text = msgspec.json.format(msgspec.json.encode(head), indent=2).decode().rstrip().removesuffix("}").rstrip()
    lines = ",\n".join("    " + msgspec.json.encode(row).decode() for row in rows)
    return f'{text},\n  "rows": [\n{lines}\n  ]\n}}\n'.encode()
