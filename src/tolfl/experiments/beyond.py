"""Variations that the paper left out: each changes one setting of the tables' runs and measures Tol-FL's AUROC there.

All of them are on Comms-ML but for the rotation of anomalous classes, which needs pictures. Every table has the best
that one common model can do without a server (`fl freeze`), devices that go on alone or were alone from the start, and
all of their models together.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from tolfl.core.plot_style import BLUE, GREEN, ORANGE, SKY, VERMILION, bare, new_figure
from tolfl.core.spec import RunSpec
from tolfl.experiments.comparison import COMPARED_POLICIES, alone_job, scheme_jobs
from tolfl.experiments.experiment import Experiment, Options
from tolfl.experiments.paper.setups import SETUPS
from tolfl.experiments.result_rows import (
    Method,
    Row,
    by_split,
    distinct_values,
    mean_spreads,
    models_in_use,
    plain_rows,
    rows_of,
    rows_where,
)
from tolfl.experiments.results import ExperimentReport, Table, Verdict
from tolfl.experiments.significance import differences, interval
from tolfl.experiments.sweep import Job, Repetition

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Variation:
    """One setting of a run, and the values it takes."""

    name: str
    title: str
    setting: str
    specs: Callable[
        [RunSpec], Mapping[str, RunSpec]
    ]  #: the specification of each value, made from that of the paper's tables
    schemes: tuple[str, ...] = ("tol-fl", "fl")
    data: str = "comms-ml"
    #: For values that are not a choice (which device fails): the rows behind one verdict on all of them.
    as_a_whole: Callable[[Sequence[Row]], list[Row]] | None = None


def _changed(spec: RunSpec, **fields: Any) -> RunSpec:
    return msgspec.structs.replace(spec, **fields)


def _dataset(spec: RunSpec, **fields: Any) -> RunSpec:
    return _changed(spec, dataset=msgspec.structs.replace(spec.dataset, **fields))


def _half(spec: RunSpec) -> int:
    return spec.rounds // 2


def _failing(spec: RunSpec) -> RunSpec:
    return _changed(spec, fail=f"server@{_half(spec)}")


def _early(spec: RunSpec) -> dict[str, RunSpec]:
    rounds = sorted({max(1, spec.rounds * share // 100) for share in (5, 10, 25, 50)})
    return {str(at): _changed(spec, fail=f"server@{at}") for at in rounds}


def _clusters(spec: RunSpec) -> dict[str, RunSpec]:
    return {str(k): _changed(_failing(spec), clusters=k) for k in range(1, spec.devices + 1)}


def _failed_devices(spec: RunSpec) -> dict[str, RunSpec]:
    return {str(d): _changed(spec, fail=f"device:{d}@{_half(spec)}") for d in range(spec.devices)}


def _dirichlet(spec: RunSpec) -> dict[str, RunSpec]:
    fails = _failing(spec)
    found = {f"{alpha:g}": _dataset(fails, partition="dirichlet", alpha=alpha) for alpha in (0.05, 0.2, 1.0, 10.0)}
    return {"classes": fails} | found | {"iid": _dataset(fails, partition="iid")}


def _several(spec: RunSpec) -> dict[str, RunSpec]:
    # The heads of three clusters of ten devices, one after the other.
    half, later = _half(spec), max(1, spec.rounds // 10)
    plan = [f"device:{head}@{half + place * later}" for place, head in enumerate((0, 4, 7))]
    return {str(n): _changed(spec, fail="; ".join(plan[:n])) for n in (1, 2, 3)}


def _random(spec: RunSpec) -> dict[str, RunSpec]:
    return {f"{p:g}": _changed(spec, fail=f"random:{p:g}") for p in (0.001, 0.003, 0.01)}


def _new_class(spec: RunSpec) -> dict[str, RunSpec]:
    # The devices of the last region are away until the server has failed: their class is new to the model.
    half = _half(spec)
    return {"yes": _changed(spec, fail=f"cluster:2@0-{half + 1}; server@{half}"), "no": _failing(spec)}


def _dropout(spec: RunSpec) -> dict[str, RunSpec]:
    fails = _failing(spec)
    return {f"{p:g}": _changed(fails, model=msgspec.structs.replace(spec.model, dropout=p)) for p in (0.0, 0.2)}


def _rotated(spec: RunSpec) -> dict[str, RunSpec]:
    fails = _changed(_failing(spec), repetitions=1, splits=1)
    most = min(5000, spec.dataset.max_train or 5000)
    return {str(c): _dataset(fails, anomalous=(str(c),), max_train=most) for c in range(10)}


def _mean_over_devices(rows: Sequence[Row]) -> list[Row]:
    """Return one row for each method, split and seed: the mean over devices, any of which may be the one that fails."""
    together: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        together.setdefault(tuple(row[name] for name in ("data", "scheme", "policy", "split", "seed")), []).append(row)
    return [{**same[0], **_means(same)} for same in together.values()]


def _means(rows: Sequence[Row]) -> dict[str, float]:
    scores = [name for name in ("auroc", "auroc_all_models") if rows[0].get(name) is not None]
    return {name: statistics.fmean(row[name] for row in rows) for name in scores}


def _class_as_split(rows: Sequence[Row]) -> list[Row]:
    """Return rows in which the anomalous class stands in place of the split: a rotation has one run for each class."""
    return [{**row, "split": row["varied"]} for row in rows]


_RIVALS = ("fedgroup", "ifca", "fesem")
VARIATIONS = (
    Variation("early", "The server fails early or late", "round of the failure", _early),
    Variation("clusters", "How many clusters", "clusters (k)", _clusters),
    Variation(
        "victim",
        "Which device fails",
        "device that fails",
        _failed_devices,
        as_a_whole=_mean_over_devices,
    ),
    Variation("several", "One, two or three heads fail", "heads lost", _several),
    Variation("random", "Devices fail at random", "probability per device and round", _random),
    Variation("newcomer", "A new typical class appears after the failure", "a new class appears", _new_class),
    Variation(
        "dirichlet", "How unequal the devices' data are", "one class each, Dirichlet alpha, or at random", _dirichlet
    ),
    Variation("dropout", "With and without dropout", "dropout", _dropout),
    Variation(
        "rehome", "Rivals whose devices find another model", "failure", lambda s: {"server": _failing(s)}, _RIVALS
    ),
    Variation(
        "batch-size",
        "Batch training with a device's batch size",
        "failure",
        lambda spec: {"nobody": spec},
        ("batch", "batch-small"),
    ),
    Variation(
        "rotation",
        "Each class anomalous in turn (Fashion-MNIST)",
        "anomalous class",
        _rotated,
        data="fashion-mnist",
        as_a_whole=_class_as_split,
    ),
    Variation(
        "rotation-cifar",
        "Each class anomalous in turn (CIFAR-10)",
        "anomalous class",
        _rotated,
        data="cifar-10",
        as_a_whole=_class_as_split,
    ),
)


def jobs(options: Options, rows: Sequence[Row] = ()) -> list[Job]:  # noqa: ARG001
    """Return a job for each value, scheme and policy; for FL also one whose devices never train together."""
    found = []
    for variation in VARIATIONS:
        if variation.data not in options.data:
            continue
        base = SETUPS[variation.data].spec(options.quick)
        for value, spec in variation.specs(base).items():
            tags = {"question": variation.name, "varied": value, "scenario": "beyond"}
            for job in scheme_jobs(spec, variation.schemes):
                # A star has no clusters: one run serves for every k.
                is_star = job.spec.scheme == "fl"
                own = _changed(job.spec, clusters=base.clusters) if is_star else job.spec
                found.append(Job(f"{variation.name} {value}: {job.label}", own, tags))
            if "fl" in variation.schemes:
                alone = alone_job(_changed(spec, clusters=base.clusters)).spec
                found.append(Job(f"{variation.name} {value}: each device alone", alone, {**tags, "scenario": "alone"}))
    return found


def beyond_rows(job: Job, repetitions: Sequence[Repetition]) -> list[dict[str, Any]]:
    """Return the rows of a job; the plain baselines once per value."""
    found = rows_of(job, repetitions)
    first = next(one for one in VARIATIONS if one.name == job.tags["question"]).schemes[0]
    if job.spec.scheme == first and job.spec.on_head_failure in ("", COMPARED_POLICIES[first][0]):
        found += plain_rows(job, repetitions)
    return found


# -- the report -----------------------------------------------------------------------------------------------------

_OURS = Method("tol-fl", "elect"), Method("tol-fl", "drop")
_ONE_MODEL = Method("fl", "freeze"), Method("fl", "isolate")
_SEVERAL = (
    Method("fl", "isolate", "auroc_all_models"),
    Method("fl", "alone"),
    Method("fl", "alone", "auroc_all_models"),
)
_NOTES = (
    "AUROC, mean ± standard deviation of the splits' means / of seeds inside a split. all models: the least of their "
    "scores, sample by sample; `fl isolate` and `fl alone`: the mean over devices of the model that each has. alone: "
    "devices that never train together; the first is left out, and no other fails whatever the line says.",
)


def report(rows: Sequence[Row]) -> ExperimentReport:
    """Return the report of rows."""
    found = [{**row, "policy": "alone"} if row["scenario"] == "alone" else row for row in rows]
    tables, figures, verdicts = [], {}, []
    for variation in VARIATIONS:
        own = with_every_policy(rows_where(found, question=variation.name))
        if own:
            tables.append(_table(variation, own))
            verdicts += _verdicts(variation, own)
        if len(distinct_values(own, "varied")) > 1:
            figures[f"beyond-{variation.name}"] = partial(_figure, variation, own)
    return ExperimentReport("beyond", "Beyond the paper", list(rows), tables, verdicts, figures)


def with_every_policy(rows: Sequence[Row]) -> list[Row]:
    """Return a variation's rows; where no head fails, a scheme's one run stands for each of its policies."""
    policies: dict[str, dict[str, None]] = {}
    for row in rows:
        if row["policy"] not in ("", "alone"):
            policies.setdefault(row["scheme"], {})[row["policy"]] = None
    return [
        {**row, "policy": policy}
        for row in rows
        for policy in (policies.get(row["scheme"], "") if not row["policy"] else "") or (row["policy"],)
    ]


def shown_methods(rows: Sequence[Row]) -> list[Method]:
    """Return the methods that a variation's rows have, ours first."""
    known = [method for method in (*_OURS, *_ONE_MODEL, *_SEVERAL) if by_split(rows, method)]
    pairs = dict.fromkeys((row["scheme"], row["policy"]) for row in rows if row["scheme"] in COMPARED_POLICIES)
    others = [Method(*pair) for pair in pairs if pair[0] not in ("tol-fl", "fl")]
    together = [Method(m.scheme, m.policy, "auroc_all_models") for m in others if not m.scheme.startswith("batch")]
    return [*known, *others, *together]


