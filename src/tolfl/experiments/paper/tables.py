"""The paper's three tables: AUROC of every method when nobody fails, when a client fails and when a server fails."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tolfl.core.spec import RunSpec
from tolfl.experiments.compare import entries
from tolfl.experiments.paper.figures import plot_scenario
from tolfl.experiments.paper.printed import printed_auroc
from tolfl.experiments.paper.significance import significance_tables
from tolfl.experiments.paper.studies import STUDIES, Study, with_place
from tolfl.experiments.paper.targets import verdicts_of
from tolfl.experiments.report import ExperimentReport, Row, Table
from tolfl.experiments.rows import Method, plain_rows, rows_of, units_of
from tolfl.experiments.statistics import estimate
from tolfl.experiments.sweep import Cell, Sweep, read_finished

SCENARIOS = {"clean": "", "client": "client@{round}", "server": "server@{round}"}
TITLES = {"clean": "AUROC, nobody fails", "client": "AUROC, a client fails", "server": "AUROC, a server fails"}
_SCHEMES = ("tol-fl", "fl", "batch", "fedgroup", "ifca", "fesem")
_CLUSTERED = ("fedgroup", "ifca", "fesem")
#: What the other tables have: the paper's rules and ours. Devices that find another model (rehome) belong to `beyond`.
_POLICIES = ("", "elect", "drop", "isolate", "freeze", "strict")


class PaperTables:
    """Some of the three tables at work: iterate over `sweep`, which trains rounds before the failure once for all."""

    def __init__(
        self,
        scenarios: Sequence[str],
        studies: Sequence[Study],
        quick: bool = False,
        store: Path | None = None,
        data_dir: str = "",
    ) -> None:
        self.scenarios, self.studies, self._store = tuple(scenarios), tuple(studies), store
        self._specs = [with_place(study.spec(quick), data_dir) for study in studies]
        self._cells = [
            (scenario, cell)
            for spec in self._specs
            for scenario in scenarios
            for cell in scenario_cells(scenario, spec)
        ]
        self.sweep = Sweep([cell for _, cell in self._cells], store)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Every finished run, and the plain baselines on its data."""
        return table_rows(self._cells, self.sweep)

    def _clean_rows(self) -> list[dict[str, Any]]:
        """Return the clean runs that are on disk: falls are measured from them, but nobody waits for them."""
        if "clean" in self.scenarios or self._store is None:
            return []
        cells = [cell for spec in self._specs for cell in scenario_cells("clean", spec)]
        known = [(cell, read_finished(self._store / cell.name, cell.spec)) for cell in cells]
        return [row for cell, found in known if found for row in rows_of("clean", cell.spec, found, cell.key)]

    def reports(self) -> list[ExperimentReport]:
        """Return one report per table."""
        rows = self.rows + self._clean_rows()
        return [
            report_of(scenario, [row for row in rows if row["scenario"] == scenario], rows)
            for scenario in self.scenarios
        ]


