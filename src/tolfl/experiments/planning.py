"""Which number of clusters, and what to do when a head fails: expected AUROC, rounds lost, bytes and time by layout.

The expected AUROC is the mean over exclusive scenarios, sum of p_s J_s: the probabilities p_s depend on k (k of the
devices are heads), the AUROC J_s on k and on the policy. AUROCs are rows, of short pilot runs or of the paper.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import msgspec

from tolfl.core.errors import SpecError, UnknownNameError
from tolfl.core.spec import RunSpec, Timing
from tolfl.experiments.layout_costs import Costs, layout_costs, model_bytes_of
from tolfl.experiments.paper.published import published
from tolfl.experiments.result_rows import Row, distinct_values, rows_of, rows_where
from tolfl.experiments.results import Table
from tolfl.experiments.sweep import Job, Sweep

#: What may happen in a training, as exclusive cases: nobody fails, only clients do, a head does.
SCENARIOS = {"none": "nobody lost", "client": "client lost", "server": "head lost"}
#: Expected AUROCs closer than this count as equal, also where no spread is known.
_TIE = 0.001
#: The policies, in order of preference between layouts that are otherwise equal.
_PREFERENCE = ("elect", "drop", "freeze", "isolate")
_PAPERS_REPETITIONS = 10


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


# -- how likely failures are ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FailureRates:
    """Failure probabilities of members and heads, given in one of four ways.

    >>> FailureRates(given=(0.90, 0.08, 0.02)).failures(10, 5, 0.0)["server"]  # the paper's reading, for every k
    0.02
    >>> FailureRates(is_one_of_n=True).failures(n_devices=10, n_clusters=3, training_s=0.0)["server"]
    0.3
    >>> round(FailureRates(mtbf_h=(1.0, 1.0)).failures(1, 1, training_s=3600.0)["server"], 4)  # 1 - 1/e
    0.6321
    """

    each: tuple[float, float] = (0.01, 0.01)  #: of a client and of a head, during the training, on its own
    mtbf_h: tuple[float, float] | None = None  #: mean hours between failures of a client and of a head
    is_one_of_n: bool = False  #: exactly one device fails, each with the same probability
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
        """Describe them in half a sentence."""
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

    def failures(self, n_devices: int, n_clusters: int, training_s: float) -> dict[str, float]:
        """Return the probability of each scenario and of several failures, and how many devices are lost on average.

        Several failures belong to the scenario of the worst one.
        """
        n_clients = n_devices - n_clusters
        if self.given is not None or self.is_one_of_n:
            head = n_clusters / n_devices
            none, client, head = self.given or (0.0, 1.0 - head, head)
            several, clients_lost, heads_lost = 0.0, client, head
        else:
            p, q = self.each  # of a client and of a head
            if self.mtbf_h is not None:
                p, q = (-math.expm1(-training_s / 3600 / hours) for hours in self.mtbf_h)
            clients_stay, heads_stay = (1 - p) ** n_clients, (1 - q) ** n_clusters
            none, head = clients_stay * heads_stay, 1.0 - heads_stay
            client = heads_stay - none
            one_client = n_clients * p * (1 - p) ** max(0, n_clients - 1) * heads_stay
            one_head = n_clusters * q * (1 - q) ** (n_clusters - 1) * clients_stay
            several = max(0.0, 1.0 - none - one_client - one_head)
            clients_lost, heads_lost = n_clients * p, n_clusters * q
        return {
            "none": none,
            "client": client,
            "server": head,
            "several": several,
            "clients_lost": clients_lost,
            "heads_lost": heads_lost,
        }


# -- AUROCs, a row per scheme, policy, number of clusters, scenario and repetition -----------------------------------


def paper_rows(data: str) -> list[Row]:
    """Return the paper's AUROCs, means over ten repetitions; it names neither N nor k.

    Its FL isolates its devices when the server is lost, its Tol-FL drops the cluster of a lost head.
    """
    tables = published()["auroc"]
    if data not in tables["none"]:
        raise UnknownNameError("data set of the paper", data, sorted(tables["none"]))
    found: list[Row] = []
    for scenario, by_data in tables.items():
        for scheme, policy in {"fl": "isolate", "tol-fl": "drop"}.items():
            mean, spread = by_data[data][scheme]
            what = {"data": data, "scenario": scenario, "scheme": scheme, "policy": policy, "clusters": None}
            error = spread / math.sqrt(_PAPERS_REPETITIONS)
            found.append({**what, "rounds": None, "seed": "paper", "auroc": mean, "error": error})
    return found


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


def pilot_rows(sweep: Sweep) -> list[Row]:
    """Return the rows of finished pilot runs; without a score a layout cannot be weighed."""
    found: list[Row] = []
    for job in sweep.jobs:
        repetitions = sweep.results[job.key]
        for row, one in zip(rows_of(job, repetitions), repetitions, strict=True):
            if row["auroc"] is None:
                why = "a run diverged; take a smaller train.lr" if one.summary is None else "without a test set"
                raise SpecError(
                    f"data {job.spec.data}: {why}, a model cannot be scored; name the column with the "
                    "classes, or take --auroc-from paper"
                )
            found.append(row)
    return found


def rows_for(rows: Sequence[Row], one: ClusterLayout, n_devices: int, scenario: str) -> tuple[list[Row], str]:
    """Return a layout's rows, its own or those that are known to be equal, and why these may be used."""
    k, is_chain = one.clusters, one.clusters == n_devices
    in_scenario = rows_where(rows, scenario=scenario)
    own = [row for row in rows_where(in_scenario, scheme=one.scheme) if row["clusters"] in (k, None)]
    clients = [*rows_where(rows, scenario="client", scheme=one.scheme), *rows_where(rows, scenario="client")]
    if scenario != "server":
        same = [*rows_where(in_scenario, scheme=one.scheme), *in_scenario]
        rules = [(own, ""), (same, "while all heads live, no layout changes the model")]
    elif one.policy == "elect":
        rules = [
            (rows_where(own, policy="elect"), ""),
            (rows_where(in_scenario, policy="elect"), "with elect, k changes nothing"),
            (clients, "with elect, a lost head costs what a lost client costs"),
        ]
    elif one.policy == "drop" and is_chain:
        # Its own rows must be of this very k: those of unknown k are of clusters with members.
        rules = [(rows_where(own, clusters=k), ""), (clients, "a cluster of one loses only its head")]
    else:
        rules = [(rows_where(own, policy=one.policy), "")]
    found, reason = next(((found, reason) for found, reason in rules if found), ([], ""))
    alike = {name: found[0][name] for name in ("scheme", "policy", "clusters")} if found else {}
    return rows_where(found, **alike), reason


