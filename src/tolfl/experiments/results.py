"""The result of an experiment: rows as data, tables and figures made of them, claims that they support or not.

A results file has the rows and the specification of every row (`specs`, by the row's `job`): what differs from the
defaults of `RunSpec`. A page shows results between two markers, `<!-- results: server 1 -->` for the first table of
`server.json` (or `grid`, all claims) and `<!-- end -->`; what stands between them is never written by hand.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tolfl.core.errors import DataError, RunDirectoryError, SpecError
from tolfl.core.spec import RunSpec
from tolfl.experiments.result_rows import Row, distinct_values
from tolfl.experiments.sweep import spec_hash
from tolfl.runs.directory import write_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Raise it when rows change their meaning.
SCHEMA = 2
#: Fields of every results file on the origin of its rows.
_NEEDED = ("command", "is_quick", "seconds_computing", "machine", "specs")
_BEGIN = "<!-- results:"
_BLOCK = re.compile(
    rf"({_BEGIN} (?P<name>[a-z-]+) (?P<what>[a-z0-9]+) -->\n)((?!{_BEGIN}).)*?(?P<end><!-- end -->)", re.DOTALL
)


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
    """A claim, whether the rows support it (None: inconclusive), and the evidence."""

    claim: str
    is_supported: bool | None
    evidence: str

    @property
    def text(self) -> str:
        """The verdict in a word or two."""
        return {None: "inconclusive", True: "supported", False: "not supported"}[self.is_supported]


@dataclass(frozen=True)
class ExperimentReport:
    """Rows, with the tables, verdicts and figures made of them."""

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
            lines = tuple((one.claim, one.text, one.evidence) for one in self.verdicts)
            parts.append(Table("Claims", ("claim", "verdict", "evidence"), lines).to_markdown())
        parts += [f"![{self.title}]({name}.png)" for name in self.figures]
        return "\n\n".join(parts) + "\n"

    def part(self, what: str) -> str:
        """Return one table as Markdown, by its number from 1, or the `grid` of all verdicts."""
        if what == "grid":
            return _grid(self.verdicts).to_markdown()
        if not what.isdigit() or not 1 <= int(what) <= len(self.tables):
            raise DataError(f"results of {self.name}: no part {what!r}; use 1 to {len(self.tables)}, or grid")
        return self.tables[int(what) - 1].to_markdown()


def _grid(verdicts: Sequence[Verdict]) -> Table:
    """Return claims of the form `case: claim` as a table of cases and claims, without the evidence.

    >>> _grid([Verdict("cifar-10: fl < tol-fl", None, ""), Verdict("cifar-100: fl < tol-fl", True, "")]).rows
    (('cifar-10', '?'), ('cifar-100', 'yes'))
    """
    marks = {None: "?", True: "yes", False: "no"}
    found = {tuple(one.claim.split(": ", 1)): marks[one.is_supported] for one in verdicts}
    rows, columns = (list(dict.fromkeys(words)) for words in zip(*found, strict=True))
    if len(rows) < len(columns):
        found = {(claim, case): mark for (case, claim), mark in found.items()}
        rows, columns = columns, rows
    lines = tuple((row, *(found.get((row, column), "") for column in columns)) for row in rows)
    return Table("Claims", ("", *columns), lines, ("yes: supported; no: not supported; ?: inconclusive.",))


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def fill_page(page: str, report: Callable[[str], ExperimentReport]) -> str:
    r"""Return a page with every block made anew from the reports.

    >>> one = ExperimentReport("server", "A server fails", [], [Table("AUROC", ("method",), (("fl",),))])
    >>> print(fill_page("<!-- results: server 1 -->\nold\n<!-- end -->", lambda name: one))
    <!-- results: server 1 -->
    **AUROC**
    <BLANKLINE>
    | method |
    |---|
    | fl |
    <!-- end -->
    """
    for place in re.finditer(_BEGIN, page):
        if not _BLOCK.match(page, place.start()):
            line = page[place.start() :].partition("\n")[0]
            raise DataError(f"{line}: write '{_BEGIN} NAME PART -->' on a line, and '<!-- end -->' below it")
    return _BLOCK.sub(lambda found: f"{found[1]}{report(found['name']).part(found['what'])}\n{found['end']}", page)


# -- files --------------------------------------------------------------------------------------------------------


def spec_fields(spec: RunSpec) -> dict[str, Any]:
    """Return the fields of a specification that differ from the defaults, without the folder of its data.

    >>> spec_fields(RunSpec.from_fields({"devices": 4, "train": {"lr": 0.1}, "dataset": {"dir": "here"}}))
    {'devices': 4, 'train': {'lr': 0.1}}
    """
    fields = _differing(msgspec.to_builtins(spec), msgspec.to_builtins(RunSpec()))
    dataset = {name: value for name, value in fields.pop("dataset", {}).items() if name != "dir"}
    return {**fields, "dataset": dataset} if dataset else fields


def _differing(fields: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, value in fields.items():
        default = defaults.get(name)
        if isinstance(value, dict) and isinstance(default, dict) and default:
            if inner := _differing(value, default):
                found[name] = inner
        elif value != default:
            found[name] = value
    return found


def check_overwriting(folder: Path, name: str, is_quick: bool) -> None:
    """Refuse to write quick results where full ones are stored."""
    path = folder / f"{name}.json"
    if is_quick and path.is_file() and not read_results(path).get("is_quick", False):
        raise RunDirectoryError(path, "has full results, which --quick does not overwrite; choose another --out")


def write_results(folder: Path, report: ExperimentReport, origin: Mapping[str, Any]) -> list[Path]:
    """Write rows, tables and figures; return the files."""
    check_overwriting(folder, report.name, origin["is_quick"])
    content = {**origin, "name": report.name, "title": report.title, "rows": list(report.rows)}
    content["sha256"] = _digest(content)
    content["verdicts"] = list(report.verdicts)
    write_file(folder, f"{report.name}.json", _lines(content))
    minutes = f"its runs took {origin['seconds_computing'] / 60:.1f} min by the clock"
    quick = " Quick: tiny runs that show that it works, and no more." if origin["is_quick"] else ""
    what = f"{minutes}, whenever that was and whatever ran beside; {origin['machine']}"
    head = f"# {report.title}\n\nCommand: `{origin['command']}` ({what}).{quick}\n"
    write_file(folder, f"{report.name}.md", (head + "\n" + report.to_markdown()).encode())
    paths = [folder / f"{report.name}.json", folder / f"{report.name}.md"]
    for name, draw in report.figures.items():
        path = folder / f"{name}.png"
        try:
            draw().savefig(path, dpi=160)
        except OSError as error:
            raise RunDirectoryError(path, f"cannot be written ({error.strerror}); choose another --out") from None
        paths.append(path)
    return paths


def read_results(path: Path) -> dict[str, Any]:
    """Return a results file: its rows, and where they come from; an inconsistent one is refused."""
    try:
        content: dict[str, Any] = msgspec.json.decode(path.read_bytes())
        rows, schema, *_ = [content[name] for name in ("rows", "schema", *_NEEDED)]
    except (OSError, msgspec.DecodeError, KeyError, TypeError) as error:
        raise RunDirectoryError(path, f"holds no results that can be read ({error})") from None
    if schema != SCHEMA:
        raise RunDirectoryError(path, f"has schema {schema}; this version reads {SCHEMA}, so compute it again")
    try:
        unknown = [key for key in distinct_values(rows, "job") if key not in content["specs"]]
        changed = [key for key, found in content["specs"].items() if spec_hash(RunSpec.from_fields(found)) != key]
    except (AttributeError, KeyError, TypeError, SpecError) as error:
        raise RunDirectoryError(path, f"was edited by hand, or is of another version ({error}); restore it") from None
    if unknown or changed:
        key = (unknown or changed)[0]
        raise RunDirectoryError(path, f"was edited by hand: job {key} has not the specification it names; restore it")
    if content.get("sha256") != _digest(content):
        raise RunDirectoryError(path, "was edited by hand: its rows are not those that were computed; restore it")
    return content


def _digest(content: Mapping[str, Any]) -> str:
    """Return the digest of rows and specifications, by which a number that was changed by hand is found."""
    return hashlib.sha256(msgspec.json.encode([content["specs"], content["rows"]])).hexdigest()


def _lines(content: Mapping[str, Any]) -> bytes:
    """Return JSON with one row per line: short, and fit for a diff."""
    head = {name: value for name, value in content.items() if name not in ("rows", "specs")}
    text = msgspec.json.format(msgspec.json.encode(head), indent=2).decode().rstrip().removesuffix("}").rstrip()
    specs = ",\n".join(f'    "{key}": {msgspec.json.encode(spec).decode()}' for key, spec in content["specs"].items())
    rows = ",\n".join("    " + msgspec.json.encode(row).decode() for row in content["rows"])
    return f'{text},\n  "specs": {{\n{specs}\n  }},\n  "rows": [\n{rows}\n  ]\n}}\n'.encode()
