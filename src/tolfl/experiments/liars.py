"""Devices that lie, against every defence: AUROC under each attack, and what a defence costs where nobody lies.

On Comms-ML with the three clusters of the paper's tables, of four, three and three devices, with less data and a larger
step than there: the question is how far a model falls, not how far it gets.
"""

from __future__ import annotations

import statistics
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tolfl.core.errors import DivergedError
from tolfl.core.spec import DefenceSpec, RunSpec
from tolfl.experiments.paper.studies import STUDIES, with_place
from tolfl.experiments.report import ExperimentReport, Row, Table, Verdict
from tolfl.experiments.rows import rows_of
from tolfl.experiments.steps import Step
from tolfl.experiments.sweep import Cell, Summaries, Sweep

#: Who lies, and how: 0 to 3, 4 to 6 and 7 to 9 are a cluster each.
ATTACKS = {
    "nobody lies": "",
    "one flips": "1:flip",
    "one per cluster flips": "1,5,8:flip",
    "one per cluster sends -10 times": "1,5,8:scale=-10",
    "one claims a million samples": "1:samples=1000000",
    "the same, and flips": "1:flip,samples=1000000",
    "a whole cluster sends -10 times": "7,8,9:scale=-10",
}
#: Devices have 72 to 96 samples and updates of a length between 0.2 and 0.9; a defender would know both roughly.
DEFENCES = {
    "none": DefenceSpec(),
    "median": DefenceSpec("median"),
    "trimmed mean": DefenceSpec("trimmed-mean"),
    "clipped": DefenceSpec(clip_to_median=1.0),
    "capped": DefenceSpec(max_samples=100),
    "chain clipped": DefenceSpec(chain_clip=0.5),
    "all": DefenceSpec("median", clip_to_median=1.0, max_samples=100, chain_clip=0.5),
}
_Rows = Generator[Step, None, list[dict[str, Any]]]
#: A drop that a user would notice.
_NOTICEABLE = 0.02


def _spec(quick: bool) -> RunSpec:
    if quick:
        return STUDIES["comms-ml"].spec(quick=True, rounds=4)
    fields: dict[str, Any] = {"rounds": 60, "repetitions": 5, "splits": 5, "comms_ml": {"windows_per_region": 400}}
    return STUDIES["comms-ml"].spec(train={"lr": 0.02}, **fields)


@dataclass(frozen=True)
class _Pair:
    attack: str
    defence: str
    spec: RunSpec

    @property
    def label(self) -> str:
        return f"{self.attack}, {self.defence}"


@dataclass
class LiarsAgainstDefences:
    """Every attack against every defence. Iterate to make it go on.

    A run that diverges leaves no model, and stops those that are computed with it: these are then computed one by one.
    """

    quick: bool = False
    store: Path | None = None
    data_dir: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)
    computing_s: float | None = 0.0
    _sweep: Sweep | None = None

    def __iter__(self) -> Iterator[Step]:
        """Compute what is not on disk yet."""
        base = with_place(_spec(self.quick), self.data_dir)
        pairs = [
            _Pair(attack, name, msgspec.structs.replace(base, liars=ATTACKS[attack], defence=defence))
            for attack in ATTACKS
            for name, defence in DEFENCES.items()
        ]
        for place, pair in enumerate(pairs):
            yield Step(pair.label, place, len(pairs))
            try:
                found = yield from self._computed(pair, pair.spec, place, len(pairs))
            except DivergedError:
                found = yield from self._one_by_one(pair, place, len(pairs))
            self.rows += found

    def _one_by_one(self, pair: _Pair, place: int, total: int) -> _Rows:
        found: list[dict[str, Any]] = []
        for index in range(pair.spec.repetitions):
            one = pair.spec.repetition(index)
            try:
                rows = yield from self._computed(pair, one, place, total)
            except DivergedError:
                rows = [{**_named(pair), "seed": one.seed, "auroc": None, "has_diverged": True}]
            found += [{**row, "split": index % pair.spec.splits} for row in rows]
        return found

    def _computed(self, pair: _Pair, spec: RunSpec, place: int, total: int) -> _Rows:
        cell = Cell(pair.label, spec)
        self._sweep = sweep = Sweep([cell], self.store)
        for progress in sweep:
            yield Step(pair.label, place + progress.run.rounds_done / progress.run.rounds, total)
        self.computing_s = (self.computing_s or 0.0) + sweep.computing_s
        summaries: Summaries = sweep.summaries[cell.key]
        rows = rows_of("liars", spec, summaries, cell.key)
        return [{**row, **_named(pair), "has_diverged": False} for row in rows]

    def save_checkpoints(self) -> None:
        """Keep on disk what is needed to go on later."""
        if self._sweep is not None:
            self._sweep.save_checkpoints()

    def reports(self) -> list[ExperimentReport]:
        """Return the table."""
        return [report_of(self.rows)]