def source_of(rows: Sequence[Row]) -> str:
    """Return where AUROCs come from, in a sentence."""
    data, rounds, n_seeds = rows[0]["data"], rows[0]["rounds"], len(distinct_values(rows, "seed"))
    if rounds is None:
        return f"the paper's tables for {data}, one number for every N and k"
    seeds = f"{n_seeds} seed{'s' * (n_seeds != 1)}"
    return f"a pilot run on {data}: {rounds} rounds with the failure after {rounds // 2}, {seeds}"


# -- the plan ---------------------------------------------------------------------------------------------------------


class LayoutPlan(msgspec.Struct, frozen=True):
    """Layouts side by side, and the one to take, as `--format json` shows it."""

    data: str
    devices: int
    rounds: int
    train_s: float  #: of the slowest device, per round
    crash_noticed_s: float
    uplink: str
    deadline_s: float | None
    model_bytes: int
    failures: str
    auroc_from: str
    recommended: dict[str, Any]  #: clusters and policy
    reason: str
    notes: list[str]  #: notes on how to read the numbers, the most important first
    not_measured: list[dict[str, Any]]  #: clusters and policy of layouts without measurements
    rows: list[dict[str, Any]]  #: one per layout

    @property
    def table(self) -> Table:
        """The rows as text, the recommended one marked; below them what must be known to read them."""
        aurocs = ("nobody lost", "client lost", "head lost", "expected AUROC")
        costs = ("odds of head lost", "rounds lost", "MB per round", "s per round, serial", "parallel")
        lines = []
        for row in self.rows:
            mark = " <" if self.recommended == {name: row[name] for name in self.recommended} else ""
            cells = [f"{row['scheme']} ({row['policy']})", str(row["clusters"])]
            cells += [f"{row['auroc'][scenario]:.3f}" for scenario in SCENARIOS]
            cells += [f"{row['expected_auroc']:.4f}{mark}", f"{row['odds']['server']:.3g}", f"{row['rounds_lost']:.3g}"]
            cells += [f"{row['bytes_per_round'] / 1e6:.3g}", *(f"{s:.3g}" for s in row["round_s"].values())]
            cells += [] if self.deadline_s is None else ["yes" if row["meets_deadline"][self.uplink] else "no"]
            lines.append(tuple(cells))
        return Table(
            f"{self.data}: {self.devices} devices, {self.rounds} rounds; a model has {self.model_bytes / 1e6:.3g} MB, "
            f"training takes up to {self.train_s:.3g} s per round, a crash is noticed after {self.crash_noticed_s:g} s",
            ("", "k", *aurocs, *costs, *["in time"] * (self.deadline_s is not None)),
            tuple(lines),
            (*self.notes, f"recommended: {self.reason}"),
        )


