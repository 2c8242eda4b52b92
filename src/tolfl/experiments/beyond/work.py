"""The questions at work: every value of what they vary, for Tol-FL and for the best that FL can do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tolfl.experiments.beyond.answers import report_of
from tolfl.experiments.beyond.questions import QUESTIONS, Question, changed
from tolfl.experiments.compare import entries
from tolfl.experiments.paper.studies import STUDIES, with_place
from tolfl.experiments.report import ExperimentReport
from tolfl.experiments.rows import plain_rows, rows_of
from tolfl.experiments.sweep import Cell, Sweep


class Beyond:
    """The questions at work: iterate over `sweep` to make it go on."""

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
                    same = entry.spec if entry.spec.scheme != "fl" else changed(entry.spec, clusters=spec.clusters)
                    self._cells.append((question, value, Cell(f"{label}: {entry.label}", same)))
        self.sweep = Sweep([cell for *_, cell in self._cells], store)

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

    def reports(self) -> list[ExperimentReport]:
        """Return one report with all questions."""
        return [report_of(self.rows)]
