"""The paper's three tables: AUROC of every method when nobody fails, when a client fails and when a server fails.

Each table has the rows it is judged by: the runs without a failure that falls are measured from, and devices that train
alone from the start (`fl isolate` whose server fails in round 0), which is what training together is measured from.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from tolfl.core.plot_style import BLACK, BLUE, GREEN, ORANGE, SKY, VERMILION, new_figure
from tolfl.core.spec import RunSpec
from tolfl.experiments.comparison import alone_job, scheme_jobs
from tolfl.experiments.experiment import Experiment, Options
from tolfl.experiments.paper.published import published_auroc
from tolfl.experiments.paper.setups import SETUPS
from tolfl.experiments.result_rows import (
    Method,
    Row,
    Units,
    by_split,
    mean_spreads,
    models_in_use,
    plain_rows,
    rows_of,
    rows_where,
)
from tolfl.experiments.results import ExperimentReport, Table, Verdict
from tolfl.experiments.significance import differences, holm, interval, sign_flip_p
from tolfl.experiments.sweep import Job, Repetition
from tolfl.learners.layouts import PLAIN

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SCENARIOS = {"clean": "", "client": "client@{round}", "server": "server@{round}"}
_TITLES = {"clean": "AUROC, nobody fails", "client": "AUROC, a client fails", "server": "AUROC, a server fails"}
_SCHEMES = ("tol-fl", "fl", "batch", "fedgroup", "ifca", "fesem")
_CLUSTERED = {"fedgroup": "FedGroup", "ifca": "IFCA", "fesem": "FeSEM"}
#: What falls are measured from.
_CLEAN_SCHEMES = {"clean": (), "client": _SCHEMES, "server": ("tol-fl", "fl")}
#: "About equal" and "a small drop": the paper's own differences when nobody or one client fails are up to 0.03.
_ABOUT = 0.03
#: Losses of Tol-FL's cluster in the paper's table: from 0.80 to 0.75, 0.95 to 0.85, 0.71 to 0.68, 0.75 to 0.73.
_A_CLUSTERS_WORTH = 0.12
_AFTER_THE_SERVER = (
    *(Method("tol-fl", "elect"), Method("tol-fl", "drop"), Method("fl", "freeze")),
    *(Method("fl", "isolate"), Method("fl", "isolate", "auroc_all_models"), Method("batch", "freeze")),
)
_ALONE = Method("fl", "alone"), Method("fl", "alone", "auroc_all_models")


def jobs(scenario: str, options: Options, rows: Sequence[Row] = ()) -> list[Job]:  # noqa: ARG001
    """Return what must be run for a table."""
    found = []
    for name in options.data:
        spec = SETUPS[name].spec(options.quick)
        found += scenario_jobs(scenario, spec)
        found += [job for job in scenario_jobs("clean", spec) if job.spec.scheme in _CLEAN_SCHEMES[scenario]]
        found.append(Job(f"{name}: each device alone", alone_job(spec).spec, {"scenario": "alone"}))
    return found


def scenario_jobs(scenario: str, spec: RunSpec) -> list[Job]:
    """Return the runs of one scenario on one data set; devices that find another model (rehome) belong to `beyond`."""
    fail = SCENARIOS[scenario].format(round=spec.rounds // 2)
    return [
        Job(f"{spec.data}, {scenario}: {job.label}", job.spec, {"scenario": scenario})
        for job in scheme_jobs(msgspec.structs.replace(spec, fail=fail), _SCHEMES)
        if job.spec.on_head_failure != "rehome"
    ]


def table_rows(scenario: str, job: Job, repetitions: Sequence[Repetition]) -> list[dict[str, Any]]:
    """Return the rows of a job; the plain baselines once per table and data set."""
    found = rows_of(job, repetitions)
    is_first = job.spec.scheme == "tol-fl" and job.spec.on_head_failure in ("", "elect")
    if is_first and job.tags["scenario"] == scenario:
        found += plain_rows(job, repetitions)
    return found


def methods(scenario: str, rows: Sequence[Row]) -> list[Method]:
    """Return the lines of a table, in order."""
    strict = "strict" if scenario == "server" else ""
    found = [*(_AFTER_THE_SERVER if scenario == "server" else map(Method, ("tol-fl", "fl", "batch"))), *_ALONE]
    for score in ("auroc_best", "auroc_all_models", "auroc_chosen"):
        found += [Method(scheme, strict, score) for scheme in _CLUSTERED]
    found += map(Method, PLAIN)
    return [method for method in found if by_split(rows, method, scenario=scenario)]


def report(scenario: str, rows: Sequence[Row]) -> ExperimentReport:
    """Return the report of rows."""
    found = [{**row, "scenario": scenario, "policy": "alone"} if row["scenario"] == "alone" else row for row in rows]
    names = [name for name in SETUPS if any(row["data"] == name for row in found)]
    own = rows_where(found, scenario=scenario)
    tables = [_overview(scenario, own, names), _models_in_use(own, names)]
    tables += [_in_detail(scenario, own, name) for name in names]
    if scenario == "server":
        tables += [_against_all(own, Method("tol-fl", policy), names) for policy in ("elect", "drop")]
    verdicts = [verdict for name in names for verdict in _verdicts(scenario, rows_where(found, data=name), name)]
    figures = {scenario: lambda: _figure(scenario, own, names)}
    return ExperimentReport(scenario, _TITLES[scenario], list(rows), tables, verdicts, figures)


# -- tables ---------------------------------------------------------------------------------------------------------


def _overview(scenario: str, rows: Sequence[Row], names: Sequence[str]) -> Table:
    lines = []
    for method in methods(scenario, rows):
        cells = []
        for name in names:
            units, printed = by_split(rows, method, data=name), published_auroc(scenario, name, method)
            cells.append(mean_spreads(units) + (f" ({printed[0]:.2f})" if printed and units else ""))
        lines.append((method.label, *cells))
    notes = (
        "Mean ± standard deviation of the declared splits' means / of seeds inside a split; in brackets the paper's.",
        "all models: the least of their scores, sample by sample; best single*: chosen on the test set, an oracle; "
        "chosen: the model with the least loss on held-back typical samples. Of `fl isolate` and `fl alone` the plain "
        "line is the mean over devices of the model that each has. alone: devices that never train together, the first "
        "of ten left out. Plain rows need all data in one place.",
    )
    return Table(_TITLES[scenario], ("method", *(SETUPS[name].title for name in names)), tuple(lines), notes)


def _models_in_use(rows: Sequence[Row], names: Sequence[str]) -> Table:
    lines = tuple(
        (scheme, *(models_in_use(rows_where(rows, scheme=scheme, data=name)) for name in names))
        for scheme in _CLUSTERED
    )
    notes = ("With one model in use, a scheme of several models is federated averaging by another name.",)
    columns = ("method", *(SETUPS[name].title for name in names))
    return Table("Models in use in the last round", columns, lines, notes)


def _in_detail(scenario: str, rows: Sequence[Row], data: str) -> Table:
    """Return every line of one data set beside the paper's, with its interval."""
    lines = []
    for method in methods(scenario, rows):
        units = by_split(rows, method, data=data)
        if units:
            found, published = interval(units), published_auroc(scenario, data, method)
            splits = " ".join(f"{statistics.fmean(of_split):.3f}" for of_split in units.values())
            ends = f"{found.low:.3f} to {found.high:.3f}" if found.n_splits > 1 else "-"
            paper = f"{published[0]:.2f} ±{published[1]:.2f}" if published else "-"
            lines.append((method.label, f"{found.mean:.3f}", ends, splits, paper))
    columns = ("method", "mean", "95 % interval", "by split", "paper")
    notes = ("Interval: Student's t over the splits' means. The paper's spreads are over repetitions.",)
    return Table(f"{SETUPS[data].title}: {_TITLES[scenario]}", columns, tuple(lines), notes, is_detail=True)


