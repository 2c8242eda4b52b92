"""Tol-FL against each rival after a server failure: paired differences, tested over splits, Holm-corrected."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tolfl.experiments.report import Row, Table
from tolfl.experiments.rows import Method, units_of
from tolfl.experiments.statistics import differences, estimate, holm, sign_flip_p

OURS = (Method("tol-fl", "drop"), Method("tol-fl", "elect"))
RIVALS = (
    Method("fl", "isolate"),
    Method("fl", "freeze"),
    *(Method(name, "strict", "auroc_best") for name in ("fedgroup", "ifca", "fesem")),
    *(Method(name, "strict", "auroc_all_models") for name in ("fedgroup", "ifca", "fesem")),
    Method("mean-vector"),
    Method("pca-32"),
)


def significance_tables(rows: Sequence[Row]) -> list[Table]:
    """Return one table for each of Tol-FL's policies; the unit is a declared split of a data set."""
    return [table for ours in OURS if (table := _against_all(rows, ours))]


def _against_all(rows: Sequence[Row], ours: Method) -> Table | None:
    own = units_of(rows, ours)
    found = [(rival, gaps) for rival in RIVALS if (gaps := differences(own, units_of(rows, rival)))]
    if not found:
        return None
    p_values = [sign_flip_p([float(np.mean(values)) for values in gaps.values()]) for _, gaps in found]
    lines = []
    for (rival, gaps), p, corrected in zip(found, p_values, holm(p_values), strict=True):
        gap = estimate(gaps)
        ahead = sum(float(np.mean(values)) > 0 for values in gaps.values())
        interval = f"{gap.low:+.3f} to {gap.high:+.3f}"
        word = "not settled" if corrected >= 0.05 else "ahead" if gap.mean > 0 else "behind"
        share = f"{ahead} of {gap.n_units}"
        lines.append((rival.label, f"{gap.mean:+.3f}", interval, share, f"{p:.2g}", f"{corrected:.2g}", word))
    notes = (
        "Differences in AUROC, paired by split and seed; units are the declared splits of all data sets. p: exact "
        "two-sided sign-flip test over units; Holm: corrected for all lines. ahead / behind: below 0.05.",
    )
    columns = ("against", "difference", "95 % interval", "splits ahead", "p", "Holm", "verdict")
    return Table(f"{ours.label} against each rival after a server failure", columns, tuple(lines), notes)