def check_plan(spec: RunSpec, clusters: Sequence[int], deadline_s: float | None) -> None:
    """Raise an error with one sentence if the request makes no sense."""
    if spec.topology:
        raise SpecError(f"topology {spec.topology!r}: a plan is about k clusters of neighbouring ids; leave it out")
    if spec.devices < 2:
        raise SpecError(f"{spec.devices} devices; a plan needs at least 2")
    if deadline_s is not None and not (deadline_s > 0 and math.isfinite(deadline_s)):
        raise SpecError(f"deadline {deadline_s:g} s; use a number above 0")
    for k in clusters:
        msgspec.structs.replace(spec, clusters=k).check()


def make_plan(
    spec: RunSpec,
    rates: FailureRates,
    aurocs: Sequence[Row],
    clusters: Sequence[int],
    sizes: Sequence[int],
    n_features: int,
    deadline_s: float | None = None,
) -> LayoutPlan:
    """Weigh layouts for a fleet whose devices have so many samples each."""
    n_bytes, source = model_bytes_of(n_features, spec.model), source_of(aurocs)
    rows, left_out = [], []
    for one in layouts_of(clusters):
        known = {scenario: rows_for(aurocs, one, spec.devices, scenario) for scenario in SCENARIOS}
        if all(found for found, _ in known.values()):
            own = msgspec.structs.replace(
                spec, scheme=one.scheme, clusters=one.clusters, on_head_failure=one.policy, fail=""
            )
            rows.append(_plan_row(own, rates, known, layout_costs(own, sizes, n_bytes), deadline_s))
        else:
            left_out.append(one)
    if not rows:
        raise SpecError(f"{source}: no layout has an AUROC for every scenario; leave out --auroc-from")
    chosen, reason = _recommended(rows, spec.links.uplink, deadline_s)
    return LayoutPlan(
        data=spec.data,
        devices=spec.devices,
        rounds=spec.rounds,
        train_s=max(sizes) * spec.links.seconds_per_sample * spec.train.epochs,
        crash_noticed_s=Timing.preset(spec.timing).crash_detection_s,
        uplink=spec.links.uplink,
        deadline_s=deadline_s,
        model_bytes=n_bytes,
        failures=str(rates),
        auroc_from=source,
        recommended={"clusters": chosen["clusters"], "policy": chosen["policy"]},
        reason=reason,
        notes=[f"AUROC: from {source}", f"failures: {rates}", *_notes(spec, aurocs, rows, left_out)],
        not_measured=[{"clusters": one.clusters, "policy": one.policy} for one in left_out],
        rows=rows,
    )