def _table(variation: Variation, rows: Sequence[Row]) -> Table:
    """Return one line per value, one column per method; of one value, one line per method."""
    methods, values = shown_methods(rows), distinct_values(rows, "varied")
    if len(values) == 1:
        of_methods = [
            (
                m.label,
                mean_spreads(by_split(rows, m)),
                models_in_use(rows_where(rows, scheme=m.scheme, policy=m.policy)),
            )
            for m in methods
        ]
        one_value = ("method", f"{variation.setting}: {values[0]}", "models in use")
        return Table(variation.title, one_value, tuple(of_methods), _NOTES)
    lines: list[tuple[str, ...]] = [
        (value, *(mean_spreads(by_split(rows_where(rows, varied=value), m)) for m in methods)) for value in values
    ]
    if variation.as_a_whole is not None:
        whole = variation.as_a_whole(rows)
        lines.append(("mean", *(mean_spreads(by_split(whole, method)) for method in methods)))
    columns = (variation.setting, *(method.label for method in methods))
    return Table(variation.title, columns, tuple(lines), _NOTES)


def _verdicts(variation: Variation, rows: Sequence[Row]) -> list[Verdict]:
    """Return, for every value, whether Tol-FL is ahead of one model without a server, and of several models."""
    values = distinct_values(rows, "varied")
    if variation.as_a_whole is not None:
        return _ahead(f"{variation.name}, mean of {len(values)}", variation.as_a_whole(rows))
    return [one for value in values for one in _ahead(f"{variation.name} {value}", rows_where(rows, varied=value))]


