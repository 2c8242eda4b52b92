"""What the paper left out: questions that its tables do not answer, asked with the same machinery.

Each question varies one thing and shows Tol-FL with `elect` and `drop` beside the best that FL can do: `freeze` and
`isolate`. All of it is on Comms-ML but for the rotation of anomalous classes, which needs pictures.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tolfl.core.spec import RunSpec
from tolfl.experiments.beyond_figures import plot_question
from tolfl.experiments.compare import entries
from tolfl.experiments.paper.studies import STUDIES, with_place
from tolfl.experiments.report import Report, Row, Table, Verdict
from tolfl.experiments.rows import Method, plain_rows, rows_of, units_of
from tolfl.experiments.statistics import differences, estimate
from tolfl.experiments.sweep import Cell, Sweep, SweepProgress

_OURS_AND_FL = ("tol-fl", "fl")
_SHOWN = (
    Method("tol-fl", "elect"),
    Method("tol-fl", "drop"),
    Method("fl", "freeze"),
    Method("fl", "isolate"),
    Method("tol-fl"),
    Method("fl"),
)
_OTHERS = ("fedgroup", "ifca", "fesem", "batch", "batch-small")


@dataclass(frozen=True)
class Question:
    """One thing that is varied, and what it is called."""

    name: str
    title: str
    varied: str
    specs: Callable[[RunSpec], Mapping[str, RunSpec]]  #: from the usual run, by value of what is varied
    schemes: tuple[str, ...] = _OURS_AND_FL
    data: str = "comms-ml"


def _changed(spec: RunSpec, **fields: Any) -> RunSpec:
    return msgspec.structs.replace(spec, **fields)


def _dataset(spec: RunSpec, **fields: Any) -> RunSpec:
    return _changed(spec, dataset=msgspec.structs.replace(spec.dataset, **fields))


def _half(spec: RunSpec) -> int:
    return spec.rounds // 2


def _early(spec: RunSpec) -> dict[str, RunSpec]:
    rounds = sorted({max(1, spec.rounds * share // 100) for share in (5, 10, 25, 50)})
    return {str(at): _changed(spec, fail=f"server@{at}") for at in rounds}


def _clusters(spec: RunSpec) -> dict[str, RunSpec]:
    return {str(k): _changed(spec, clusters=k, fail=f"server@{_half(spec)}") for k in range(1, spec.devices + 1)}


def _victims(spec: RunSpec) -> dict[str, RunSpec]:
    return {str(d): _changed(spec, fail=f"device:{d}@{_half(spec)}") for d in range(spec.devices)}


def _dirichlet(spec: RunSpec) -> dict[str, RunSpec]:
    fails = _changed(spec, fail=f"server@{_half(spec)}")
    found = {f"{alpha:g}": _dataset(fails, partition="dirichlet", alpha=alpha) for alpha in (0.05, 0.2, 1.0, 10.0)}
    return found | {"iid": _dataset(fails, partition="iid"), "classes": fails}


def _several(spec: RunSpec) -> dict[str, RunSpec]:
    # The heads of three clusters of ten devices, one after the other.
    half, later = _half(spec), max(1, spec.rounds // 10)
    plan = [f"device:{head}@{half + place * later}" for place, head in enumerate((0, 4, 7))]
    return {str(n): _changed(spec, fail="; ".join(plan[:n])) for n in (1, 2, 3)}


def _random(spec: RunSpec) -> dict[str, RunSpec]:
    return {f"{odds:g}": _changed(spec, fail=f"random:{odds:g}") for odds in (0.001, 0.003, 0.01)}


def _newcomer(spec: RunSpec) -> dict[str, RunSpec]:
    # The devices of the last region are away until the server has failed: their class is new to the model.
    half = _half(spec)
    return {
        "yes": _changed(spec, fail=f"cluster:2@0-{half + 1}; server@{half}"),
        "no": _changed(spec, fail=f"server@{half}"),
    }


def _dropout(spec: RunSpec) -> dict[str, RunSpec]:
    fails = _changed(spec, fail=f"server@{_half(spec)}")
    return {
        f"{share:g}": _changed(fails, model=msgspec.structs.replace(spec.model, dropout=share)) for share in (0.0, 0.2)
    }


def _rehomed(spec: RunSpec) -> dict[str, RunSpec]:
    return {"server": _changed(spec, fail=f"server@{_half(spec)}")}


def _nobody(spec: RunSpec) -> dict[str, RunSpec]:
    return {"nobody": spec}


def _rotated(spec: RunSpec) -> dict[str, RunSpec]:
    fails = _changed(spec, fail=f"server@{_half(spec)}", repetitions=1, splits=1)
    return {
        str(c): _dataset(fails, anomalous=(str(c),), max_train=min(5000, spec.dataset.max_train or 5000))
        for c in range(10)
    }


QUESTIONS = (
    Question("early", "The server fails early or late", "round of the failure", _early),
    Question("clusters", "How many clusters", "k", _clusters),
    Question("victim", "Which device fails", "device", _victims),
    Question("several", "One, two or three heads fail", "heads lost", _several),
    Question("random", "Devices fail at random", "odds per device and round", _random),
    Question("newcomer", "A new typical class appears after the failure", "new class", _newcomer),
    Question("dirichlet", "How unequal the devices' data are", "alpha", _dirichlet),
    Question("dropout", "With and without dropout", "dropout", _dropout),
    Question("rehome", "Rivals whose devices find another model", "failure", _rehomed, ("fedgroup", "ifca", "fesem")),
    Question("batch-size", "Batch training with a device's batch size", "failure", _nobody, ("batch", "batch-small")),
    Question(
        "rotation", "Each class anomalous in turn (Fashion-MNIST)", "anomalous class", _rotated, data="fashion-mnist"
    ),
    Question("rotation-cifar", "Each class anomalous in turn (CIFAR-10)", "anomalous class", _rotated, data="cifar-10"),
)


class Beyond:
    """The questions at work. Iterate to make it go on."""

    def __init__(
        self, data_at_hand: Sequence[str], quick: bool = False, store: Path | None = None, data_dir: str = ""
    ) -> None:
        self.questions = [question for question in QUESTIONS if question.data in data_at_hand]
        self._cells: list[tuple[Question, str, Cell]] = []
        for question in self.questions:
            spec = with_place(STUDIES[question.data].spec(quick), data_dir)
            for value, asked in question.specs(spec).items():
                label = f"{question.name} {value}"
                for entry in entries(asked, question.schemes):
                    # A star has no clusters: one run serves for every k.
                    same = entry.spec if entry.spec.scheme != "fl" else _changed(entry.spec, clusters=spec.clusters)
                    self._cells.append((question, value, Cell(f"{label}: {entry.label}", same)))
        self.sweep = Sweep([cell for *_, cell in self._cells], store)

    def __iter__(self) -> Iterator[SweepProgress]:
        """Compute what is not on disk yet."""
        yield from self.sweep

    def save_checkpoints(self) -> None:
        """Keep on disk what is needed to go on later."""
        self.sweep.save_checkpoints()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Every finished run, with the question it answers and the value of what is varied."""
        rows: list[dict[str, Any]] = []
        with_plain: set[tuple[str, str]] = set()
        for question, value, cell in self._cells:
            summaries = self.sweep.summaries.get(cell.key, [])
            of_cell = rows_of("beyond", cell.spec, summaries, cell.key)
            if summaries and (question.name, value) not in with_plain:
                with_plain.add((question.name, value))
                of_cell += plain_rows("beyond", cell.spec, summaries)
            rows += [{"question": question.name, "varied": value, **row} for row in of_cell]
        return rows

    def reports(self) -> list[Report]:
        """Return one report with all questions."""
        return [report_of(self.rows)]


