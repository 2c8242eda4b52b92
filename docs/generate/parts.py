"""Every generated part of a page, by the name in its mark: `<!-- generated: cli -->`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import msgspec

from docs.generate import api, commands, limits, wire
from docs.generate.words import table

_RESULTS = Path(__file__).resolve().parents[2] / "results"
#: Schemes with one model and plain baselines, in the order of the table.
_BESIDE = ("tol-fl", "fl", "batch", "mean-vector", "pca-16", "pca-32")
_DECISIONS = Path(__file__).resolve().parents[1] / "decisions"


def decisions() -> str:
    """Return a list of all decisions with their titles."""
    files = sorted(_DECISIONS.glob("[0-9]*.md"))
    return "\n".join(f"- [{_title(file)}]({file.name})" for file in files)


def plain() -> str:
    """Return the AUROC of plain baselines beside that of trained schemes, by data set, from the stored rows."""
    rows = msgspec.json.decode((_RESULTS / "clean.json").read_bytes())["rows"]
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        found.setdefault((row["scheme"], row["data"]), []).append(row["auroc"])
    names = list(dict.fromkeys(row["data"] for row in rows))
    lines = [[f"`{one}`", *(f"{fmean(found[one, name]):.3f}" for name in names)] for one in _BESIDE]
    return table(["scheme", *names], lines)


def _title(file: Path) -> str:
    return file.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")


PARTS: dict[str, Callable[[], str]] = {
    "api": api.page,
    "cli": commands.page,
    "decisions": decisions,
    "limits": limits.limits,
    "plain": plain,
    "specification": limits.settings,
    "wire": wire.page,
}
