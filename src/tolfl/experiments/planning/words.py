"""A plan as plain values, and the sentences without which its numbers could be misread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tolfl.experiments.planning.advice import TIE
from tolfl.experiments.planning.costs import UPLINKS
from tolfl.experiments.planning.odds import SCENARIOS

if TYPE_CHECKING:
    from tolfl.experiments.planning.plan import Plan, PlanRow


def notes_of(plan: Plan) -> list[str]:
    """Return what must be known to read the numbers, most important first."""
    notes = [f"AUROC: from {plan.aurocs.source}", f"failures: {plan.question.failures.what}"]
    rehearsed = plan.aurocs.rehearsed_rounds
    if rehearsed is not None and rehearsed < plan.question.rounds:
        notes.append(
            f"the rehearsal has {rehearsed} of {plan.question.rounds} rounds: its models are not finished, and those "
            "that a failure stops early are furthest behind; --rehearsal-rounds for a longer one"
        )
    several = max(row.odds.several for row in plan.rows)
    if several > 0:
        most = max(row.odds.clients_lost + row.odds.heads_lost for row in plan.rows)
        notes.append(
            f"more than one failure (probability up to {several:.2g}; {most:.2g} failures on average) is counted as "
            "one, of a head if there is a head among them: an optimistic reading"
        )
    notes += [f"borrowed ({users}): {reason}" for reason, users in _loans(plan).items()]
    if plan.left_out:
        notes.append(f"not shown, because nobody has measured them: {'; '.join(map(str, plan.left_out))}")
    notes.append(
        "rounds lost: what a survivor must expect to lose, waiting until a failure is noticed and repaired (a head "
        "that dies with its cluster's contributions in hand) and training without the fleet once its head is gone for "
        "good (from half time on average)"
    )
    notes.append(
        f"recommended is the highest expected AUROC in time; what is closer to it than {TIE:g}, or than two standard "
        "errors of the difference, counts as equal, and the time of a round, then bytes, then rounds lost decide"
    )
    return notes


def _loans(plan: Plan) -> dict[str, str]:
    """Return who uses numbers that are not its own, and of what, by the reason why that is right."""
    loans: dict[str, tuple[list[str], list[str]]] = {}
    for row in plan.rows:
        for scenario, reason in row.worth.borrowed.items():
            policies, scenarios = loans.setdefault(reason, ([], []))
            policies.append(row.layout.policy)
            scenarios.append(_CALLED[scenario])
    shown = {reason: [", ".join(dict.fromkeys(names)) for names in users] for reason, users in loans.items()}
    return {reason: f"{policies}; {scenarios}" for reason, (policies, scenarios) in shown.items()}


_CALLED = {"none": "nobody lost", "client": "client lost", "server": "head lost"}


def fields_of(plan: Plan) -> dict[str, Any]:
    """Return a plan as JSON has it."""
    question = plan.question
    return {
        "data": plan.data,
        "devices": question.n_devices,
        "rounds": question.rounds,
        "train_s": list(question.network.train_s),
        "uplink": question.uplink,
        "deadline_s": question.deadline_s,
        "model_bytes": question.network.model_bytes,
        "failures": question.failures.what,
        "auroc_from": plan.aurocs.source,
        "recommended": {"clusters": plan.recommended.layout.clusters, "policy": plan.recommended.layout.policy},
        "reason": plan.reason,
        "notes": plan.notes,
        "not_measured": [{"clusters": layout.clusters, "policy": layout.policy} for layout in plan.left_out],
        "rows": [_row_fields(plan, row) for row in plan.rows],
    }


def _row_fields(plan: Plan, row: PlanRow) -> dict[str, Any]:
    return {
        "scheme": row.layout.scheme,
        "clusters": row.layout.clusters,
        "policy": row.layout.policy,
        "expected_auroc": row.expected_auroc,
        "auroc": {scenario: row.worth.mean(scenario) for scenario in SCENARIOS},
        "borrowed": dict(row.worth.borrowed),
        "odds": {scenario: row.odds.of(scenario) for scenario in SCENARIOS} | {"several": row.odds.several},
        "rounds_lost": row.rounds_lost,
        "rounds_waited": row.rounds_waited,
        "rounds_cut_off": row.rounds_cut_off,
        "bytes_per_round": row.bytes_per_round,
        "messages_per_round": row.messages,
        "round_s": dict(row.round_s),
        "meets_deadline": {uplink: plan.meets_deadline(row, uplink) for uplink in UPLINKS},
    }
