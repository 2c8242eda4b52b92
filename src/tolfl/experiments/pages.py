"""Pages that show stored results: what stands between two markers is made of them, and never written by hand.

A marker is an HTML comment, `<!-- results: server 1 -->` for the first table of `server.json`, `<!-- results: server
verdicts -->` for its verdicts; what follows it, up to `<!-- end -->`, is replaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from tolfl.core.errors import DataError
from tolfl.experiments.report import ExperimentReport, Table

_BLOCK = re.compile(r"(<!-- results: (?P<name>[a-z-]+) (?P<what>[a-z0-9]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(page: str, report: Callable[[str], ExperimentReport]) -> str:
    r"""Return a page with every block made anew from the reports.

    >>> one = ExperimentReport("server", "A server fails", [], [Table("AUROC", ("method",), (("fl",),))])
    >>> print(filled("<!-- results: server 1 -->\nold\n<!-- end -->", lambda name: one))
    <!-- results: server 1 -->
    **AUROC**
    <BLANKLINE>
    | method |
    |---|
    | fl |
    <!-- end -->
    """
    return _BLOCK.sub(lambda found: f"{found[1]}{block(report(found['name']), found['what'])}\n{found[4]}", page)


def block(report: ExperimentReport, what: str) -> str:
    """Return one table of a report by its number from 1, `verdicts`, or `count`: how many claims held."""
    if what == "verdicts":
        lines = tuple((one.claim, one.word, one.evidence) for one in report.verdicts)
        return Table("Claims", ("claim", "verdict", "evidence"), lines).to_markdown()
    if what == "count":
        return sentence(report)
    if not what.isdigit() or not 1 <= int(what) <= len(report.tables):
        raise DataError(f"results of {report.name}: no part {what!r}; say 1 to {len(report.tables)}, verdicts or count")
    return report.tables[int(what) - 1].to_markdown()


def sentence(report: ExperimentReport) -> str:
    """Say how many claims held."""
    words: Mapping[str, int] = {
        word: sum(one.word == word for one in report.verdicts) for word in ("held", "not held", "cannot tell")
    }
    shown = ", ".join(f"{count} {word}" for word, count in words.items() if count)
    return f"{report.title}: {shown or 'no claims'}."
