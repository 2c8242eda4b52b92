"""Data at hand: which public data sets are on this machine, and how to get the others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tolfl.cli.checks.finding import Finding, State


def data_findings(data_dir: str) -> Iterator[Finding]:
    """Look for every data set that `tolfl data list` names."""
    from tolfl.core.errors import DataError
    from tolfl.datasets import DATASETS
    from tolfl.datasets.loaders import PUBLIC_SETS, find

    for name, text in (("--data-dir", data_dir), ("TOLFL_DATA", os.environ.get("TOLFL_DATA", ""))):
        if text and not Path(text).expanduser().is_dir():
            yield Finding("data", name, State.PROBLEM, f"{text} is no folder", "name one that is there, or make it")
            data_dir = "" if name == "--data-dir" else data_dir
    generated = [name for name in DATASETS if name not in PUBLIC_SETS]
    yield Finding("data", "generated", State.OK, f"{', '.join(generated)}: made on this machine when asked for")
    for name, known in PUBLIC_SETS.items():
        try:
            yield Finding("data", name, State.OK, f"in {find(name, data_dir)}")
        except DataError:
            fetch = f"download it from {known.by_hand}" if known.by_hand else f"run: tolfl data get {name}"
            yield Finding("data", name, State.NOTE, "not here", f"if you want it, {fetch}")