def _ahead(name: str, rows: Sequence[Row]) -> list[Verdict]:
    found = []
    for ours in _OURS:
        for rivals, what in ((_ONE_MODEL, "one model without a server"), (_SEVERAL, "devices' own models")):
            gaps = [(rival, differences(by_split(rows, ours), by_split(rows, rival))) for rival in rivals]
            known = [(rival, interval(gap)) for rival, gap in gaps if gap]
            if known:
                rival, least = min(known, key=lambda pair: pair[1].mean)
                supported = {1: True, -1: False, 0: None}[least.side()]
                evidence = f"{least} against {rival.label}, the best of them"
                found.append(Verdict(f"{name}: {ours.label} is ahead of {what}", supported, evidence))
    return found


_STYLES = {
    ("tol-fl", "elect"): (BLUE, "o"),
    ("tol-fl", "drop"): (SKY, "s"),
    ("fl", "freeze"): (VERMILION, "^"),
    ("fl", "isolate"): (ORANGE, "v"),
    ("fl", "alone"): (GREEN, "D"),
}


def _figure(variation: Variation, rows: Sequence[Row]) -> Figure:
    """Return a figure: means and their 95 % intervals over splits, at each value."""
    values, methods = distinct_values(rows, "varied"), shown_methods(rows)
    figure = new_figure(max(5.0, 1.8 + 0.6 * len(values)), 3.4)
    axes = figure.subplots()
    for index, method in enumerate(methods):
        colour, marker = _STYLES[method.scheme, method.policy]
        shift = 0.1 * (index - (len(methods) - 1) / 2)
        by_value = [by_split(rows_where(rows, varied=value), method) for value in values]
        points = [(place + shift, interval(units)) for place, units in enumerate(by_value) if units]
        axes.errorbar(
            [x for x, _ in points],
            [found.mean for _, found in points],
            yerr=[found.high - found.mean if found.n_splits > 1 else 0.0 for _, found in points],
            color=colour,
            fmt=marker,
            markerfacecolor="white" if method.score == "auroc_all_models" else colour,
            markersize=4.5,
            linewidth=1.2,
            label=method.label,
        )
    axes.set_xticks(range(len(values)), values)
    axes.set_xlabel(variation.setting, fontsize=9)
    axes.set_ylabel("AUROC", fontsize=9)
    axes.set_title(variation.title, fontsize=10, loc="left")
    bare(axes)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure


EXPERIMENT = Experiment(
    "beyond",
    "what the paper left out: early failures, k, which device fails, unequal data, several failures, ...",
    ("comms-ml", "fashion-mnist", "cifar-10"),
    jobs,
    beyond_rows,
    report,
)
