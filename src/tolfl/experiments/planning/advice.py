"""Which of the layouts of a plan to take, and why."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tolfl.experiments.planning.aurocs import Layout

if TYPE_CHECKING:
    from tolfl.experiments.planning.plan import PlanRow, Question

#: Expected AUROCs closer than this are taken for equal, also where no spread is known.
TIE = 0.001
#: What is preferred where nothing else tells two layouts apart.
_PREFERENCE = ("elect", "drop", "freeze", "isolate")


def recommend(question: Question, rows: Sequence[PlanRow]) -> tuple[PlanRow, str]:
    """Return the layout to take and why.

    Of those that meet the deadline, the one with the highest expected AUROC; of those that cannot be told from it, the
    quickest round, then fewer bytes, then fewer rounds lost.
    """
    uplink, deadline_s = question.uplink, question.deadline_s

    def costs(row: PlanRow) -> tuple[float, int, float, int]:
        preference = _PREFERENCE.index(row.layout.policy)
        return round(row.round_s[uplink], 9), row.bytes_per_round, round(row.rounds_lost, 9), preference

    in_time = [row for row in rows if deadline_s is None or row.round_s[uplink] <= deadline_s]
    if not in_time:
        fastest = min(rows, key=costs)
        needs = f"the fastest, {fastest.layout}, needs {seconds(fastest.round_s[uplink])}"
        return fastest, f"no layout meets the deadline of {seconds(deadline_s or 0)} with {uplink} uplinks; {needs}."
    best = max(in_time, key=lambda row: row.expected_auroc)
    equal = [row for row in in_time if cannot_be_told_apart(best, row)]
    chosen = min(equal, key=costs)
    return chosen, " ".join([_reason(question, chosen, best, in_time, equal), *_why_not_elect(chosen, rows)])


def cannot_be_told_apart(best: PlanRow, other: PlanRow) -> bool:
    """Tell whether two expected AUROCs differ by less than `TIE`, or than two standard errors of their difference.

    Differences are taken repetition by repetition: both have trained on the same data from the same start. Where
    repetitions are not known one by one, the errors of both are added up as if they had nothing in common.
    """
    common = [one for one in best.expected_by_repetition if one in other.expected_by_repetition]
    gaps = [best.expected_by_repetition[one] - other.expected_by_repetition[one] for one in common]
    error = math.hypot(best.error, other.error)
    if len(gaps) > 1:
        error = statistics.stdev(gaps) / math.sqrt(len(gaps))
    # The last bits of a sum are no difference.
    return best.expected_auroc - other.expected_auroc <= max(TIE, 2 * error) + 1e-12


def _reason(
    question: Question, chosen: PlanRow, best: PlanRow, in_time: Sequence[PlanRow], equal: Sequence[PlanRow]
) -> str:
    uplink = question.uplink
    said = f"{chosen.layout}: expected AUROC {chosen.expected_auroc:.4f}"
    if len(equal) > 1:
        gap = best.expected_auroc - chosen.expected_auroc
        place = f"{gap:.4f} below the highest" if gap >= 5e-5 else "the highest"
        pace = f"{seconds(chosen.round_s[uplink])} with {uplink} uplinks"
        said += f" ({place}); of the {len(equal)} layouts that cannot be told apart its round is the quickest ({pace})"
        rivals = [
            row for row in equal if row is not chosen and math.isclose(row.round_s[uplink], chosen.round_s[uplink])
        ]
        if rivals:
            said += f", and of those as quick it loses the fewest rounds ({chosen.rounds_lost:.2g})"
    else:
        said += ", the highest"
    outside = [row for row in in_time if row not in equal]
    if outside:
        next_best = max(outside, key=lambda row: row.expected_auroc)
        said += f"; the next is {next_best.layout} with {next_best.expected_auroc:.4f}"
    if question.deadline_s is not None:
        said += f"; {len(in_time)} layouts meet the deadline of {seconds(question.deadline_s)}"
    return said + "."


def _why_not_elect(chosen: PlanRow, rows: Sequence[PlanRow]) -> list[str]:
    """Say why a layout is recommended in which a lost head costs more than itself."""
    if chosen.layout.policy == "elect":
        return []
    elect = [row for row in rows if row.layout == Layout(chosen.layout.clusters, "elect")]
    if not elect:
        return ["This layout does not replace a lost head; elect was not among those looked at."]
    return [
        f"It does not replace a lost head: when one is lost, {chosen.layout.policy} was worth "
        f"{chosen.worth.mean('server'):.4f} and elect {elect[0].worth.mean('server'):.4f}."
    ]


def seconds(value: float) -> str:
    """Return a duration to be read.

    >>> seconds(0.0123), seconds(7.0)
    ('0.0123 s', '7 s')
    """
    return f"{value:.3g} s"
