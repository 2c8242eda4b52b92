"""Which number of clusters, and what to do when a head fails: expected AUROC, bytes and time by layout.

The expected AUROC is the mean over exclusive scenarios, sum of p_s J_s: the probabilities p_s depend on k (k of the
devices are heads), the AUROC J_s, from short pilot runs, on k and on the policy.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import msgspec

from tolfl.core.errors import SpecError
from tolfl.core.spec import RunSpec
from tolfl.core.topology import asked_layout
from tolfl.experiments.layout_costs import layout_costs, model_bytes_of
from tolfl.experiments.result_rows import Row
from tolfl.experiments.results import Table
from tolfl.experiments.sweep import Job, Repetition

#: What may happen in a training, as exclusive cases: nobody fails, only clients do, a head does.
SCENARIOS = {"none": "nobody lost", "client": "client lost", "server": "head lost"}
#: Expected AUROCs closer than this count as equal, also where no spread is known.
_TIE = 0.001
#: The policies, in order of preference between layouts that are otherwise equal.
_PREFERENCE = ("elect", "drop", "freeze", "isolate")


@dataclass(frozen=True)
class ClusterLayout:
    """Who reports to whom, and what follows when a head fails."""

    clusters: int
    policy: str  #: `elect` or `drop` of Tol-FL, `isolate` or `freeze` of FL

    @property
    def scheme(self) -> str:
        """The name of its scheme: FL with the policies that FL has, else Tol-FL, the chain (k = N) included."""
        return "fl" if self.policy in ("isolate", "freeze") else "tol-fl"

    def __str__(self) -> str:
        """Return its name in the table."""
        return f"{self.scheme} ({self.policy}), k = {self.clusters}"


def layouts_of(clusters: Sequence[int]) -> list[ClusterLayout]:
    """Return the layouts to look at: FL with its two policies at k = 1, Tol-FL with its two at every k.

    Tol-FL with `drop` and one cluster is left out: when the head takes the whole fleet with it, that is FL's `freeze`.
    """
    found = [ClusterLayout(1, policy) for policy in ("isolate", "freeze") if 1 in clusters]
    for k in sorted(set(clusters)):
        found += [ClusterLayout(k, policy) for policy in ("drop", "elect") if k > 1 or policy == "elect"]
    return found


def usual_clusters(n_devices: int) -> tuple[int, ...]:
    """Return a few numbers of clusters from star to chain: 1, 2, the root of N (quickest, serial), N / 2, N.

    >>> usual_clusters(10)
    (1, 2, 3, 5, 10)
    """
    return tuple(sorted({1, min(2, n_devices), round(math.sqrt(n_devices)), max(1, n_devices // 2), n_devices}))


def failure_probabilities(n_devices: int, n_clusters: int, p: float, q: float) -> dict[str, float]:
    """Return the probability of each scenario and of several failures.

    During the training each client fails with probability p, each head with q, on its own. Several failures belong to
    the scenario of the worst one.

    >>> round(failure_probabilities(n_devices=10, n_clusters=2, p=0.0, q=0.1)["server"], 2)
    0.19
    """
    n_clients = n_devices - n_clusters
    clients_stay, heads_stay = (1 - p) ** n_clients, (1 - q) ** n_clusters
    one_client = n_clients * p * (1 - p) ** max(0, n_clients - 1) * heads_stay
    one_head = n_clusters * q * (1 - q) ** (n_clusters - 1) * clients_stay
    none = clients_stay * heads_stay
    return {
        "none": none,
        "client": heads_stay - none,
        "server": 1.0 - heads_stay,
        "several": max(0.0, 1.0 - none - one_client - one_head),
    }


# -- AUROCs -----------------------------------------------------------------------------------------------------------

Pilots = Mapping[tuple[ClusterLayout, str], Sequence[Mapping[str, Any]]]  #: summaries by layout and scenario


def pilot_job(spec: RunSpec, one: ClusterLayout, scenario: str) -> Job:
    """Return the short run of a layout in a scenario: nobody lost, or a client or a head at half time.

    Layouts whose models are equal share a run. While all heads live no layout changes the model, and with `elect` none
    does; a cluster of one loses only its head.

    >>> pilot_job(RunSpec(data="blobs", devices=4, rounds=4), ClusterLayout(4, "drop"), "server").label
    'client lost'
    """
    if scenario == "server" and one == ClusterLayout(spec.devices, "drop"):
        scenario = "client"
    if scenario != "server" or one.policy == "elect":
        one = ClusterLayout(1, "elect")
    own = msgspec.structs.replace(
        spec,
        scheme=one.scheme,
        clusters=one.clusters,
        fail="" if scenario == "none" else f"{scenario}@{spec.rounds // 2}",
        on_head_failure=one.policy if scenario == "server" else "",
    )
    return Job(SCENARIOS[scenario] + (f", {one}" if scenario == "server" else ""), own)


def pilot_jobs(spec: RunSpec, layouts: Sequence[ClusterLayout]) -> dict[tuple[ClusterLayout, str], Job]:
    """Return the run of every layout in every scenario."""
    if spec.rounds < 2:
        raise SpecError(f"a pilot run of {spec.rounds} rounds; use at least 2, one before and one after the failure")
    return {(one, scenario): pilot_job(spec, one, scenario) for one in layouts for scenario in SCENARIOS}


def scored(job: Job, repetitions: Sequence[Repetition]) -> list[Mapping[str, Any]]:
    """Return the summaries of a pilot run; without a score a layout cannot be weighed."""
    found = [one.summary for one in repetitions if one.summary is not None]
    if len(found) < len(repetitions) or any(summary["auroc"] is None for summary in found):
        why = "without a test set, a model cannot be scored; name the column with the classes"
        if len(found) < len(repetitions):
            why = "a run diverged; take a smaller train.lr"
        raise SpecError(f"data {job.spec.data}: {why}")
    return found


# -- the plan ---------------------------------------------------------------------------------------------------------


class LayoutPlan(msgspec.Struct, frozen=True):
    """Layouts side by side, and the one to take, as `--format json` shows it."""

    data: str
    devices: int
    rounds: int
    model_bytes: int
    deadline_s: float | None
    recommended: dict[str, Any]  #: clusters and policy
    reason: str
    notes: list[str]  #: notes on how to read the numbers
    rows: list[dict[str, Any]]  #: one per layout

    @property
    def table(self) -> Table:
        """The rows as text, the recommended one marked; below them what must be known to read them."""
        aurocs = ("nobody lost", "client lost", "head lost", "expected AUROC")
        costs = ("odds of head lost", "MB per round", "s per round")
        lines = []
        for row in self.rows:
            mark = " <" if self.recommended == {name: row[name] for name in self.recommended} else ""
            cells = [f"{row['scheme']} ({row['policy']})", str(row["clusters"])]
            cells += [f"{row['auroc'][scenario]:.3f}" for scenario in SCENARIOS]
            cells += [f"{row['expected_auroc']:.4f}{mark}", f"{row['odds']['server']:.3g}"]
            cells += [f"{row['bytes_per_round'] / 1e6:.3g}", f"{row['round_s']:.3g}"]
            cells += [] if self.deadline_s is None else ["yes" if row["meets_deadline"] else "no"]
            lines.append(tuple(cells))
        return Table(
            f"{self.data}: {self.devices} devices, {self.rounds} rounds; a model has {self.model_bytes / 1e6:.3g} MB",
            ("", "k", *aurocs, *costs, *["in time"] * (self.deadline_s is not None)),
            tuple(lines),
            (*self.notes, f"recommended: {self.reason}"),
        )


def check_plan(spec: RunSpec, clusters: Sequence[int], odds: tuple[float, float], deadline_s: float | None) -> None:
    """Raise an error with one sentence if the request makes no sense."""
    if spec.topology:
        raise SpecError(f"topology {spec.topology!r}: a plan is about k clusters of neighbouring ids; leave it out")
    if spec.devices < 2:
        raise SpecError(f"{spec.devices} devices; a plan needs at least 2")
    for name, value in zip(("fail odds", "head fail odds"), odds, strict=True):
        if not 0 <= value <= 1:
            raise SpecError(f"{name} {value:g}; give a probability per device and training, from 0 to 1")
    if deadline_s is not None and not (deadline_s > 0 and math.isfinite(deadline_s)):
        raise SpecError(f"deadline {deadline_s:g} s; use a number above 0")
    for k in clusters:
        asked_layout(msgspec.structs.replace(spec, clusters=k).check())


def make_plan(
    spec: RunSpec,
    odds: tuple[float, float],
    pilots: Pilots,
    sizes: Sequence[int],
    n_features: int,
    deadline_s: float | None = None,
) -> LayoutPlan:
    """Weigh the layouts of pilot runs for a fleet whose clients and heads fail with these probabilities."""
    n_bytes, rows = model_bytes_of(n_features, spec.model), list[dict[str, Any]]()
    for one in dict.fromkeys(layout for layout, _ in pilots):
        own = msgspec.structs.replace(
            spec, scheme=one.scheme, clusters=one.clusters, on_head_failure=one.policy, fail=""
        )
        aurocs = {scenario: [summary["auroc"] for summary in pilots[one, scenario]] for scenario in SCENARIOS}
        p = failure_probabilities(spec.devices, one.clusters, *odds)
        by_seed = [
            math.fsum(p[scenario] * value for scenario, value in zip(SCENARIOS, of_seed, strict=True))
            for of_seed in zip(*aurocs.values(), strict=True)
        ]
        round_s, bytes_per_round = layout_costs(own, sizes, n_bytes)
        rows.append(
            {
                "scheme": one.scheme,
                "clusters": one.clusters,
                "policy": one.policy,
                "expected_auroc": statistics.fmean(by_seed),
                "by_seed": by_seed,
                "auroc": {scenario: statistics.fmean(values) for scenario, values in aurocs.items()},
                "odds": p,
                "bytes_per_round": bytes_per_round,
                "round_s": round_s,
                "meets_deadline": deadline_s is None or round_s <= deadline_s,
            }
        )
    chosen, reason = _recommended(rows, deadline_s)
    return LayoutPlan(
        data=spec.data,
        devices=spec.devices,
        rounds=spec.rounds,
        model_bytes=n_bytes,
        deadline_s=deadline_s,
        recommended={"clusters": chosen["clusters"], "policy": chosen["policy"]},
        reason=reason,
        notes=list(_notes(spec, odds, pilots, rows)),
        rows=rows,
    )


def _recommended(rows: Sequence[Row], deadline_s: float | None) -> tuple[Row, str]:
    """Return the row of the layout to take and why.

    Of those that meet the deadline, the one with the highest expected AUROC; of those within the error of it, the
    quickest round, then fewer bytes, then the policy that does more.
    """

    def costs(row: Row) -> tuple[float, int, int]:
        return round(row["round_s"], 9), row["bytes_per_round"], _PREFERENCE.index(row["policy"])

    in_time = [row for row in rows if row["meets_deadline"]]
    if not in_time:
        fastest = min(rows, key=costs)
        needs = f"the fastest, {_name(fastest)}, needs {fastest['round_s']:.3g} s"
        return fastest, f"no layout meets the deadline of {deadline_s:.3g} s; {needs}."
    best = max(in_time, key=itemgetter("expected_auroc"))
    equal = [row for row in in_time if _cannot_be_told_apart(best, row)]
    chosen = min(equal, key=costs)
    text = f"{_name(chosen)}: expected AUROC {chosen['expected_auroc']:.4f}, "
    if len(equal) == 1:
        text += "the highest"
    else:
        text += f"the quickest round of {len(equal)} layouts that cannot be told apart from the highest"
    if others := [row for row in in_time if row not in equal]:
        following = max(others, key=itemgetter("expected_auroc"))
        text += f"; the next is {_name(following)} with {following['expected_auroc']:.4f}"
    return chosen, text + ("." if chosen["policy"] == "elect" else ". It does not replace a lost head.")


def _name(row: Row) -> str:
    return str(ClusterLayout(row["clusters"], row["policy"]))


def _cannot_be_told_apart(best: Row, other: Row) -> bool:
    """Return whether two expected AUROCs differ by less than 0.001, or than two standard errors of their difference.

    Differences are taken seed by seed: both have trained on the same data from the same start.
    """
    gaps = [one - another for one, another in zip(best["by_seed"], other["by_seed"], strict=True)]
    error = statistics.stdev(gaps) / math.sqrt(len(gaps)) if len(gaps) > 1 else 0.0
    # The last bits of a sum are no difference.
    return statistics.fmean(gaps) <= max(_TIE, 2 * error) + 1e-12


def _notes(spec: RunSpec, odds: tuple[float, float], pilots: Pilots, rows: Sequence[Row]) -> Iterator[str]:
    summary, *more = next(iter(pilots.values()))
    rounds, seeds = summary["rounds"], f"{1 + len(more)} seed{'s' * bool(more)}"
    yield f"AUROC: pilot runs on {spec.data}, {rounds} of {spec.rounds} rounds, failures after {rounds // 2}, {seeds}"
    several = max(row["odds"]["several"] for row in rows)
    heads = "" if odds[0] == odds[1] else f" ({odds[1]:g} as a head)"
    yield (
        f"failures: each device fails during the training with probability {odds[0]:g}{heads}; several (probability up "
        f"to {several:.2g}) count as one, of a head if there is a head among them: an optimistic reading"
    )
    isolated = pilots.get((ClusterLayout(1, "isolate"), "server"), ())
    if together := [one["auroc_all_models"] for one in isolated if one["auroc_all_models"] is not None]:
        yield (
            "fl (isolate), head lost: the mean over devices of the model that each has; all of their models together, "
            f"the least of their scores sample by sample, are worth {statistics.fmean(together):.3f}"
        )