def _plan_row(
    spec: RunSpec,
    rates: FailureRates,
    known: Mapping[str, tuple[Sequence[Row], str]],
    costs: Costs,
    deadline_s: float | None,
) -> dict[str, Any]:
    """Return what to expect of one layout."""
    n, k, policy = spec.devices, spec.clusters or 1, spec.on_head_failure
    pace_s = costs.round_s[spec.links.uplink]
    p = rates.failures(n, k, spec.rounds * pace_s)
    by_seed = {scenario: {row["seed"]: row["auroc"] for row in found} for scenario, (found, _) in known.items()}
    means = {scenario: statistics.fmean(values.values()) for scenario, values in by_seed.items()}
    paired = [seed for seed in by_seed["none"] if all(seed in values for values in by_seed.values())]
    errors = [p[scenario] * found[0].get("error", 0.0) for scenario, (found, _) in known.items()]
    waited_s = p["clients_lost"] * costs.client_stall_s + p["heads_lost"] * costs.head_stall_s
    # A star has one head to lose; of several clusters each may lose its own. On average that is at half time.
    heads_lost = p["heads_lost" if policy == "drop" else "server"]
    cut_off = 0.0 if policy == "elect" else (n / k - 1) / (n - 1) * heads_lost
    rounds_waited, rounds_cut_off = waited_s / pace_s, min(1.0, cut_off) * spec.rounds / 2
    return {
        "scheme": spec.scheme,
        "clusters": k,
        "policy": policy,
        "expected_auroc": math.fsum(p[scenario] * means[scenario] for scenario in SCENARIOS),
        "by_seed": {seed: math.fsum(p[name] * by_seed[name][seed] for name in SCENARIOS) for seed in paired},
        "error": math.hypot(*errors),
        "auroc": means,
        "substituted": {scenario: reason for scenario, (_, reason) in known.items() if reason},
        "odds": p,
        "rounds_lost": rounds_waited + rounds_cut_off,
        "rounds_waited": rounds_waited,
        "rounds_cut_off": rounds_cut_off,
        "bytes_per_round": costs.n_bytes,
        "messages_per_round": costs.messages,
        "round_s": costs.round_s,
        "meets_deadline": {name: deadline_s is None or value <= deadline_s for name, value in costs.round_s.items()},
    }


def _recommended(rows: Sequence[dict[str, Any]], uplink: str, deadline_s: float | None) -> tuple[dict[str, Any], str]:
    """Return the row of the layout to take and why.

    Of those that meet the deadline, the one with the highest expected AUROC; of those within the error of it, the
    quickest round, then fewer bytes, then fewer rounds lost.
    """

    def costs(row: Row) -> tuple[float, int, float, int]:
        preference = _PREFERENCE.index(row["policy"])
        return round(row["round_s"][uplink], 9), row["bytes_per_round"], round(row["rounds_lost"], 9), preference

    in_time = [row for row in rows if row["meets_deadline"][uplink]]
    if not in_time:
        fastest = min(rows, key=costs)
        needs = f"the fastest, {layout_of(fastest)}, needs {fastest['round_s'][uplink]:.3g} s"
        return fastest, f"no layout meets the deadline of {deadline_s:.3g} s with {uplink} uplinks; {needs}."
    best = max(in_time, key=itemgetter("expected_auroc"))
    equal = [row for row in in_time if _cannot_be_told_apart(best, row)]
    chosen = min(equal, key=costs)
    text = f"{layout_of(chosen)}: expected AUROC {chosen['expected_auroc']:.4f}"
    if len(equal) > 1:
        gap = best["expected_auroc"] - chosen["expected_auroc"]
        place = f"{gap:.4f} below the highest" if gap >= 5e-5 else "the highest"
        pace = f"{chosen['round_s'][uplink]:.3g} s with {uplink} uplinks"
        text += f" ({place}); of the {len(equal)} layouts that cannot be told apart its round is the quickest ({pace})"
    else:
        text += ", the highest"
    if others := [row for row in in_time if row not in equal]:
        following = max(others, key=itemgetter("expected_auroc"))
        text += f"; the next is {layout_of(following)} with {following['expected_auroc']:.4f}"
    if deadline_s is not None:
        text += f"; {len(in_time)} layouts meet the deadline of {deadline_s:.3g} s"
    return chosen, f"{text}.{_why_not_elect(chosen, rows)}"


