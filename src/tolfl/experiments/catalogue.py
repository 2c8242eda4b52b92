"""Every experiment by name, behind one face: iterate to make it go on, then ask for its reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tolfl.core.errors import UnknownNameError
from tolfl.experiments.beyond.answers import report_of as beyond_report
from tolfl.experiments.beyond.work import Beyond
from tolfl.experiments.liars import LiarsAgainstDefences
from tolfl.experiments.liars import report_of as liars_report
from tolfl.experiments.paper import communication, samples, server_figure, step_size, timing
from tolfl.experiments.paper.studies import Study
from tolfl.experiments.paper.tables import SCENARIOS, PaperTables
from tolfl.experiments.paper.tables import report_of as table_report
from tolfl.experiments.report import ExperimentReport, Row
from tolfl.experiments.spreading import Place
from tolfl.experiments.steps import Step
from tolfl.experiments.sweep import Sweep

#: What `tolfl reproduce` offers, and what each is.
EXPERIMENTS = {
    "clean": "AUROC of every method, nobody fails",
    "client": "the same, a client fails half way",
    "server": "the same, a server fails half way, with tests of significance",
    "communication": "messages and bytes per round under every accounting",
    "timing": "rounds and time to come within 5 % of batch training's loss",
    "server-figure": "loss over rounds after a server failure",
    "samples": "feature means per class",
    "all": "all of the above",
    "beyond": "what the paper left out: early failures, k, victims, unequal data, several failures, ...",
    "liars": "devices that lie about their updates or their samples, with and without each defence",
    "step-size": "how the step sizes were chosen, on held-back typical samples",
}


@dataclass(frozen=True)
class Options:
    """How an experiment is run."""

    studies: Sequence[Study]
    quick: bool = False
    store: Path | None = None
    data_dir: str = ""
    place: Place | None = None  #: where sweeps are computed; None: here


class Experiment(Protocol):
    """An experiment at work."""

    def __iter__(self) -> Iterator[Step]:
        """Go on, step by step."""

    def save_checkpoints(self) -> None:
        """Keep on disk what is needed to go on later."""

    def reports(self) -> list[ExperimentReport]:
        """Return what was found."""

    @property
    def computing_s(self) -> float | None:
        """How long the runs took on which it rests, whenever they were computed; None: it keeps no runs."""


class _OfSweep:
    """Tables, which are made of cells."""

    def __init__(self, work: PaperTables | Beyond, options: Options) -> None:
        self._work, self._place = work, options.place

    def __iter__(self) -> Iterator[Step]:
        sweep: Sweep = self._work.sweep
        if self._place is not None:
            yield from self._place.compute(sweep)
            return
        for progress in sweep:
            share = progress.run.rounds_done / max(1, progress.run.rounds)
            yield Step(progress.label, progress.cells_done + share, progress.n_cells)

    def save_checkpoints(self) -> None:
        self._work.sweep.save_checkpoints()

    def reports(self) -> list[ExperimentReport]:
        return self._work.reports()

    @property
    def computing_s(self) -> float:
        return self._work.sweep.computing_s


class _Alone:
    """An experiment that makes one report and is soon computed again."""

    computing_s = None

    def __init__(self, make: Callable[[], _WithReport]) -> None:
        self._work = make()

    def __iter__(self) -> Iterator[Step]:
        yield from self._work

    def save_checkpoints(self) -> None:
        """Keep nothing: it takes minutes."""

    def reports(self) -> list[ExperimentReport]:
        return [self._work.report]


class _WithReport(Protocol):
    def __iter__(self) -> Iterator[Step]: ...

    @property
    def report(self) -> ExperimentReport: ...


def experiments(name: str, options: Options) -> list[tuple[str, Experiment]]:
    """Return the experiments of a name, in the order in which they run."""
    if name not in EXPERIMENTS:
        raise UnknownNameError("experiment", name, list(EXPERIMENTS))
    quick, data_dir = options.quick, options.data_dir
    if name in SCENARIOS or name == "all":
        scenarios = tuple(SCENARIOS) if name == "all" else (name,)
        tables = PaperTables(scenarios, options.studies, quick, options.store, data_dir)
        found: list[tuple[str, Experiment]] = [("tables" if name == "all" else name, _OfSweep(tables, options))]
        if name != "all":
            return found
        return found + [pair for other in _MAKERS for pair in experiments(other, options)]
    if name == "beyond":
        at_hand = [study.data for study in options.studies]
        return [(name, _OfSweep(Beyond(at_hand, quick, options.store, data_dir), options))]
    if name == "liars":
        return [(name, LiarsAgainstDefences(quick, options.store, data_dir))]
    if name == "step-size":
        return [(name, step_size.StepSizes(options.studies, quick, data_dir, options.store))]
    return [(name, _Alone(lambda: _MAKERS[name](quick, data_dir)))]


_MAKERS: Mapping[str, Callable[[bool, str], _WithReport]] = {
    "communication": lambda quick, _: communication.Communication(quick),
    "timing": lambda quick, _: timing.TimingExperiment(quick),
    "server-figure": lambda quick, data_dir: server_figure.ServerFigure(quick, data_dir=data_dir),
    "samples": samples.Samples,
}


def report_of_stored(name: str, rows: Sequence[Row], all_rows: Sequence[Row] = ()) -> ExperimentReport:
    """Return the report of stored rows; `all_rows` are those of the three tables together."""
    if name in SCENARIOS:
        return table_report(name, rows, [*rows, *(row for row in all_rows if row["scenario"] != name)])
    others: Mapping[str, Callable[[Sequence[Row]], ExperimentReport]] = {
        "beyond": beyond_report,
        "liars": liars_report,
        "step-size": step_size.report_of,
        "communication": communication.report_of,
        "timing": timing.report_of,
        "server-figure": server_figure.report_of,
        "samples": samples.report_of,
    }
    if name not in others:
        raise UnknownNameError("experiment", name, [*SCENARIOS, *others])
    return others[name](rows)
