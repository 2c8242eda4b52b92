"""What an experiment hands over: rows as data, tables and figures made of them, and verdicts that can be read aloud."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Mapping[str, Any]  #: plain values, as JSON has them


@dataclass(frozen=True)
class Table:
    """A table that is ready to be shown, on a terminal or as Markdown.

    >>> print(Table("Bytes", ("scheme", "MB"), (("fl", "28.3"),)).to_markdown())
    **Bytes**
    <BLANKLINE>
    | scheme | MB |
    |---|---|
    | fl | 28.3 |
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    is_detail: bool = False  #: too much for a terminal

    def to_markdown(self) -> str:
        """Return it as Markdown, its notes below."""
        lines = [f"**{self.title}**", "", _line(self.columns), "|" + "---|" * len(self.columns)]
        lines += [_line(row) for row in self.rows]
        for note in self.notes:
            lines += ["", note]
        return "\n".join(lines)


@dataclass(frozen=True)
class Verdict:
    """A claim, and whether the rows bear it out; None where they cannot tell."""

    claim: str
    held: bool | None
    evidence: str

    @property
    def word(self) -> str:
        """Say it in a word or two."""
        return "cannot tell" if self.held is None else "held" if self.held else "not held"


@dataclass(frozen=True)
class ExperimentReport:
    """A finished experiment."""

    name: str  #: of its files
    title: str
    rows: Sequence[Row]
    tables: Sequence[Table] = ()
    verdicts: Sequence[Verdict] = ()
    figures: Mapping[str, Callable[[], Figure]] = field(default_factory=dict)  #: by file name without ending

    def to_markdown(self) -> str:
        """Return tables, verdicts and figures (by name, beside it) as a section of a page."""
        parts = [f"## {self.title}", *(table.to_markdown() for table in self.tables)]
        if self.verdicts:
            shown = tuple((one.claim, one.word, one.evidence) for one in self.verdicts)
            parts.append(Table("Verdicts", ("claim", "verdict", "evidence"), shown).to_markdown())
        parts += [f"![{self.title}]({name}.png)" for name in self.figures]
        return "\n\n".join(parts) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