def layout_of(row: Row) -> ClusterLayout:
    """Return the layout that a row of a plan is about."""
    return ClusterLayout(row["clusters"], row["policy"])


def _cannot_be_told_apart(best: Row, other: Row) -> bool:
    """Return whether two expected AUROCs differ by less than 0.001, or than two standard errors of their difference.

    Differences are taken seed by seed: both have trained on the same data from the same start. Where repetitions are
    not known one by one, the errors of both are added up as if they had nothing in common.
    """
    gaps = [value - other["by_seed"][seed] for seed, value in best["by_seed"].items() if seed in other["by_seed"]]
    error = math.hypot(best["error"], other["error"])
    if len(gaps) > 1:
        error = statistics.stdev(gaps) / math.sqrt(len(gaps))
    # The last bits of a sum are no difference.
    return bool(best["expected_auroc"] - other["expected_auroc"] <= max(_TIE, 2 * error) + 1e-12)


def _why_not_elect(chosen: Row, rows: Sequence[Row]) -> str:
    """Return why a layout is recommended in which a lost head costs more than itself."""
    if chosen["policy"] == "elect":
        return ""
    elect = rows_where(rows, clusters=chosen["clusters"], policy="elect")
    if not elect:
        return " This layout does not replace a lost head; elect was not among those looked at."
    return (
        f" It does not replace a lost head: when one is lost, {chosen['policy']} was worth "
        f"{chosen['auroc']['server']:.4f} and elect {elect[0]['auroc']['server']:.4f}."
    )


def _notes(
    spec: RunSpec, aurocs: Sequence[Row], rows: Sequence[Row], left_out: Sequence[ClusterLayout]
) -> Iterator[str]:
    pilot_rounds = aurocs[0]["rounds"]
    if pilot_rounds is not None and pilot_rounds < spec.rounds:
        yield (
            f"the pilot run has {pilot_rounds} of {spec.rounds} rounds: its models are not finished, and those that a "
            "failure stops early are furthest behind; --pilot-rounds for a longer one"
        )
    several = max(row["odds"]["several"] for row in rows)
    if several > 0:
        most = max(row["odds"]["clients_lost"] + row["odds"]["heads_lost"] for row in rows)
        yield (
            f"more than one failure (probability up to {several:.2g}; {most:.2g} failures on average) is counted as "
            "one, of a head if there is a head among them: an optimistic reading"
        )
    isolated = rows_where(aurocs, scenario="server", policy="isolate")
    if together := [row["auroc_all_models"] for row in isolated if row.get("auroc_all_models") is not None]:
        yield (
            "fl (isolate), head lost: the mean over devices of the model that each has; all of their models together, "
            f"the least of their scores sample by sample, are worth {statistics.fmean(together):.3f}"
        )
    users: dict[str, dict[str, None]] = {}
    for row in rows:
        for scenario, reason in row["substituted"].items():
            users.setdefault(reason, {})[f"{row['policy']}, {SCENARIOS[scenario]}"] = None
    for reason, who in users.items():
        yield f"substituted ({'; '.join(who)}): {reason}"
    if left_out:
        yield f"not shown, as not measured: {'; '.join(map(str, left_out))}"
    yield (
        "rounds lost: what a survivor must expect to lose, waiting until a failure is detected and repaired (a head "
        "that fails with its cluster's contributions in hand) and training without the fleet once its head is gone for "
        "good (from half time on average)"
    )
    yield (
        f"recommended is the highest expected AUROC in time; what is closer to it than {_TIE:g}, or than two standard "
        "errors of the difference, counts as equal, and the time of a round, then bytes, then rounds lost decide"
    )
