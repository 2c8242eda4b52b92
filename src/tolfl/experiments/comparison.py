"""Every scheme under one failure plan, on the same devices, with the same seeds: jobs, rows of scores, a figure.

Rounds that several rows have in common are trained once (`Sweep`).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tolfl.core.errors import RunDirectoryError, SpecError, UnknownNameError
from tolfl.core.failures import FailurePlan
from tolfl.core.plot_style import BLUE, GREEN, ORANGE, VERMILION, new_figure
from tolfl.core.spec import RunSpec
from tolfl.core.topology import Topology, asked_layout
from tolfl.datasets import FederatedDataset
from tolfl.experiments.sweep import Job, Sweep
from tolfl.learners.layouts import SCHEMES, failure_plan, layout, n_clusters
from tolfl.learners.training import Model
from tolfl.runs.directory import write_file
from tolfl.sim.simulation import Progress, datasets_of, repetitions_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: The schemes in the order of rows, and which policies are shown where a head fails.
COMPARED_POLICIES: dict[str, tuple[str, ...]] = {
    "tol-fl": ("elect", "drop"),
    "sbt": ("elect",),
    "fl": ("isolate", "freeze"),
    "batch": ("freeze",),
    "batch-small": ("freeze",),
    "fedgroup": ("strict", "rehome"),
    "ifca": ("strict", "rehome"),
    "fesem": ("strict", "rehome"),
}
#: What the models of a run are worth, in the order of the table's columns, and what each number is.
SCORES = {
    "auroc": "mean over devices of the model that each uses",
    "auroc_best": "the best single model, chosen on the test set: an oracle",
    "auroc_chosen": "the single model that held-back typical samples would choose",
    "auroc_all_models": "all models together: each sample gets the least of their scores",
}
_COUNTS = ("devices_in_last_round", "devices_lost_with_head", "clusters_in_use", "bytes", "stall_s", "train_loss")

Summary = Mapping[str, Any]


class ComparisonSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `compare --resume` reads back: which schemes, and what their runs have in common."""

    schemes: tuple[str, ...]
    run: RunSpec


def known_schemes() -> list[str]:
    """Return every scheme that can be compared, in the order of rows."""
    return list(COMPARED_POLICIES)


def parse_schemes(text: str) -> tuple[str, ...]:
    """Read `all`, or names separated by commas.

    >>> parse_schemes("fl, tol-fl")
    ('tol-fl', 'fl')
    """
    asked = {name.strip() for name in text.split(",") if name.strip()}
    if asked == {"all"}:
        return tuple(known_schemes())
    for name in sorted(asked):
        if name not in SCHEMES:
            raise UnknownNameError("scheme", name, ["all", *known_schemes()])
    if not asked:
        raise SpecError("no scheme to compare; name some, as in tol-fl,fl,ifca, or all")
    return tuple(name for name in known_schemes() if name in asked)


def scheme_jobs(spec: RunSpec, schemes: Sequence[str]) -> list[Job]:
    """Return one job per scheme, and one per policy where the plan lets a head of that scheme fail.

    The failure plan is turned into device ids first, so that it means the same devices for every scheme.
    """
    clusters = asked_layout(spec)
    plan = _plan_of_devices(spec, clusters)
    found = []
    for name in schemes:
        own = msgspec.structs.replace(spec, scheme=name, fail=plan, on_head_failure="", topology="")
        if spec.topology:
            own = msgspec.structs.replace(own, topology=_topology_for(own, clusters))
        for policy in COMPARED_POLICIES[name] if _loses_a_head(own) else ("",):
            label = f"{name} ({policy})" if policy else name
            folder = "-".join(filter(None, (name, policy)))
            found.append(Job(label, msgspec.structs.replace(own, on_head_failure=policy), folder=folder))
    return found


def alone_job(spec: RunSpec) -> Job:
    """Return devices that train alone from the start: FL whose server is lost before the first round."""
    fl = msgspec.structs.replace(spec, scheme="fl", fail="", on_head_failure="isolate")
    alone = msgspec.structs.replace(fl, fail=f"device:{layout(fl).server}@0")
    return Job("fl (alone)", alone, folder="fl-alone")