def _against_all(rows: Sequence[Row], ours: Method, names: Sequence[str]) -> Table:
    """Return our method against each rival: the difference on every data set, and one test over all splits."""
    rivals = [method for method in methods("server", rows) if method.scheme != "tol-fl"]
    gaps = {rival: differences(by_split(rows, ours), by_split(rows, rival)) for rival in rivals}
    p_values = [sign_flip_p([statistics.fmean(values) for values in of_rival.values()]) for of_rival in gaps.values()]
    lines = []
    for rival, p, corrected in zip(gaps, p_values, holm(p_values), strict=True):
        each = [differences(by_split(rows, ours, data=name), by_split(rows, rival, data=name)) for name in names]
        marks = {1: " ahead", -1: " behind", 0: ""}
        shown = [f"{interval(one)}{marks[interval(one).side()]}" if one else "-" for one in each]
        lines.append((rival.label, *shown, f"{p:.2g}", f"{corrected:.2g}"))
    notes = (
        "Differences in AUROC, paired by split and seed, with Student's t interval over the splits of a data set. "
        "ahead, behind: the interval is above zero, below zero; each interval by itself, not "
        "corrected for their number. p: exact two-sided sign-flip test over the splits of all data sets; Holm: "
        "corrected for all lines. No mean over data sets is given: it would describe none of them.",
    )
    columns = ("against", *(SETUPS[name].title for name in names), "p", "Holm")
    return Table(f"{ours.label} against each rival after a server failure", columns, tuple(lines), notes)


