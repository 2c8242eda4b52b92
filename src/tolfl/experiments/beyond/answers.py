"""Does Tol-FL pay? Tables and verdicts: `elect` and `drop` beside the best that FL can do, `freeze` and `isolate`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from tolfl.experiments.beyond.figures import plot_question
from tolfl.experiments.beyond.questions import QUESTIONS, Question
from tolfl.experiments.report import ExperimentReport, Row, Table, Verdict
from tolfl.experiments.rows import Method, units_of
from tolfl.experiments.statistics import differences, estimate

_SHOWN = (
    Method("tol-fl", "elect"),
    Method("tol-fl", "drop"),
    Method("fl", "freeze"),
    Method("fl", "isolate"),
    Method("tol-fl"),
    Method("fl"),
)
_OTHERS = ("fedgroup", "ifca", "fesem", "batch", "batch-small")


def report_of(rows: Sequence[Row]) -> ExperimentReport:
    """Return the report of stored rows."""
    asked = [question for question in QUESTIONS if any(row["question"] == question.name for row in rows)]
    tables, figures = [], {}
    for question in asked:
        own = with_every_policy([row for row in rows if row["question"] == question.name])
        tables.append(table_of(question, own))
        if len({row["varied"] for row in own}) > 1:
            figures[f"beyond-{question.name}"] = _drawing(question, own)
    return ExperimentReport("beyond", "Beyond the paper", list(rows), tables, verdicts_of(rows), figures)


def _drawing(question: Question, rows: Sequence[Row]) -> Callable[[], Any]:
    return lambda: plot_question(question.title, question.varied, rows, shown_methods(rows), question.is_scale)


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
    """Return one line per value of what is varied, one column per method; of one value, one line per method."""
    methods = shown_methods(rows)
    values = list(dict.fromkeys(row["varied"] for row in rows))
    notes = ("AUROC, mean ± standard deviation over repetitions.",)
    if len(values) == 1:
        of_methods = tuple((method.label, _mean(rows, method)) for method in methods)
        return Table(question.title, ("method", f"{question.varied}: {values[0]}"), of_methods, notes)
    lines = []
    for value in values:
        own = [row for row in rows if row["varied"] == value]
        lines.append((value, *(_mean(own, method) for method in methods)))
    if question.name in _ASKED_AS_A_WHOLE:
        lines.append(("mean", *(_mean(rows, method) for method in methods)))
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