def _with_devices_alone(jobs: Sequence[Job]) -> list[Job]:
    """Return jobs, and behind those of FL devices alone, where FL loses its server: what training together gains."""
    of_fl = [job for job in jobs if job.spec.scheme == "fl" and job.spec.on_head_failure]
    found: list[Job] = []
    for job in jobs:
        found += [job, alone_job(job.spec)] if of_fl and job is of_fl[-1] else [job]
    return found


def _plan_of_devices(spec: RunSpec, clusters: Topology) -> str:
    """Return the plan in terms of devices; random failures stay as they are, every seed draws its own."""
    texts = [text.strip() for text in spec.fail.split(";") if text.strip()]
    random = [text for text in texts if text.startswith("random")]
    named = "; ".join(text for text in texts if text not in random)
    FailurePlan.parse("; ".join(random), clusters, spec.rounds, spec.seed)
    plan = FailurePlan.parse(named, clusters, spec.rounds, spec.seed)
    return "; ".join(filter(None, [str(plan), *random]))


def _topology_for(spec: RunSpec, clusters: Topology) -> str:
    """Return a layout of one's own in the shape of a scheme, with the same order of devices."""
    number = n_clusters(spec)
    if number == clusters.n_clusters:
        return "|".join(",".join(map(str, cluster)) for cluster in clusters.clusters)
    between = "," if number == 1 else "|"
    return between.join(str(device) for cluster in clusters.clusters for device in cluster)


def _loses_a_head(spec: RunSpec) -> bool:
    """Tell whether a head may fail or be cut off, so that the policy matters."""
    heads = {cluster[0] for cluster in layout(spec).clusters}
    plans = [failure_plan(one) for one in repetitions_of(spec)]
    return any(plan.cuts or any(failure.device in heads for failure in plan.failures) for plan in plans)


@dataclass(frozen=True)
class Statistic:
    """A number over seeds: its mean, its spread (standard deviation, ddof 1) and each value, None where there is none.

    >>> Statistic.of([0.5, 0.7, None]).mean
    0.6
    """

    mean: float | None
    std: float | None
    values: tuple[float | None, ...]

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Statistic:
        """Return the statistic of one value per seed."""
        known = [value for value in values if value is not None]
        mean = statistics.fmean(known) if known else None
        return cls(mean, statistics.stdev(known) if len(known) > 1 else None, tuple(values))

    def minus(self, other: Statistic) -> Statistic:
        """Return the differences, seed by seed."""
        pairs = zip(self.values, other.values, strict=True)
        return Statistic.of([None if a is None or b is None else a - b for a, b in pairs])


@dataclass(frozen=True)
class ComparisonRow:
    """One scheme under one policy, or a plain baseline."""

    label: str
    scheme: str
    policy: str
    scores: dict[str, Statistic]
    differences: dict[str, Statistic]  #: to the reference row's `auroc`, seed by seed; empty without a reference
    counts: dict[str, float | None]  #: means over seeds
    is_plain: bool = False