def report_of(rows: Sequence[Row]) -> Report:
    """Return the report of stored rows."""
    asked = [question for question in QUESTIONS if any(row["question"] == question.name for row in rows)]
    tables, figures = [], {}
    for question in asked:
        own = with_every_policy([row for row in rows if row["question"] == question.name])
        tables.append(table_of(question, own))
        if len({row["varied"] for row in own}) > 1:
            figures[f"beyond-{question.name}"] = _drawing(question, own)
    return Report("beyond", "Beyond the paper", list(rows), tables, verdicts_of(rows), figures)


def _drawing(question: Question, rows: Sequence[Row]) -> Callable[[], Any]:
    return lambda: plot_question(question.title, question.varied, rows, shown_methods(rows))


def with_every_policy(rows: Sequence[Row]) -> list[Row]:
    """Return a question's rows; where no head fails, a scheme's one run stands for each of its policies."""
    policies: dict[str, dict[str, None]] = {}
    for row in rows:
        policies.setdefault(row["scheme"], {})[row["policy"]] = None
    found: list[Row] = []
    for row in rows:
        named = [policy for policy in policies[row["scheme"]] if policy]
        found += [{**row, "policy": policy} for policy in named] if named and not row["policy"] else [row]
    return found


def shown_methods(rows: Sequence[Row]) -> list[Method]:
    """Return the methods that a question's rows have, ours first."""
    found = dict.fromkeys((row["scheme"], row["policy"]) for row in rows)
    known = [method for method in _SHOWN if (method.scheme, method.policy) in found]
    others = [Method(*pair) for pair in found if pair[0] in _OTHERS]
    together = [Method(m.scheme, m.policy, "auroc_all_models") for m in others if not m.scheme.startswith("batch")]
    return [*known, *others, *together]


