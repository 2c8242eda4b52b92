"""Which number of clusters, and what to do when a head dies: expected AUROC, rounds lost, bytes and time by layout.

The expected AUROC is the mean over exclusive scenarios, sum of p_s J_s: the odds p_s depend on k (k of the devices are
heads), the AUROC J_s on k and on the policy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tolfl.core.errors import SpecError
from tolfl.core.topology import Topology
from tolfl.experiments.planning.advice import recommend
from tolfl.experiments.planning.aurocs import Aurocs, Layout, Worth
from tolfl.experiments.planning.costs import (
    UPLINKS,
    Network,
    Uplink,
    messages_per_round,
    round_seconds,
    share_cut_off,
    stall_seconds,
)
from tolfl.experiments.planning.odds import SCENARIOS, FailureOdds, Odds, expected_performance
from tolfl.experiments.planning.words import fields_of, notes_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Question:
    """What a plan is asked for."""

    network: Network
    failures: FailureOdds
    rounds: int
    clusters: tuple[int, ...]
    uplink: Uplink = "serial"  #: which of the two times counts for the deadline and the recommendation
    deadline_s: float | None = None  #: per round, while nobody fails

    def __post_init__(self) -> None:
        if self.n_devices < 2:
            raise SpecError(f"{self.n_devices} devices; a plan needs at least 2")
        if self.rounds < 1:
            raise SpecError(f"rounds {self.rounds}; use at least 1")
        if self.deadline_s is not None and not (self.deadline_s > 0 and math.isfinite(self.deadline_s)):
            raise SpecError(f"deadline {self.deadline_s:g} s; use a number above 0")
        for k in self.clusters:
            if k > self.n_devices:
                raise SpecError(f"{k} clusters for {self.n_devices} devices; use at most {self.n_devices}")
            if k < 1:
                raise SpecError(f"{k} clusters; at least 1 is needed")

    @property
    def n_devices(self) -> int:
        """How many devices there are."""
        return self.network.n_devices


@dataclass(frozen=True)
class PlanRow:
    """What to expect of one layout."""

    layout: Layout
    odds: Odds
    worth: Worth
    expected_auroc: float
    expected_by_repetition: dict[str, float]
    error: float  #: of the expected AUROC, where repetitions are not known one by one
    round_s: dict[Uplink, float]
    bytes_per_round: int  #: each message counted
    messages: dict[str, int]  #: per round, by accounting
    rounds_waited: float  #: expected, until a failure is noticed and repaired (see `stall_seconds`)
    rounds_cut_off: float  #: expected, per survivor, without the fleet because a head is gone for good

    @property
    def rounds_lost(self) -> float:
        """Expected rounds lost of a survivor: waited and cut off."""
        return self.rounds_waited + self.rounds_cut_off


@dataclass(frozen=True)
class Plan:
    """An answer."""

    question: Question
    aurocs: Aurocs
    rows: tuple[PlanRow, ...]
    left_out: tuple[Layout, ...]  #: nobody has measured what they are worth
    recommended: PlanRow
    reason: str

    @property
    def data(self) -> str:
        """The data set that the AUROCs are of."""
        return self.aurocs.data

    def meets_deadline(self, row: PlanRow, uplink: Uplink | None = None) -> bool:
        """Tell whether a round of a layout is over in time."""
        deadline_s = self.question.deadline_s
        return deadline_s is None or row.round_s[uplink or self.question.uplink] <= deadline_s

    @property
    def notes(self) -> list[str]:
        """What must be known to read the numbers."""
        return notes_of(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as `--format json` shows them."""
        return fields_of(self)

    def plot(self) -> Figure:
        """Return a figure: expected AUROC by k for each policy, and the time per round."""
        from tolfl.experiments.planning.figures import plot_plan  # noqa: PLC0415  (matplotlib is slow to import)

        return plot_plan(self)


def layouts_of(clusters: Sequence[int]) -> list[Layout]:
    """Return the layouts to look at: FL with its two policies at k = 1, Tol-FL with its two at every k.

    Tol-FL with `drop` and one cluster is left out: when the head takes the whole fleet with it, that is FL's `freeze`.
    """
    found = [Layout(1, policy) for policy in ("isolate", "freeze") if 1 in clusters]
    for k in sorted(set(clusters)):
        found += [Layout(k, policy) for policy in ("drop", "elect") if k > 1 or policy == "elect"]
    return found


def make_plan(question: Question, aurocs: Aurocs) -> Plan:
    """Answer a question with what is known of layouts."""
    worths = {layout: aurocs.worth(layout, question.n_devices) for layout in layouts_of(question.clusters)}
    rows = tuple(_row(question, layout, worth) for layout, worth in worths.items() if worth is not None)
    left_out = tuple(layout for layout, worth in worths.items() if worth is None)
    if not rows:
        raise SpecError(f"{aurocs.source}: no layout has an AUROC for every scenario; give more results, or simulate")
    recommended, reason = recommend(question, rows)
    return Plan(question, aurocs, rows, left_out, recommended, reason)


def _row(question: Question, layout: Layout, worth: Worth) -> PlanRow:
    n, k, network = question.n_devices, layout.clusters, question.network
    topology = Topology.contiguous(n, k)
    round_s = {uplink: round_seconds(topology, network, uplink) for uplink in UPLINKS}
    pace_s = round_s[question.uplink]
    odds = question.failures.odds(n, k, question.rounds * pace_s)
    by_scenario = {scenario: odds.of(scenario) for scenario in SCENARIOS}
    messages = messages_per_round(layout.scheme, n, k)
    stall_s = stall_seconds(topology, network, question.uplink, layout.policy)
    waited_s = odds.clients_lost * stall_s["client"] + odds.heads_lost * stall_s["server"]
    # A star has one head to lose; of several clusters each may lose its own. On average that is at half time.
    heads_lost = odds.heads_lost if layout.policy == "drop" else odds.server
    return PlanRow(
        layout,
        odds,
        worth,
        expected_performance({scenario: worth.mean(scenario) for scenario in SCENARIOS}, by_scenario),
        worth.by_repetition(by_scenario),
        worth.error(by_scenario),
        round_s,
        messages["unicast"] * network.model_bytes,
        messages,
        waited_s / pace_s,
        min(1.0, heads_lost * share_cut_off(n, k, layout.policy)) * question.rounds / 2,
    )
