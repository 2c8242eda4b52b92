"""Which number of clusters, and what to do when a head fails: expected AUROC, rounds lost, bytes and time by layout.

The expected AUROC is the mean over exclusive scenarios, sum of p_s J_s: the probabilities p_s depend on k (k of the
devices are heads), the AUROC J_s on k and on the policy. AUROCs come from short pilot runs or from the paper; what a
round costs is found by playing the protocol, without training.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec

from tolfl.core.deferred_sum import deferred_merge
from tolfl.core.errors import SpecError, UnknownNameError
from tolfl.core.spec import ModelSpec, RunSpec, Timing
from tolfl.experiments.paper.published import published
from tolfl.experiments.sweep import Job, Sweep
from tolfl.learners.layouts import failure_plan, layout, protocol_policy, wiring
from tolfl.protocol.device import Rules
from tolfl.runs.ledger import Ledger
from tolfl.sim.deferred import DeferredState
from tolfl.sim.timeline import ClosedStep, Timeline
from tolfl.sim.world import World, training_speeds

#: What may happen in a training, as exclusive cases: nobody fails, only clients do, a head does.
SCENARIOS = {"none": "nobody lost", "client": "client lost", "server": "head lost"}
UPLINKS = ("serial", "parallel")
#: Expected AUROCs closer than this are taken for equal, also where no spread is known.
_TIE = 0.001
#: What is preferred where nothing else tells two layouts apart.
_PREFERENCE = ("elect", "drop", "freeze", "isolate")
_PAPERS_REPETITIONS = 10
#: Rounds that are played, and of how many heads the failure is.
_PLAYED, _SAMPLED_HEADS = 4, 3


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
        """Name it as the table does."""
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


# -- how likely failures are ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Odds:
    """The probability of each scenario, and how many devices of each role are lost on average."""

    none: float
    client: float
    server: float
    clients_lost: float
    heads_lost: float
    several: float = 0.0  #: the probability of more than one failure; their scenario is that of the worst one

    @property
    def of_scenarios(self) -> dict[str, float]:
        """The probabilities by scenario."""
        return {"none": self.none, "client": self.client, "server": self.server}


@dataclass(frozen=True)
class FailureRates:
    """How likely members and heads fail, said in one of four ways.

    >>> FailureRates(given=(0.90, 0.08, 0.02)).odds(10, 5, 0.0).server  # the paper's reading: the same for every k
    0.02
    >>> FailureRates(is_one_of_n=True).odds(n_devices=10, n_clusters=3, training_s=0.0).server
    0.3
    >>> round(FailureRates(mtbf_h=(1.0, 1.0)).odds(1, 1, training_s=3600.0).server, 4)  # 1 - 1/e
    0.6321
    """

    each: tuple[float, float] = (0.01, 0.01)  #: of a client and of a head, during the training, on its own
    mtbf_h: tuple[float, float] | None = None  #: mean hours between failures of a client and of a head
    is_one_of_n: bool = False  #: exactly one device fails, any of them alike
    given: tuple[float, float, float] | None = None  #: of the three scenarios, whatever the layout

    def __post_init__(self) -> None:
        for name, value in zip(("fail odds", "head fail odds"), self.each, strict=True):
            if not 0 <= value <= 1:
                raise SpecError(f"{name} {value:g}; give a probability per device and training, from 0 to 1")
        for name, value in zip(("MTBF", "head MTBF"), self.mtbf_h or (1.0, 1.0), strict=True):
            if not (value > 0 and math.isfinite(value)):
                raise SpecError(f"{name} {value:g}; give hours between failures of one device, above 0")
        if self.given is not None:
            shown = ", ".join(f"{value:g}" for value in self.given)
            if not all(0 <= value <= 1 for value in self.given):
                raise SpecError(f"odds {shown}: each must be a probability, from 0 to 1")
            if not math.isclose(sum(self.given), 1.0, abs_tol=1e-9):
                raise SpecError(f"odds {shown} add up to {sum(self.given):g}; of none, client and server must make 1")

    def __str__(self) -> str:
        """Say it in half a sentence."""
        if self.given is not None:
            none, client, head = self.given
            return f"nobody fails with probability {none:g}, one client {client:g}, one head {head:g}, for every k"
        if self.is_one_of_n:
            return "exactly one device fails, any of them alike: a head with k / N"
        one, head = self.mtbf_h or self.each
        unit = " h" if self.mtbf_h else ""
        heads = "" if one == head else f" ({head:g}{unit} as a head)"
        if self.mtbf_h:
            return f"each device fails every {one:g} h on average{heads}, a training being rounds x time per round"
        return f"each device fails during the training with probability {one:g}{heads}"

    def odds(self, n_devices: int, n_clusters: int, training_s: float) -> Odds:
        """Return the odds of a layout whose training takes so long."""
        if self.given is not None:
            return Odds(*self.given, *self.given[1:])
        if self.is_one_of_n:
            head = n_clusters / n_devices
            return Odds(0.0, 1.0 - head, head, 1.0 - head, head)
        client, head = self.each
        if self.mtbf_h is not None:
            client, head = (-math.expm1(-training_s / 3600 / hours) for hours in self.mtbf_h)
        n_clients = n_devices - n_clusters
        clients_stay, heads_stay = (1 - client) ** n_clients, (1 - head) ** n_clusters
        none = clients_stay * heads_stay
        one_client = n_clients * client * (1 - client) ** max(0, n_clients - 1) * heads_stay
        one_head = n_clusters * head * (1 - head) ** (n_clusters - 1) * clients_stay
        several = max(0.0, 1.0 - none - one_client - one_head)
        return Odds(none, heads_stay - none, 1.0 - heads_stay, n_clients * client, n_clusters * head, several)


# -- what a round costs -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Costs:
    """What a layout's round costs, and how long a failure keeps the others waiting."""

    round_s: dict[str, float]  #: by uplink
    messages: dict[str, int]  #: per round, by accounting
    n_bytes: int  #: per round, each message counted
    client_stall_s: float
    head_stall_s: float  #: mean over heads that fail with their cluster's contributions in hand