@dataclass(frozen=True)
class Comparison:
    """A finished comparison."""

    data: str
    fail: str
    rounds: int
    seeds: tuple[int, ...]
    reference: str | None  #: the label of the row that the others are compared with
    rows: tuple[ComparisonRow, ...]
    chosen_by: str | None

    def __getitem__(self, label: str) -> ComparisonRow:
        """Return the row with a label."""
        for row in self.rows:
            if row.label == label:
                return row
        raise KeyError(f"no row {label!r}; there are {', '.join(row.label for row in self.rows)}")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as `--format json` shows them."""
        return {
            "data": self.data,
            "fail": self.fail,
            "rounds": self.rounds,
            "seeds": list(self.seeds),
            "reference": self.reference,
            "chosen_by": self.chosen_by,
            "scores": SCORES,
            "rows": [_row_fields(row) for row in self.rows],
        }

    def plot(self) -> Figure:
        """Return a figure: one line per row, its scores as points with their spread over seeds."""
        return _plot(self)


def _row_fields(row: ComparisonRow) -> dict[str, Any]:
    def fields(values: Mapping[str, Statistic]) -> dict[str, Any]:
        return {name: {"mean": s.mean, "std": s.std, "values": list(s.values)} for name, s in values.items()}

    return {
        "label": row.label,
        "scheme": row.scheme,
        "policy": row.policy,
        "is_plain": row.is_plain,
        **fields(row.scores),
        "difference_to_reference": fields(row.differences),
        **row.counts,
    }


def compared(
    runs: Sequence[tuple[str, str, str, Sequence[Summary]]], reference_scheme: str = "tol-fl"
) -> tuple[tuple[ComparisonRow, ...], str | None]:
    """Return the rows of runs (label, scheme, policy, one summary per seed) and which of them is the reference.

    The reference is the first row of Tol-FL; the plain baselines follow as rows of their own.
    """
    scores = [{name: Statistic.of([s.get(name) for s in summaries]) for name in SCORES} for *_, summaries in runs]
    place = next((place for place, (_, scheme, *_) in enumerate(runs) if scheme == reference_scheme), None)
    reference = None if place is None else scores[place]["auroc"]
    rows = [
        ComparisonRow(label, scheme, policy, of_run, _differences(of_run, reference), _counts(summaries))
        for (label, scheme, policy, summaries), of_run in zip(runs, scores, strict=True)
    ]
    baselines = [summary.get("baselines", {}) for summary in runs[0][3]]
    for name in baselines[0]:
        plain = {"auroc": Statistic.of([of_seed.get(name) for of_seed in baselines])}
        rows.append(
            ComparisonRow(f"{name} (plain)", name, "", plain, _differences(plain, reference), {}, is_plain=True)
        )
    return tuple(rows), None if place is None else runs[place][0]


def _differences(scores: Mapping[str, Statistic], reference: Statistic | None) -> dict[str, Statistic]:
    return {} if reference is None else {name: score.minus(reference) for name, score in scores.items()}


def _counts(summaries: Sequence[Summary]) -> dict[str, float | None]:
    return {name: Statistic.of([summary.get(name) for summary in summaries]).mean for name in _COUNTS}


class Comparing:
    """A comparison that is computed. Iterate to run it.

    >>> spec = RunSpec(data="blobs", devices=4, clusters=2, rounds=2, fail="server@1")
    >>> comparing = Comparing(spec, ("tol-fl", "fl"))
    >>> labels = [progress.label for progress in comparing]
    >>> [row.label for row in comparing.result.rows][:4]
    ['tol-fl (elect)', 'tol-fl (drop)', 'fl (isolate)', 'fl (freeze)']
    """

    def __init__(
        self,
        spec: RunSpec,
        schemes: Sequence[str],
        data: FederatedDataset | None = None,
        model: Model | None = None,
        out: Path | None = None,
        resume: bool = False,
    ) -> None:
        self.spec, self.schemes, self.out = spec.check(), tuple(schemes), out
        self.jobs = _with_devices_alone(scheme_jobs(spec, schemes))
        self._data = datasets_of(spec, data)
        if out is not None:
            _prepare(out, ComparisonSpec(self.schemes, spec), resume)
        self._sweep = Sweep(self.jobs, out, self._data, model)

    def __iter__(self) -> Iterator[Progress]:
        """Compute row after row; the result is there when the iteration is over."""
        yield from self._sweep
        if self.out is not None:
            result = msgspec.json.format(msgspec.json.encode(self.result.to_dict()), indent=2)
            write_file(self.out, "comparison.json", result + b"\n")

    def save_checkpoints(self) -> None:
        """Write to disk what `--resume` needs."""
        self._sweep.save_checkpoints()

    @property
    def result(self) -> Comparison:
        """The finished comparison."""
        summaries = [[one.summary or {} for one in self._sweep.results[job.key]] for job in self.jobs]
        pairs = zip(self.jobs, summaries, strict=True)
        runs = [(job.label, job.spec.scheme, job.spec.on_head_failure, found) for job, found in pairs]
        rows, reference = compared(runs)
        seeds = tuple(one.seed for one in repetitions_of(self.spec))
        chosen_by = next((s["chosen_by"] for found in summaries for s in found if s.get("chosen_by")), None)
        return Comparison(self._data[0].name, self.spec.fail, self.spec.rounds, seeds, reference, rows, chosen_by)


def read_spec(out: Path) -> ComparisonSpec:
    """Return what a comparison on disk was started with."""
    path = out / "compare.toml"
    if not path.is_file():
        raise RunDirectoryError(out, "holds no comparison to resume; leave out --resume to start one")
    try:
        fields = msgspec.toml.decode(path.read_bytes())
        return ComparisonSpec(tuple(fields["schemes"]), RunSpec.from_fields(fields["run"]))
    except (OSError, KeyError, TypeError, msgspec.DecodeError) as error:
        raise RunDirectoryError(path, f"is no comparison that can be read ({error})") from None


def _prepare(out: Path, spec: ComparisonSpec, resume: bool) -> None:
    if resume:
        if read_spec(out) != spec:
            raise RunDirectoryError(out, "was started with other options; resume it with --out and --resume alone")
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunDirectoryError(out, "is not empty; choose another --out, or continue with --resume")
    text = f"schemes = {list(spec.schemes)!r}\n\n" + _as_table("run", spec.run.to_toml())
    write_file(out, "compare.toml", text.encode())


def _as_table(name: str, toml: str) -> str:
    """Return TOML one level deeper."""
    return msgspec.toml.encode({name: msgspec.toml.decode(toml)}).decode()


# -- the figure ----------------------------------------------------------------------------------------------------

#: score, marker, colour, how far below its line, and how the legend calls it
_MARKS = (
    ("auroc", "o", BLUE, 0.0, "mean over devices"),
    ("auroc_best", "^", ORANGE, 0.18, "best single model (oracle)"),
    ("auroc_chosen", "s", GREEN, -0.18, "model chosen without labels"),
    ("auroc_all_models", "D", VERMILION, 0.0, "all models together"),
)


def _plot(comparison: Comparison) -> Figure:
    """Return one line per row with its scores; bars are standard deviations over seeds."""
    rows = comparison.rows
    figure = new_figure(7.5, 1.6 + 0.34 * len(rows))
    axes = figure.subplots()
    for score, marker, colour, shift, label in _MARKS:
        points = [(place, row) for place, row in enumerate(rows) if _has(row, score)]
        if points:
            _draw(axes, points, score, shift, marker, colour, label)
    _mark_reference(axes, comparison)
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    axes.invert_yaxis()
    axes.set(xlabel="AUROC on the test set")
    axes.grid(axis="x", alpha=0.3)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    what = f"failures: {comparison.fail}" if comparison.fail else "nobody fails"
    n_seeds = len(comparison.seeds)
    seeds = f"seed {comparison.seeds[0]}" if n_seeds == 1 else f"{n_seeds} seeds"
    setting = f"{comparison.data}, {comparison.rounds} rounds, {seeds}; {what}"
    axes.set_title("\n".join(filter(None, [_finding(comparison), setting])), fontsize=10, loc="left")
    if axes.containers:  # else there is no test set, and no score to show
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return figure


def _finding(comparison: Comparison) -> str:
    """Return what Tol-FL and FL come to, in one line; nothing where one of them is not compared."""
    told = [row for row in comparison.rows if row.label == comparison.reference]
    told += [row for row in comparison.rows if row.scheme == "fl" and row.label != "fl (alone)"]
    ends = [(row.label, row.scores["auroc"].mean) for row in told]
    return ", ".join(f"{label}: {mean:.3f}" for label, mean in ends if mean is not None) if len(ends) > 1 else ""


def _has(row: ComparisonRow, score: str) -> bool:
    """Tell whether a row has a score of its own; with one model all of them are one number."""
    found, mean = row.scores.get(score), row.scores["auroc"].mean
    if found is None or found.mean is None:
        return False
    return score == "auroc" or found.mean != mean


def _draw(
    axes: Axes, points: list[tuple[int, ComparisonRow]], score: str, shift: float, marker: str, colour: str, label: str
) -> None:
    means = [row.scores[score].mean or 0.0 for _, row in points]
    spreads = [row.scores[score].std or 0.0 for _, row in points]
    places = [place + shift for place, _ in points]
    axes.errorbar(means, places, xerr=spreads, fmt=marker, color=colour, markersize=6, elinewidth=1.2, label=label)


def _mark_reference(axes: Axes, comparison: Comparison) -> None:
    if comparison.reference is None:
        return
    mean = comparison[comparison.reference].scores["auroc"].mean
    if mean is not None:
        axes.axvline(mean, color=BLUE, linewidth=0.8, linestyle=":")