# -- claims ---------------------------------------------------------------------------------------------------------

_Scores = Callable[..., Units]  #: of a scenario and a method, by split


def _verdicts(scenario: str, rows: Sequence[Row], name: str) -> Iterator[Verdict]:
    def scores(of: str, scheme: str, policy: str = "", score: str = "auroc") -> Units:
        return by_split(rows, Method(scheme, policy, score), scenario=of)

    claims = {"clean": _clean_claims, "client": _client_claims, "server": _server_claims}[scenario]
    for claim, ours, theirs, low, high in claims(scores):
        yield _judged(f"{SETUPS[name].title}: {claim}", ours, theirs, low, high)


#: A claim that the difference of two scores lies between two bounds.
_Claim = tuple[str, Units, Units, float, float]


def _clean_claims(scores: _Scores) -> Iterator[_Claim]:
    ours, fl, batch = scores("clean", "tol-fl"), scores("clean", "fl"), scores("clean", "batch")
    for rival, name in _CLUSTERED.items():
        yield f"best single {name} < Tol-FL", ours, scores("clean", rival, score="auroc_best"), 0, math.inf
    yield "Tol-FL = FL, exactly", ours, fl, 0, 0
    yield f"FL ≈ batch (within {_ABOUT:g})", fl, batch, -_ABOUT, _ABOUT
    for rival, name in _CLUSTERED.items():
        together = scores("clean", rival, score="auroc_all_models")
        yield f"batch ≤ all models of {name}", together, batch, 0, math.inf
    yield from _alone_claims("clean", "Tol-FL", ours, scores)


def _client_claims(scores: _Scores) -> Iterator[_Claim]:
    lines = [("Tol-FL", "tol-fl", "auroc"), ("FL", "fl", "auroc"), ("batch", "batch", "auroc")]
    lines += [(f"best single {name}", rival, "auroc_best") for rival, name in _CLUSTERED.items()]
    for name, scheme, score in lines:
        before, after = scores("clean", scheme, score=score), scores("client", scheme, score=score)
        yield f"a client failure costs {name} {_ABOUT:g} at most", before, after, -math.inf, _ABOUT


def _server_claims(scores: _Scores) -> Iterator[_Claim]:
    isolated, frozen = scores("server", "fl", "isolate"), scores("server", "fl", "freeze")
    together = scores("server", "fl", "isolate", "auroc_all_models")
    fall = differences(scores("clean", "fl"), isolated)
    for policy in ("drop", "elect"):
        before, after = scores("clean", "tol-fl"), scores("server", "tol-fl", policy)
        yield f"FL (isolate) falls more than Tol-FL ({policy})", fall, differences(before, after), 0, math.inf
        claim = f"Tol-FL ({policy}) falls by a cluster's worth at most ({_A_CLUSTERS_WORTH:g})"
        yield claim, before, after, -math.inf, _A_CLUSTERS_WORTH
        for rival, name in _CLUSTERED.items():
            single = scores("server", rival, "strict", "auroc_best")
            yield f"best single {name} < Tol-FL ({policy})", after, single, 0, math.inf
    yield "FL (isolate) < FL (freeze): stopping beats going on alone", frozen, isolated, 0, math.inf
    for policy in ("drop", "elect"):
        ours = scores("server", "tol-fl", policy)
        yield f"FL (freeze) < Tol-FL ({policy})", ours, frozen, 0, math.inf
        yield f"FL (isolate), all models < Tol-FL ({policy})", ours, together, 0, math.inf
        yield from _alone_claims("server", f"Tol-FL ({policy})", ours, scores)


