"""What the paper published, as data: AUROC by scenario, data set and method, and its communication costs."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from tolfl.experiments.result_rows import Method

#: How its table of failures calls our scenarios.
_SCENARIOS = {"clean": "none", "client": "client", "server": "server"}
#: How it marks the scores of several models.
_MARKS = {"auroc_best": "*", "auroc_all_models": "-dagger", "auroc": ""}
#: The rule that the paper follows when a head fails, by scheme.
PAPER_POLICY = {"tol-fl": "drop", "fl": "isolate", "fedgroup": "strict", "ifca": "strict", "fesem": "strict"}


@cache
def published() -> dict[str, Any]:
    """Return all published figures."""
    content: dict[str, Any] = msgspec.json.decode((files("tolfl.experiments.paper") / "published.json").read_bytes())
    return content


def published_auroc(scenario: str, data: str, method: Method) -> tuple[float, float] | None:
    """Return the published mean and spread; None where the paper has no such cell.

    >>> published_auroc("server", "comms-ml", Method("tol-fl", "drop"))
    (0.75, 0.03)
    >>> published_auroc("server", "comms-ml", Method("tol-fl", "elect")) is None
    True
    """
    if method.score not in _MARKS or method.policy not in ("", PAPER_POLICY.get(method.scheme)):
        return None
    of_data = published()["auroc"][_SCENARIOS[scenario]].get(data, {})
    found = of_data.get(method.scheme + _MARKS[method.score])
    return None if found is None else (found[0], found[1])
