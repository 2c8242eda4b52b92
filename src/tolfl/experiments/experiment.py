"""An experiment is jobs, rows, report: three plain functions and a name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tolfl.experiments.result_rows import Row
from tolfl.experiments.results import ExperimentReport
from tolfl.experiments.sweep import Job, Repetition


@dataclass(frozen=True)
class Options:
    """How experiments are run."""

    data: Sequence[str]  #: the data sets to take, of those that the experiment has
    quick: bool = False
    data_dir: str = ""
    cache: Path | None = None
    executor: str = "local"  #: or `ray`, or `ray:ADDRESS`


@dataclass(frozen=True)
class Experiment:
    """A name, and what makes its jobs, the rows of a job's repetitions, and the report of rows."""

    name: str
    about: str
    data: tuple[str, ...]  #: the data sets that it may be run on
    jobs: Callable[[Options, Sequence[Row]], list[Job]]  #: called again with the rows so far, until nothing is new
    rows: Callable[[Job, Sequence[Repetition]], list[dict[str, Any]]]
    report: Callable[[Sequence[Row]], ExperimentReport]