def layout_costs(spec: RunSpec, sizes: Sequence[int], model_bytes: int) -> Costs:
    """Return seconds, bytes and messages per round and the stall after a failure, by playing; nothing is trained."""
    plays = {uplink: _play(_with_links(spec, uplink), sizes, model_bytes) for uplink in UPLINKS}
    round_s = {uplink: closed[-1].time_s - closed[-2].time_s for uplink, (closed, _) in plays.items()}
    _, ledger = plays[spec.links.uplink]
    heads = [head for head, *_ in layout(spec).clusters]
    members = [member for _, *cluster in layout(spec).clusters for member in cluster]
    sampled = heads[:: max(1, len(heads) // _SAMPLED_HEADS)]
    return Costs(
        round_s,
        {name: count // _PLAYED for name, count in ledger.totals().items()},
        ledger.total_bytes // _PLAYED,
        _stall_s(spec, f"device:{members[0]}@1/report", sizes, model_bytes) if members else 0.0,
        statistics.fmean(_stall_s(spec, f"device:{head}@1/chain", sizes, model_bytes) for head in sampled),
    )


def _with_links(spec: RunSpec, uplink: str) -> RunSpec:
    return msgspec.structs.replace(spec, links=msgspec.structs.replace(spec.links, uplink=uplink))


def _stall_s(spec: RunSpec, fail: str, sizes: Sequence[int], model_bytes: int) -> float:
    """Return how much longer a round takes because of a failure; where nobody goes on, until it is detected."""
    closed, _ = _play(msgspec.structs.replace(spec, fail=fail), sizes, model_bytes)
    return max((one.stall_s for one in closed if one.stall_s), default=Timing.preset(spec.timing).crash_detection_s)


def _play(spec: RunSpec, sizes: Sequence[int], model_bytes: int) -> tuple[list[ClosedStep], Ledger]:
    """Play a few rounds of the protocol; return the closed ones and every message."""
    spec = msgspec.structs.replace(spec, rounds=_PLAYED)
    per_sample = spec.links.seconds_per_sample * spec.train.epochs
    speeds = training_speeds(spec.links, spec.devices, spec.seed)
    world = World(
        Rules(wiring(spec), spec.rounds, deferred_merge(spec.defence), protocol_policy(spec)),
        tuple(sizes),
        tuple(sizes),
        tuple(per_sample * size / speed for size, speed in zip(sizes, speeds, strict=True)),
        ((model_bytes, model_bytes),) * spec.rounds,
        spec.links,
        Timing.preset(spec.timing),
        spec.scheme,
    )
    timeline = Timeline(world, failure_plan(spec), DeferredState(None, None, None))
    return [item for item in timeline.play() if isinstance(item, ClosedStep)], timeline.ledger


def model_bytes_of(n_features: int, model: ModelSpec) -> int:
    """Return the size of the autoencoder that travels, in float32.

    >>> model_bytes_of(112, ModelSpec())
    198720
    """
    widths = [n_features, *model.hidden, model.code, *reversed(model.hidden), n_features]
    return 4 * sum(before * after + after for before, after in pairwise(widths))


# -- what a layout is worth -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measurement:
    """AUROCs of one scheme in one scenario, by repetition; runs with the same repetition had the same data."""

    scheme: str
    policy: str
    scenario: str
    clusters: int | None  #: None: it is not known, so it stands for every k
    by_repetition: Mapping[str, float]
    error: float = 0.0  #: the standard error of a mean over repetitions that are not known one by one


@dataclass(frozen=True)
class Aurocs:
    """What was measured of layouts, and where it comes from."""

    source: str  #: a sentence for the reader
    data: str
    measured: Sequence[Measurement]
    pilot_rounds: int | None = None  #: None: not from pilot runs

    def find(self, layout: ClusterLayout, n_devices: int, scenario: str) -> tuple[Measurement, str] | None:
        """Return an AUROC of a layout, its own or one that is known to be equal, and why that may be used."""
        k, is_chain = layout.clusters, layout.clusters == n_devices
        own = [one for one in self._of(scenario, layout.scheme) if one.clusters in (k, None)]
        clients = [*self._of("client", layout.scheme), *self._of("client")]
        if scenario != "server":
            same = [*self._of(scenario, layout.scheme), *self._of(scenario)]
            rules = [(own, ""), (same, "while all heads live, no layout changes the model")]
        elif layout.policy == "elect":
            elected = [one for one in self._of("server") if one.policy == "elect"]
            rules = [
                ([one for one in own if one.policy == "elect"], ""),
                (elected, "with elect, k changes nothing"),
                (clients, "with elect, a lost head costs what a lost client costs"),
            ]
        elif layout.policy == "drop" and is_chain:
            # Its own measurement must be of this very k: one of unknown k is of clusters with members.
            exact = [one for one in own if one.clusters == k]
            rules = [(exact, ""), (clients, "a cluster of one loses nobody but its head")]
        else:
            rules = [([one for one in own if one.policy == layout.policy], "")]
        return next(((found[0], reason) for found, reason in rules if found), None)

    def _of(self, scenario: str, scheme: str = "") -> list[Measurement]:
        return [one for one in self.measured if one.scenario == scenario and scheme in ("", one.scheme)]


def aurocs_of_paper(data: str) -> Aurocs:
    """Return the paper's AUROCs, means over ten repetitions; it names neither N nor k.

    Its FL isolates its devices when the server is lost, its Tol-FL drops the cluster of a lost head.
    """
    tables = published()["auroc"]
    if data not in tables["none"]:
        raise UnknownNameError("data set of the paper", data, sorted(tables["none"]))
    found = []
    for scenario, by_data in tables.items():
        for scheme, policy in {"fl": "isolate", "tol-fl": "drop"}.items():
            mean, spread = by_data[data][scheme]
            error = spread / math.sqrt(_PAPERS_REPETITIONS)
            found.append(Measurement(scheme, policy, scenario, None, {"paper": mean}, error))
    return Aurocs(f"the paper's tables for {data}, one number for every N and k", data, found)


def pilot_jobs(spec: RunSpec, layouts: Sequence[ClusterLayout]) -> list[Job]:
    """Return short runs: none lost, a client lost at half time, and a head lost under every policy where it matters.

    >>> [job.label for job in pilot_jobs(RunSpec(data="blobs", devices=4, rounds=4), layouts_of((2, 4)))]
    ['nobody lost', 'client lost', 'head lost, drop, k = 2', 'head lost, elect, k = 2']
    """
    if spec.rounds < 2:
        raise SpecError(f"a pilot run of {spec.rounds} rounds; use at least 2, one before and one after the failure")
    any_layout = ClusterLayout(min((one.clusters for one in layouts if one.policy == "elect"), default=1), "elect")
    wanted = [("none", any_layout), ("client", any_layout)]
    for one in layouts:
        is_client_loss = one.policy == "drop" and one.clusters == spec.devices
        if not is_client_loss and (one.policy != "elect" or one == any_layout):
            wanted.append(("server", one))
    found = []
    for scenario, one in wanted:
        own = msgspec.structs.replace(
            spec,
            scheme=one.scheme,
            clusters=one.clusters,
            fail="" if scenario == "none" else f"{scenario}@{spec.rounds // 2}",
            on_head_failure=one.policy if scenario == "server" else "",
        )
        label = SCENARIOS[scenario] + (f", {one.policy}, k = {one.clusters}" if scenario == "server" else "")
        found.append(Job(label, own, {"scenario": scenario}))
    return found


def aurocs_of_pilot(spec: RunSpec, sweep: Sweep) -> Aurocs:
    """Return what pilot runs found."""
    found = []
    for job in sweep.jobs:
        by_repetition = {}
        for one in sweep.results[job.key]:
            if one.summary is None or one.summary["auroc"] is None:
                why = "a run diverged; take a smaller train.lr" if one.summary is None else "without a test set"
                raise SpecError(
                    f"data {spec.data}: {why}, nobody knows what a model is worth; name the column with the classes, "
                    "or take --auroc-from paper"
                )
            by_repetition[f"seed {one.spec.seed}"] = float(one.summary["auroc"])
        policy, k = job.spec.on_head_failure, job.spec.clusters
        found.append(Measurement(job.spec.scheme, policy, job.tags["scenario"], k, by_repetition))
    n = spec.repetitions
    half = f"{spec.rounds} rounds with the failure after {spec.rounds // 2}"
    return Aurocs(f"a pilot run on {spec.data}: {half}, {n} seed{'s' * (n != 1)}", spec.data, found, spec.rounds)


# -- the plan ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlanRow:
    """What to expect of one layout."""

    layout: ClusterLayout
    odds: Odds
    costs: Costs
    auroc: dict[str, float]  #: mean by scenario
    expected_auroc: float
    by_repetition: dict[str, float]  #: expected AUROC of every repetition that has all scenarios
    error: float  #: of the expected AUROC, where repetitions are not known one by one
    substituted: dict[str, str]  #: by scenario, why another layout's AUROC is right
    rounds_waited: float  #: expected, until a failure is detected and repaired
    rounds_cut_off: float  #: expected, per survivor, without the fleet because a head is gone for good

    @property
    def rounds_lost(self) -> float:
        """Expected rounds lost of a survivor: waited and cut off."""
        return self.rounds_waited + self.rounds_cut_off


@dataclass(frozen=True)
class LayoutPlan:
    """Layouts side by side, and the one to take."""

    spec: RunSpec
    rates: FailureRates
    aurocs: Aurocs
    model_bytes: int
    train_s: float  #: of the slowest device, per round
    deadline_s: float | None
    rows: tuple[PlanRow, ...]
    left_out: tuple[ClusterLayout, ...]  #: nobody has measured what they are worth
    recommended: PlanRow = field(init=False)
    reason: str = field(init=False)

    def __post_init__(self) -> None:
        row, reason = _recommended(self)
        object.__setattr__(self, "recommended", row)
        object.__setattr__(self, "reason", reason)

    def meets_deadline(self, row: PlanRow, uplink: str = "") -> bool:
        """Tell whether a round of a layout is over in time."""
        return self.deadline_s is None or row.costs.round_s[uplink or self.spec.links.uplink] <= self.deadline_s

    @property
    def notes(self) -> list[str]:
        """What must be known to read the numbers, most important first."""
        return list(_notes(self))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as `--format json` shows them."""
        best = self.recommended.layout
        return {
            "data": self.aurocs.data,
            "devices": self.spec.devices,
            "rounds": self.spec.rounds,
            "train_s": self.train_s,
            "uplink": self.spec.links.uplink,
            "deadline_s": self.deadline_s,
            "model_bytes": self.model_bytes,
            "failures": str(self.rates),
            "auroc_from": self.aurocs.source,
            "recommended": {"clusters": best.clusters, "policy": best.policy},
            "reason": self.reason,
            "notes": self.notes,
            "not_measured": [{"clusters": one.clusters, "policy": one.policy} for one in self.left_out],
            "rows": [self._fields(row) for row in self.rows],
        }

    def _fields(self, row: PlanRow) -> dict[str, Any]:
        return {
            "scheme": row.layout.scheme,
            "clusters": row.layout.clusters,
            "policy": row.layout.policy,
            "expected_auroc": row.expected_auroc,
            "auroc": row.auroc,
            "substituted": row.substituted,
            "odds": {**row.odds.of_scenarios, "several": row.odds.several},
            "rounds_lost": row.rounds_lost,
            "rounds_waited": row.rounds_waited,
            "rounds_cut_off": row.rounds_cut_off,
            "bytes_per_round": row.costs.n_bytes,
            "messages_per_round": row.costs.messages,
            "round_s": row.costs.round_s,
            "meets_deadline": {uplink: self.meets_deadline(row, uplink) for uplink in UPLINKS},
        }


def check_plan(spec: RunSpec, clusters: Sequence[int], deadline_s: float | None) -> None:
    """Say in one sentence what is wrong with a question."""
    if spec.topology:
        raise SpecError(f"topology {spec.topology!r}: a plan is about k clusters of neighbouring ids; leave it out")
    if spec.devices < 2:
        raise SpecError(f"{spec.devices} devices; a plan needs at least 2")
    if deadline_s is not None and not (deadline_s > 0 and math.isfinite(deadline_s)):
        raise SpecError(f"deadline {deadline_s:g} s; use a number above 0")
    for k in clusters:
        if k > spec.devices:
            raise SpecError(f"{k} clusters for {spec.devices} devices; use at most {spec.devices}")
        if k < 1:
            raise SpecError(f"{k} clusters; at least 1 is needed")


def make_plan(
    spec: RunSpec,
    rates: FailureRates,
    aurocs: Aurocs,
    clusters: Sequence[int],
    sizes: Sequence[int],
    n_features: int,
    deadline_s: float | None = None,
) -> LayoutPlan:
    """Weigh layouts for a fleet whose devices have so many samples each."""
    check_plan(spec, clusters, deadline_s)
    n_bytes = model_bytes_of(n_features, spec.model)
    rows, left_out = [], []
    for one in layouts_of(clusters):
        found = {scenario: aurocs.find(one, spec.devices, scenario) for scenario in SCENARIOS}
        known = {scenario: match for scenario, match in found.items() if match is not None}
        if len(known) < len(SCENARIOS):
            left_out.append(one)
        else:
            rows.append(_row(spec, rates, one, known, sizes, n_bytes))
    if not rows:
        raise SpecError(f"{aurocs.source}: no layout has an AUROC for every scenario; leave out --auroc-from")
    train_s = max(sizes) * spec.links.seconds_per_sample * spec.train.epochs
    return LayoutPlan(spec, rates, aurocs, n_bytes, train_s, deadline_s, tuple(rows), tuple(left_out))


def _row(
    spec: RunSpec,
    rates: FailureRates,
    one: ClusterLayout,
    known: Mapping[str, tuple[Measurement, str]],
    sizes: Sequence[int],
    n_bytes: int,
) -> PlanRow:
    n, k = spec.devices, one.clusters
    own = msgspec.structs.replace(spec, scheme=one.scheme, clusters=k, on_head_failure=one.policy, fail="")
    costs = layout_costs(own, sizes, n_bytes)
    pace_s = costs.round_s[spec.links.uplink]
    odds = rates.odds(n, k, spec.rounds * pace_s)
    p = odds.of_scenarios
    values = {scenario: measured.by_repetition for scenario, (measured, _) in known.items()}
    means = {scenario: statistics.fmean(of_scenario.values()) for scenario, of_scenario in values.items()}
    common = [one for one in values["none"] if all(one in of_scenario for of_scenario in values.values())]
    waited_s = odds.clients_lost * costs.client_stall_s + odds.heads_lost * costs.head_stall_s
    # A star has one head to lose; of several clusters each may lose its own. On average that is at half time.
    heads_lost = odds.heads_lost if one.policy == "drop" else odds.server
    cut_off = 0.0 if one.policy == "elect" else (n / k - 1) / (n - 1)
    return PlanRow(
        one,
        odds,
        costs,
        means,
        math.fsum(p[scenario] * means[scenario] for scenario in SCENARIOS),
        {name: math.fsum(p[scenario] * values[scenario][name] for scenario in SCENARIOS) for name in common},
        math.hypot(*(p[scenario] * measured.error for scenario, (measured, _) in known.items())),
        {scenario: reason for scenario, (_, reason) in known.items() if reason},
        waited_s / pace_s,
        min(1.0, heads_lost * cut_off) * spec.rounds / 2,
    )


def _recommended(plan: LayoutPlan) -> tuple[PlanRow, str]:
    """Return the layout to take and why.

    Of those that meet the deadline, the one with the highest expected AUROC; of those that cannot be told from it, the
    quickest round, then fewer bytes, then fewer rounds lost.
    """
    uplink = plan.spec.links.uplink

    def costs(row: PlanRow) -> tuple[float, int, float, int]:
        preference = _PREFERENCE.index(row.layout.policy)
        return round(row.costs.round_s[uplink], 9), row.costs.n_bytes, round(row.rounds_lost, 9), preference

    in_time = [row for row in plan.rows if plan.meets_deadline(row)]
    if not in_time:
        fastest = min(plan.rows, key=costs)
        needs = f"the fastest, {fastest.layout}, needs {fastest.costs.round_s[uplink]:.3g} s"
        return fastest, f"no layout meets the deadline of {plan.deadline_s:.3g} s with {uplink} uplinks; {needs}."
    best = max(in_time, key=lambda row: row.expected_auroc)
    equal = [row for row in in_time if cannot_be_told_apart(best, row)]
    chosen = min(equal, key=costs)
    text = f"{chosen.layout}: expected AUROC {chosen.expected_auroc:.4f}"
    if len(equal) > 1:
        gap = best.expected_auroc - chosen.expected_auroc
        place = f"{gap:.4f} below the highest" if gap >= 5e-5 else "the highest"
        pace = f"{chosen.costs.round_s[uplink]:.3g} s with {uplink} uplinks"
        text += f" ({place}); of the {len(equal)} layouts that cannot be told apart its round is the quickest ({pace})"
    else:
        text += ", the highest"
    outside = [row for row in in_time if row not in equal]
    if outside:
        following = max(outside, key=lambda row: row.expected_auroc)
        text += f"; the next is {following.layout} with {following.expected_auroc:.4f}"
    if plan.deadline_s is not None:
        text += f"; {len(in_time)} layouts meet the deadline of {plan.deadline_s:.3g} s"
    return chosen, f"{text}.{_why_not_elect(chosen, plan.rows)}"


def cannot_be_told_apart(best: PlanRow, other: PlanRow) -> bool:
    """Tell whether two expected AUROCs differ by less than 0.001, or than two standard errors of their difference.

    Differences are taken repetition by repetition: both have trained on the same data from the same start. Where
    repetitions are not known one by one, the errors of both are added up as if they had nothing in common.
    """
    common = [one for one in best.by_repetition if one in other.by_repetition]
    gaps = [best.by_repetition[one] - other.by_repetition[one] for one in common]
    error = math.hypot(best.error, other.error)
    if len(gaps) > 1:
        error = statistics.stdev(gaps) / math.sqrt(len(gaps))
    # The last bits of a sum are no difference.
    return best.expected_auroc - other.expected_auroc <= max(_TIE, 2 * error) + 1e-12


def _why_not_elect(chosen: PlanRow, rows: Sequence[PlanRow]) -> str:
    """Say why a layout is recommended in which a lost head costs more than itself."""
    if chosen.layout.policy == "elect":
        return ""
    elect = [row for row in rows if row.layout == ClusterLayout(chosen.layout.clusters, "elect")]
    if not elect:
        return " This layout does not replace a lost head; elect was not among those looked at."
    return (
        f" It does not replace a lost head: when one is lost, {chosen.layout.policy} was worth "
        f"{chosen.auroc['server']:.4f} and elect {elect[0].auroc['server']:.4f}."
    )


def _notes(plan: LayoutPlan) -> Iterator[str]:
    yield f"AUROC: from {plan.aurocs.source}"
    yield f"failures: {plan.rates}"
    pilot = plan.aurocs.pilot_rounds
    if pilot is not None and pilot < plan.spec.rounds:
        yield (
            f"the pilot run has {pilot} of {plan.spec.rounds} rounds: its models are not finished, and those that a "
            "failure stops early are furthest behind; --pilot-rounds for a longer one"
        )
    several = max(row.odds.several for row in plan.rows)
    if several > 0:
        most = max(row.odds.clients_lost + row.odds.heads_lost for row in plan.rows)
        yield (
            f"more than one failure (probability up to {several:.2g}; {most:.2g} failures on average) is counted as "
            "one, of a head if there is a head among them: an optimistic reading"
        )
    users: dict[str, dict[str, None]] = {}
    for row in plan.rows:
        for scenario, reason in row.substituted.items():
            users.setdefault(reason, {})[f"{row.layout.policy}, {SCENARIOS[scenario]}"] = None
    for reason, who in users.items():
        yield f"substituted ({'; '.join(who)}): {reason}"
    if plan.left_out:
        yield f"not shown, because nobody has measured them: {'; '.join(map(str, plan.left_out))}"
    yield (
        "rounds lost: what a survivor must expect to lose, waiting until a failure is detected and repaired (a head "
        "that fails with its cluster's contributions in hand) and training without the fleet once its head is gone for "
        "good (from half time on average)"
    )
    yield (
        f"recommended is the highest expected AUROC in time; what is closer to it than {_TIE:g}, or than two standard "
        "errors of the difference, counts as equal, and the time of a round, then bytes, then rounds lost decide"
    )
