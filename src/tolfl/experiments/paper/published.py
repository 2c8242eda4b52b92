"""What the paper published, as data: AUROC by scenario, data set and method, and its communication costs."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

#: How its table of failures calls our scenarios.
_SCENARIOS = {"clean": "none", "client": "client", "server": "server"}
#: The rule that the paper follows when a head dies, by scheme.
PAPER_POLICY = {"tol-fl": "drop", "fl": "isolate", "fedgroup": "strict", "ifca": "strict", "fesem": "strict"}


@cache
def published() -> dict[str, Any]:
    """Return all published figures."""
    content: dict[str, Any] = msgspec.json.decode((files("tolfl.experiments.paper") / "published.json").read_bytes())
    return content


def published_auroc(scenario: str, data: str, scheme: str, policy: str, score: str) -> tuple[float, float] | None:
    """Return the published mean and spread; None where the paper has no such cell.

    >>> published_auroc("server", "comms-ml", "tol-fl", "drop", "auroc")
    (0.75, 0.03)
    >>> published_auroc("server", "comms-ml", "tol-fl", "elect", "auroc") is None
    True
    """
    if policy and policy != PAPER_POLICY.get(scheme):
        return None
    marks = {"auroc_best": "*", "auroc_all_models": "-dagger", "auroc": ""}
    if score not in marks:
        return None
    found = published()["auroc"][_SCENARIOS[scenario]].get(data, {}).get(scheme + marks[score])
    return None if found is None else (found[0], found[1])