def _named(pair: _Pair) -> dict[str, Any]:
    spec = pair.spec
    names = {"scenario": "liars", "data": spec.data, "scheme": spec.scheme, "policy": ""}
    return {**names, "attack": pair.attack, "liars": spec.liars, "defence": pair.defence, "set": str(spec.defence)}


def report_of(rows: Sequence[Row]) -> ExperimentReport:
    """Return the report of stored rows."""
    title = "Devices that lie, and defences"
    return ExperimentReport("liars", title, list(rows), [table_of(rows)], verdicts_of(rows))


def table_of(rows: Sequence[Row]) -> Table:
    """Return one line per attack, one column per defence."""
    defences = list(dict.fromkeys(row["defence"] for row in rows))
    attacks = dict.fromkeys(row["attack"] for row in rows)
    lines = [(attack, *(_cell(rows, attack, defence) for defence in defences)) for attack in attacks]
    settings = {row["defence"]: row["set"] for row in rows if row["set"]}
    meant = "; ".join(f"{name}: {said.partition(';')[0]}" for name, said in settings.items())
    notes = (
        "AUROC, mean ± standard deviation over repetitions; 'n lost': so many of them diverged and left no model, "
        "the mean is over the others.",
        f"Defences: {meant}.",
    )
    return Table("AUROC by attack and defence", ("attack", *defences), tuple(lines), notes)


def _scores(rows: Sequence[Row], attack: str, defence: str) -> list[float | None]:
    return [row["auroc"] for row in rows if row["attack"] == attack and row["defence"] == defence]


def _cell(rows: Sequence[Row], attack: str, defence: str) -> str:
    scores = _scores(rows, attack, defence)
    left = [score for score in scores if score is not None]
    lost = f"{len(scores) - len(left)} lost" if len(left) < len(scores) else ""
    mean = f"{statistics.fmean(left):.3f}" if left else ""
    spread = f"±{statistics.stdev(left):.3f}" if len(left) > 1 else ""
    return " ".join(filter(None, (mean, spread, lost))) or "-"


def verdicts_of(rows: Sequence[Row]) -> list[Verdict]:
    """Say of each defence what it costs where nobody lies, and which attacks it holds off."""
    honest = {row["seed"]: row["auroc"] for row in rows if not row["liars"] and not row["set"]}
    found = []
    for attack, defence in dict.fromkeys((row["attack"], row["defence"]) for row in rows):
        own = [row for row in rows if row["attack"] == attack and row["defence"] == defence]
        gaps = [row["auroc"] - honest[row["seed"]] for row in own if row["auroc"] is not None and row["seed"] in honest]
        lost = len(own) - len(gaps)
        if own[0]["liars"] or own[0]["set"]:
            is_held = not lost and statistics.fmean(gaps) > -_NOTICEABLE
            mean = f"{statistics.fmean(gaps):+.3f} against honest devices without a defence" if gaps else "no model"
            evidence = mean + (f"; {lost} of {len(own)} diverged" if lost else "")
            found.append(Verdict(f"{attack}, {defence}: loses less than {_NOTICEABLE:g}", is_held, evidence))
    return found
