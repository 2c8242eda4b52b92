"""The shape of the paper's tables, as claims that rows can bear out or not.

A claim says where a difference lies, paired by split and seed. It is held where the whole bootstrap interval of the
difference lies there, not held where all of it lies elsewhere, and otherwise nobody can tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from tolfl.experiments.paper.studies import STUDIES
from tolfl.experiments.report import Row, Verdict
from tolfl.experiments.rows import Method, units_of
from tolfl.experiments.statistics import Units, differences, estimate

#: "About equal" and "a small drop": the paper's own differences when nobody or one client fails are up to 0.03.
_ABOUT = 0.03
_RIVALS = {"fedgroup": "FedGroup", "ifca": "IFCA", "fesem": "FeSEM"}
#: Losses of Tol-FL's cluster in the paper's table: from 0.80 to 0.75, 0.95 to 0.85, 0.71 to 0.68, 0.75 to 0.73.
_A_CLUSTERS_WORTH = 0.12

Scores = Callable[..., Units]  #: of a scenario and a scheme, by split


def verdicts_of(scenario: str, rows: Sequence[Row], names: Sequence[str]) -> list[Verdict]:
    """Return the verdicts of one table; `rows` may have those of the clean runs too, which falls are measured from."""
    checks = {"clean": _clean, "client": _client, "server": _server}
    found = []
    for name in names:
        own = [row for row in rows if row["data"] == name]

        def scores(
            scenario: str, scheme: str, policy: str = "", kind: str = "auroc", own: Sequence[Row] = own
        ) -> Units:
            return units_of(own, Method(scheme, policy, kind), scenario=scenario)

        shown = STUDIES[name].shown_as
        found += [Verdict(f"{shown}: {v.claim}", v.held, v.evidence) for v in checks[scenario](scores)]
    return found


def _clean(scores: Scores) -> Iterator[Verdict]:
    ours, fl, batch = scores("clean", "tol-fl"), scores("clean", "fl"), scores("clean", "batch")
    for rival, name in _RIVALS.items():
        yield _above(f"best single {name} < Tol-FL", ours, scores("clean", rival, kind="auroc_best"))
    yield _judged("Tol-FL = FL, exactly", ours, fl, 0.0, 0.0)
    yield _judged(f"FL ≈ batch (within {_ABOUT:g})", fl, batch, -_ABOUT, _ABOUT)
    for rival, name in _RIVALS.items():
        yield _above(f"batch ≤ all models of {name}", scores("clean", rival, kind="auroc_all_models"), batch)


def _client(scores: Scores) -> Iterator[Verdict]:
    lines = [("Tol-FL", "tol-fl", "auroc"), ("FL", "fl", "auroc"), ("batch", "batch", "auroc")]
    lines += [(f"best single {name}", rival, "auroc_best") for rival, name in _RIVALS.items()]
    for name, scheme, kind in lines:
        before, after = scores("clean", scheme, kind=kind), scores("client", scheme, kind=kind)
        yield _judged(f"a client failure costs {name} {_ABOUT:g} at most", before, after, high=_ABOUT)


def _server(scores: Scores) -> Iterator[Verdict]:
    alone, stopped = scores("server", "fl", "isolate"), scores("server", "fl", "freeze")
    fall = differences(scores("clean", "fl"), alone)
    for policy in ("drop", "elect"):
        before, after = scores("clean", "tol-fl"), scores("server", "tol-fl", policy)
        yield _above(f"FL (isolate) falls more than Tol-FL ({policy})", fall, differences(before, after))
        claim = f"Tol-FL ({policy}) falls by a cluster's worth at most ({_A_CLUSTERS_WORTH:g})"
        yield _judged(claim, before, after, high=_A_CLUSTERS_WORTH)
        for rival, name in _RIVALS.items():
            single = scores("server", rival, "strict", "auroc_best")
            yield _above(f"best single {name} < Tol-FL ({policy})", after, single)
    yield _above("FL (isolate) < FL (freeze): stopping beats going on alone", stopped, alone)
    for policy in ("drop", "elect"):
        yield _above(f"FL (freeze) < Tol-FL ({policy})", scores("server", "tol-fl", policy), stopped)


def _above(claim: str, high: Units, low: Units) -> Verdict:
    return _judged(claim, high, low, low=0.0)


def _judged(claim: str, a: Units, b: Units, low: float = -math.inf, high: float = math.inf) -> Verdict:
    """Judge a claim that `a - b` lies between two bounds."""
    gaps = differences(a, b)
    if not gaps:
        return Verdict(claim, None, "not run")
    gap = estimate(gaps)
    inside, outside = low <= gap.low and gap.high <= high, gap.high < low or gap.low > high
    means = " - ".join(f"{estimate(units).mean:.3f}" for units in (a, b))
    evidence = f"{means} = {gap.mean:+.3f} ({gap.low:+.3f} to {gap.high:+.3f})"
    return Verdict(claim, True if inside else False if outside else None, evidence)
