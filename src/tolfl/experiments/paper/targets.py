"""The shape of the paper's tables, as claims that rows can bear out or not."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence

from tolfl.experiments.paper.studies import STUDIES
from tolfl.experiments.report import Row, Verdict
from tolfl.experiments.rows import Method, units_of

#: "About equal" and "a small drop": the paper's own differences when nobody or one client fails are up to 0.03.
_ABOUT = 0.03
_RIVALS = ("fedgroup", "ifca", "fesem")
_NAMES = {"fedgroup": "FedGroup", "ifca": "IFCA", "fesem": "FeSEM"}
#: Losses of Tol-FL's cluster in the paper's table: from 0.80 to 0.75, 0.95 to 0.85, 0.71 to 0.68, 0.75 to 0.73.
_A_CLUSTERS_WORTH = 0.12

Score = Callable[..., float | None]


def verdicts_of(scenario: str, rows: Sequence[Row], names: Sequence[str]) -> list[Verdict]:
    """Return the verdicts of one table; `rows` may have those of the clean runs too, which falls are measured from."""
    checks = {"clean": _clean, "client": _client, "server": _server}
    found = []
    for name in names:
        own = [row for row in rows if row["data"] == name]

        def score(
            scenario: str, scheme: str, policy: str = "", kind: str = "auroc", own: Sequence[Row] = own
        ) -> float | None:
            units = units_of(own, Method(scheme, policy, kind), scenario=scenario)
            values = [value for of_unit in units.values() for value in of_unit]
            return statistics.fmean(values) if values else None

        shown = STUDIES[name].shown_as
        found += [Verdict(f"{shown}: {v.claim}", v.held, v.evidence) for v in checks[scenario](score)]
    return found


def _clean(score: Score) -> Iterator[Verdict]:
    ours, fl, batch = score("clean", "tol-fl"), score("clean", "fl"), score("clean", "batch")
    for rival in _RIVALS:
        yield _less(f"best single {_NAMES[rival]} < Tol-FL", score("clean", rival, kind="auroc_best"), ours)
    yield _check("Tol-FL = FL, exactly", ours, fl, lambda a, b: a == b)
    yield _check(f"FL ≈ batch (within {_ABOUT:g})", fl, batch, lambda a, b: abs(a - b) <= _ABOUT)
    for rival in _RIVALS:
        together = score("clean", rival, kind="auroc_all_models")
        yield _check(f"batch ≤ all models of {_NAMES[rival]}", batch, together, lambda a, b: a <= b)


def _client(score: Score) -> Iterator[Verdict]:
    lines = [("Tol-FL", "tol-fl", "auroc"), ("FL", "fl", "auroc"), ("batch", "batch", "auroc")]
    lines += [(f"best single {_NAMES[rival]}", rival, "auroc_best") for rival in _RIVALS]
    for name, scheme, kind in lines:
        before, after = score("clean", scheme, kind=kind), score("client", scheme, kind=kind)
        yield _check(
            f"a client failure costs {name} little (0 to {_ABOUT:g})",
            before,
            after,
            lambda a, b: a - b <= _ABOUT,
            "{:.3f} to {:.3f}",
        )


def _server(score: Score) -> Iterator[Verdict]:
    clean, alone = score("clean", "fl"), score("server", "fl", "isolate")
    fall = None if clean is None or alone is None else clean - alone
    for policy in ("drop", "elect"):
        before, after = score("clean", "tol-fl"), score("server", "tol-fl", policy)
        own = None if before is None or after is None else before - after
        yield _check(
            f"FL (isolate) falls more than Tol-FL ({policy})",
            own,
            fall,
            lambda a, b: a < b,
            "falls of {:.3f} and {:.3f}",
        )
        yield _check(
            f"Tol-FL ({policy}) falls by a cluster's worth at most ({_A_CLUSTERS_WORTH:g})",
            before,
            after,
            lambda a, b: a - b <= _A_CLUSTERS_WORTH,
            "{:.3f} to {:.3f}",
        )
        for rival in _RIVALS:
            yield _less(
                f"best single {_NAMES[rival]} < Tol-FL ({policy})",
                score("server", rival, "strict", "auroc_best"),
                after,
            )
    yield _less("FL (isolate) < FL (freeze): stopping beats going on alone", alone, score("server", "fl", "freeze"))
    yield _less("FL (freeze) < Tol-FL (drop)", score("server", "fl", "freeze"), score("server", "tol-fl", "drop"))
    yield _less("FL (freeze) < Tol-FL (elect)", score("server", "fl", "freeze"), score("server", "tol-fl", "elect"))


def _less(claim: str, low: float | None, high: float | None) -> Verdict:
    return _check(claim, low, high, lambda a, b: a < b)


def _check(
    claim: str,
    a: float | None,
    b: float | None,
    holds: Callable[[float, float], bool],
    shown: str = "{:.3f} and {:.3f}",
) -> Verdict:
    if a is None or b is None:
        return Verdict(claim, None, "not run")
    return Verdict(claim, holds(a, b), shown.format(a, b))