def table_of(question: Question, rows: Sequence[Row]) -> Table:
    """Return one line per value of what is varied, one column per method."""
    methods = shown_methods(rows)
    lines = []
    for value in dict.fromkeys(row["varied"] for row in rows):
        own = [row for row in rows if row["varied"] == value]
        lines.append((value, *(_mean(own, method) for method in methods)))
    if question.name in _ASKED_AS_A_WHOLE:
        lines.append(("mean", *(_mean(rows, method) for method in methods)))
    notes = ("AUROC, mean ± standard deviation over repetitions.",)
    return Table(question.title, (question.varied, *(method.label for method in methods)), tuple(lines), notes)


def _mean(rows: Sequence[Row], method: Method) -> str:
    values = [value for of_unit in units_of(rows, method).values() for value in of_unit]
    if not values:
        return "-"
    return f"{statistics.fmean(values):.3f}" + (f" ±{statistics.stdev(values):.3f}" if len(values) > 1 else "")


def verdicts_of(rows: Sequence[Row]) -> list[Verdict]:
    """Say, for every question and value, whether Tol-FL pays against the best that FL could do."""
    found: list[Verdict] = []
    for name in dict.fromkeys(row["question"] for row in rows):
        own = with_every_policy([row for row in rows if row["question"] == name])
        values = list(dict.fromkeys(row["varied"] for row in own))
        if name in _ASKED_AS_A_WHOLE:
            found += _paying(f"{name}, mean of {len(values)}", _ASKED_AS_A_WHOLE[name](own))
        else:
            for value in values:
                found += _paying(f"{name} {value}", [row for row in own if row["varied"] == value])
    return found


def _mean_over_victims(rows: Sequence[Row]) -> list[Row]:
    """Return one row for each method, split and seed: the mean over devices, any of which may be the one that fails."""
    together: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        together.setdefault(tuple(row[name] for name in ("data", "scheme", "policy", "split", "seed")), []).append(row)
    return [{**same[0], "auroc": statistics.fmean(row["auroc"] for row in same)} for same in together.values()]


def _class_as_unit(rows: Sequence[Row]) -> list[Row]:
    """Return rows whose split is the class that is anomalous: what a rotation draws from."""
    return [{**row, "split": row["varied"]} for row in rows]


#: Questions whose values are no settings to choose from: one verdict for all of them.
_ASKED_AS_A_WHOLE = {"victim": _mean_over_victims, "rotation": _class_as_unit, "rotation-cifar": _class_as_unit}


def _paying(asked: str, rows: Sequence[Row]) -> list[Verdict]:
    found = []
    for ours in _SHOWN[:2]:
        gaps = [
            (rival, estimate(gap))
            for rival in _SHOWN[2:4]
            if (gap := differences(units_of(rows, ours), units_of(rows, rival)))
        ]
        if gaps:
            rival, least = min(gaps, key=lambda pair: pair[1].mean)
            settled = None if least.n_units < 2 or least.low <= 0 <= least.high else least.mean > 0
            evidence = f"{least.mean:+.3f} ({least.low:+.3f} to {least.high:+.3f}) against {rival.label}"
            found.append(Verdict(f"{asked}: {ours.label} pays", settled, evidence))
    return found