def scenario_cells(scenario: str, spec: RunSpec, schemes: Sequence[str] = _SCHEMES) -> list[Cell]:
    """Return what must be run for a table on one data set."""
    fail = SCENARIOS[scenario].format(round=spec.rounds // 2)
    found = entries(msgspec.structs.replace(spec, fail=fail), schemes)
    return [
        Cell(f"{spec.data}, {scenario}: {entry.label}", entry.spec)
        for entry in found
        if entry.spec.on_head_failure in _POLICIES
    ]


def table_rows(cells: Sequence[tuple[str, Cell]], sweep: Sweep) -> list[dict[str, Any]]:
    """Return the rows of all cells; the plain baselines once per scenario and data set."""
    rows: list[dict[str, Any]] = []
    with_plain: set[tuple[str, str]] = set()
    for scenario, cell in cells:
        summaries = sweep.summaries.get(cell.key)
        if summaries is None:
            continue
        rows += rows_of(scenario, cell.spec, summaries, cell.key)
        if (scenario, cell.spec.data) not in with_plain:
            with_plain.add((scenario, cell.spec.data))
            rows += plain_rows(scenario, cell.spec, summaries)
    return rows


def methods(scenario: str, rows: Sequence[Row]) -> list[Method]:
    """Return the lines of a table, in order."""
    has_failed_head = scenario == "server"
    found = [Method(scheme, policy) for scheme, policy in _one_model(has_failed_head)]
    for score in ("auroc_best", "auroc_all_models", "auroc_chosen"):
        found += [Method(scheme, "strict" if has_failed_head else "", score) for scheme in _CLUSTERED]
    found += [Method(name) for name in ("mean-vector", "pca-16", "pca-32")]
    return [method for method in found if units_of(rows, method)]


def _one_model(has_failed_head: bool) -> list[tuple[str, str]]:
    if not has_failed_head:
        return [("tol-fl", ""), ("fl", ""), ("batch", "")]
    return [
        ("tol-fl", "elect"),
        ("tol-fl", "drop"),
        ("fl", "isolate"),
        ("fl", "freeze"),
        ("batch", "freeze"),
        ("batch", ""),
    ]


def report_of(scenario: str, rows: Sequence[Row], all_rows: Sequence[Row] | None = None) -> ExperimentReport:
    """Return the report of stored rows; `all_rows` may have the other scenarios too, for the targets."""
    names = [name for name in STUDIES if any(row["data"] == name for row in rows)]
    tables = [_overview(scenario, rows, names), *(_in_detail(scenario, rows, name) for name in names)]
    if scenario == "server":
        tables += significance_tables(rows)
    verdicts = verdicts_of(scenario, list(all_rows or rows), names)
    figures = {scenario: lambda: plot_scenario(scenario, rows, methods(scenario, rows), names)}
    return ExperimentReport(scenario, TITLES[scenario], list(rows), tables, verdicts, figures)


def _overview(scenario: str, rows: Sequence[Row], names: Sequence[str]) -> Table:
    lines = []
    for method in methods(scenario, rows):
        cells = [_cell(scenario, rows, name, method) for name in names]
        lines.append((method.label, *cells))
    n = max((len(_values(rows, name, method)) for name in names for method in methods(scenario, rows)), default=0)
    notes = (
        f"Mean ± standard deviation over {n} repetitions that go round the declared splits; in brackets the paper's. "
        "best single*: chosen on the test set, an oracle; all models: the least of their scores, sample by sample; "
        "chosen: the model with the least loss on held-back typical samples. Plain rows need all data in one place.",
    )
    shown = tuple(STUDIES[name].shown_as for name in names)
    return Table(TITLES[scenario], ("method", *shown), tuple(lines), notes)


def _values(rows: Sequence[Row], data: str, method: Method) -> list[float]:
    return [value for values in units_of(rows, method, data=data).values() for value in values]


def _cell(scenario: str, rows: Sequence[Row], data: str, method: Method) -> str:
    values = _values(rows, data, method)
    if not values:
        return "-"
    spread = f" ±{statistics.stdev(values):.3f}" if len(values) > 1 else ""
    printed = printed_auroc(scenario, data, method.scheme, method.policy, method.score)
    return f"{statistics.fmean(values):.3f}{spread}" + (f" ({printed[0]:.2f})" if printed else "")


def _in_detail(scenario: str, rows: Sequence[Row], data: str) -> Table:
    """Return every line of one data set beside the paper's, with its interval and a verdict."""
    lines = []
    for method in methods(scenario, rows):
        units = units_of(rows, method, data=data)
        if not units:
            continue
        values = [value for of_unit in units.values() for value in of_unit]
        found, printed = estimate(units), printed_auroc(scenario, data, method.scheme, method.policy, method.score)
        by_split = " ".join(f"{statistics.fmean(of_unit):.3f}" for of_unit in units.values())
        interval = f"{found.low:.3f} to {found.high:.3f}"
        lines.append((method.label, f"{found.mean:.3f}", interval, by_split, *_beside(values, printed)))
    columns = ("method", "mean", "95 % interval", "by split", "paper", "difference", "verdict")
    notes = (
        "Interval: bootstrap over splits, then seeds inside them. agrees: the two means differ by no more than the "
        "root of the sum of their squared spreads.",
    )
    return Table(f"{STUDIES[data].shown_as}: {TITLES[scenario]}", columns, tuple(lines), notes, is_detail=True)


def _beside(values: Sequence[float], printed: tuple[float, float] | None) -> tuple[str, str, str]:
    if printed is None:
        return "-", "-", "not in the paper"
    mean, spread = printed
    difference = statistics.fmean(values) - mean
    own = statistics.stdev(values) if len(values) > 1 else 0.0
    joint = (own**2 + spread**2) ** 0.5
    word = "agrees" if abs(difference) <= joint else "higher here" if difference > 0 else "lower here"
    return f"{mean:.2f} ±{spread:.2f}", f"{difference:+.3f}", word