def _alone_claims(scenario: str, name: str, ours: Units, scores: _Scores) -> Iterator[_Claim]:
    yield f"devices alone < {name}", ours, scores(scenario, "fl", "alone"), 0, math.inf
    together = scores(scenario, "fl", "alone", "auroc_all_models")
    yield f"devices alone, all models < {name}", ours, together, 0, math.inf


def _judged(claim: str, a: Units, b: Units, low: float, high: float) -> Verdict:
    """Judge a claim that `a - b` lies between two bounds, by where the interval of the difference lies."""
    gaps = differences(a, b)
    if not gaps:
        return Verdict(claim, None, "not run")
    gap = interval(gaps)
    inside, outside = low <= gap.low and gap.high <= high, gap.high < low or gap.low > high
    means = " - ".join(f"{interval(units).mean:.3f}" for units in (a, b))
    return Verdict(claim, True if inside else False if outside else None, f"{means} = {gap}")


# -- the figure -----------------------------------------------------------------------------------------------------


def _figure(scenario: str, rows: Sequence[Row], names: Sequence[str]) -> Figure:
    """Return one panel per data set: means with their 95 % interval over splits, and the paper's values."""
    shown = [method for method in methods(scenario, rows) if method.score != "auroc_chosen"]
    figure = new_figure(2.2 + 1.7 * len(names), 1.3 + 0.23 * len(shown))
    panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for axes, name in zip(panels, names, strict=True):
        _panel(axes, scenario, rows_where(rows, data=name), shown, name)
    panels[0].set_yticks(range(len(shown)), [method.label for method in shown], fontsize=8)
    panels[0].invert_yaxis()
    figure.suptitle(_TITLES[scenario] + ("" if scenario == "clean" else " half way"), fontsize=10)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(3, len(names)), frameon=False, fontsize=8)
    return figure


def _panel(axes: Axes, scenario: str, rows: Sequence[Row], shown: Sequence[Method], name: str) -> None:
    label, published = "this project, 95 % interval over splits", []
    for place, method in enumerate(shown):
        if units := by_split(rows, method):
            found = interval(units)
            half = 0.0 if found.n_splits < 2 else found.high - found.mean
            axes.errorbar(
                [found.mean],
                [place],
                xerr=[half],
                color=_colour(method),
                fmt="o",
                markersize=4.5,
                elinewidth=1.3,
                label=label,
            )
            label = "_"
        if value := published_auroc(scenario, name, method):
            published.append((value[0], place))
    if published:
        x, y = zip(*published, strict=True)
        axes.plot(x, y, "|", color=BLACK, markersize=9, markeredgewidth=1.4, label="the paper's mean")
    axes.axvline(0.5, color="0.6", linewidth=0.8, linestyle=":", label="no better than guessing")
    axes.set_title(SETUPS[name].title, fontsize=9)
    axes.grid(axis="x", alpha=0.25, linewidth=0.6)
    axes.grid(axis="y", alpha=0.12, linewidth=0.6)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8)
    axes.set_xlabel("AUROC", fontsize=8)


def _colour(method: Method) -> str:
    if method.score == "auroc_all_models":
        return ORANGE
    of_scheme = {"tol-fl": BLUE, "fl": VERMILION, "batch": GREEN}
    return of_scheme.get(method.scheme, SKY if method.score == "auroc_best" else "0.45")


_ABOUT_TABLES = {
    "clean": "AUROC of every method, nobody fails",
    "client": "the same, a client fails half way",
    "server": "the same, a server fails half way, with tests of significance",
}
EXPERIMENTS = tuple(
    Experiment(
        scenario,
        about,
        tuple(SETUPS),
        partial(jobs, scenario),
        partial(table_rows, scenario),
        partial(report, scenario),
    )
    for scenario, about in _ABOUT_TABLES.items()
)
