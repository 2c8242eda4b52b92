"""How far an experiment is, and what it hands over in the end."""

from __future__ import annotations

from dataclasses import dataclass

from tolfl.experiments.report import ExperimentReport


@dataclass(frozen=True)
class Step:
    """What an experiment has just done, and how much of it there is; between two steps it may be stopped.

    >>> Step("fl", done=1, total=4)
    Step(what='fl', done=1, total=4)
    """

    what: str
    done: float
    total: int


def finished(report: ExperimentReport | None) -> ExperimentReport:
    """Return the report of an experiment, or say that there is none yet."""
    if report is None:
        raise LookupError("the experiment is not finished; iterate over it to its end")
    return report
