"""Every scheme under one failure plan, on the same devices, with the same seeds: jobs, rows of scores, a figure.

Rounds that several rows have in common are trained once (`Sweep`). A row is what `--format json` shows: a dictionary.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tolfl.core.errors import RunDirectoryError, SpecError, UnknownNameError
from tolfl.core.failures import FailurePlan
from tolfl.core.plot_style import BLUE, GREEN, ORANGE, VERMILION, new_figure
from tolfl.core.spec import RunSpec
from tolfl.core.topology import Topology, asked_layout
from tolfl.datasets import FederatedDataset
from tolfl.experiments.result_rows import mean_sd
from tolfl.experiments.results import Table
from tolfl.experiments.sweep import Job, Sweep
from tolfl.learners.layouts import SCHEMES, failure_plan, layout, n_clusters
from tolfl.learners.training import Model
from tolfl.runs.directory import write_file
from tolfl.sim.simulation import datasets_of, repetitions_of

if TYPE_CHECKING:
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
#: Scores of a run's models, in the order of the table's columns.
SCORES = ("auroc", "auroc_best", "auroc_chosen", "auroc_all_models")
#: score, marker, colour, how far below its line, and how the legend calls it
_MARKS = (
    ("auroc", "o", BLUE, 0.0, "mean over devices"),
    ("auroc_best", "^", ORANGE, 0.18, "best single model (oracle)"),
    ("auroc_chosen", "s", GREEN, -0.18, "model chosen without labels"),
    ("auroc_all_models", "D", VERMILION, 0.0, "all models together"),
)
_COUNTS = ("devices_in_last_round", "devices_lost_with_head", "clusters_in_use", "bytes", "stall_s", "train_loss")
_STARTED_WITH = "compare.toml"


def parse_schemes(text: str) -> tuple[str, ...]:
    """Read `all`, or names separated by commas.

    >>> parse_schemes("fl, tol-fl")
    ('tol-fl', 'fl')
    """
    requested = {name.strip() for name in text.split(",") if name.strip()}
    if requested == {"all"}:
        return tuple(COMPARED_POLICIES)
    for name in sorted(requested):
        if name not in SCHEMES:
            raise UnknownNameError("scheme", name, ["all", *COMPARED_POLICIES])
    if not requested:
        raise SpecError("no scheme to compare; name some, as in tol-fl,fl,ifca, or all")
    return tuple(name for name in COMPARED_POLICIES if name in requested)


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
    """Return whether a head may fail or be cut off, so that the policy matters."""
    heads = {cluster[0] for cluster in layout(spec).clusters}
    plans = [failure_plan(one) for one in repetitions_of(spec)]
    return any(plan.cuts or any(failure.device in heads for failure in plan.failures) for plan in plans)


# -- computing it --------------------------------------------------------------------------------------------------


def comparison_sweep(
    spec: RunSpec,
    schemes: Sequence[str],
    data: FederatedDataset | None = None,
    model: Model | None = None,
    out: Path | None = None,
    resume: bool = False,
) -> Sweep:
    """Return the sweep of a comparison; iterate to compute it, then call `comparison_of`.

    >>> spec = RunSpec(data="blobs", devices=4, clusters=2, rounds=2, fail="server@1")
    >>> sweep = comparison_sweep(spec, ("tol-fl", "fl"))
    >>> for progress in sweep: pass
    >>> [row["label"] for row in comparison_of(spec, sweep).rows][:4]
    ['tol-fl (elect)', 'tol-fl (drop)', 'fl (isolate)', 'fl (freeze)']
    """
    jobs, datasets = scheme_jobs(spec.check(), schemes), datasets_of(spec, data)
    of_fl = [job for job in jobs if job.spec.scheme == "fl" and job.spec.on_head_failure]
    if of_fl:  # it loses its server: what does training together gain?
        jobs.insert(jobs.index(of_fl[-1]) + 1, alone_job(of_fl[-1].spec))
    if out is not None:
        _prepare(out, spec, tuple(schemes), resume)
    return Sweep(jobs, out, datasets, model)


def read_spec(out: Path) -> tuple[RunSpec, tuple[str, ...]]:
    """Return what a comparison on disk was started with: what its runs have in common, and the schemes."""
    path = out / _STARTED_WITH
    if not path.is_file():
        raise RunDirectoryError(out, "holds no comparison to resume; leave out --resume to start one")
    try:
        fields = msgspec.toml.decode(path.read_bytes())
        return RunSpec.from_fields(fields["run"]), tuple(fields["schemes"])
    except (OSError, KeyError, TypeError, msgspec.DecodeError) as error:
        raise RunDirectoryError(path, f"is no comparison that can be read ({error})") from None


def _prepare(out: Path, spec: RunSpec, schemes: tuple[str, ...], resume: bool) -> None:
    if resume:
        if read_spec(out) != (spec, schemes):
            raise RunDirectoryError(out, "was started with other options; resume it with --out and --resume alone")
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunDirectoryError(out, "is not empty; choose another --out, or continue with --resume")
    write_file(out, _STARTED_WITH, msgspec.toml.encode({"schemes": schemes, "run": spec.to_fields()}))


# -- the result ----------------------------------------------------------------------------------------------------


class Comparison(msgspec.Struct, frozen=True):
    """A finished comparison, as `--format json` shows it."""

    data: str
    devices: int
    fail: str
    rounds: int
    seeds: list[int]
    reference: str | None  #: the label of the row that the others are compared with
    chosen_by: str | None
    rows: list[dict[str, Any]]  #: one per scheme and policy, then the plain baselines

    def __getitem__(self, label: str) -> dict[str, Any]:
        """Return the row with a label."""
        for row in self.rows:
            if row["label"] == label:
                return row
        raise KeyError(f"no row {label!r}; there are {', '.join(row['label'] for row in self.rows)}")

    @property
    def title(self) -> str:
        """What was compared, and on what: of the table and of the figure."""
        seeds = f"seeds {self.seeds[0]} to {self.seeds[-1]}" if len(self.seeds) > 1 else f"seed {self.seeds[0]}"
        what = f"fail {self.fail}" if self.fail else "nobody fails"
        return f"{self.data}: {self.devices} devices, {self.rounds} rounds, {seeds}; {what}"

    @property
    def table(self) -> Table:
        """The rows as text, and what the columns are."""
        spread = ", ± standard deviation over seeds" if len(self.seeds) > 1 else ""
        difference, notes = "", [f"AUROC: mean over devices of the model each uses{spread}"]
        if any(row.get("clusters_in_use") is not None or "isolate" in row["policy"] for row in self.rows):
            notes.append(
                "best*: the best single model, chosen on the test set (an oracle); chosen: by least "
                f"{self.chosen_by or 'loss'}; all: least score of all models, sample by sample"
            )
        if self.reference:
            difference = "difference"
            notes.append(f"difference: AUROC minus that of {self.reference}, seed by seed")
        notes.append("devices, models: how many trained in the last round; plain rows need all data in one place")
        return Table(
            self.title,
            ("", "AUROC", "best*", "chosen", "all", difference, "devices", "models"),
            tuple(self._cells(row) for row in self.rows),
            tuple(notes),
        )

    def _cells(self, row: Mapping[str, Any]) -> tuple[str, ...]:
        has_several = any(_has(row, score) for score in SCORES[1:])
        others = [mean_sd([row[score]["mean"]]) if has_several else "" for score in SCORES[1:]]
        gaps = row["difference_to_reference"]["values"]
        gap = "" if row["label"] == self.reference or not gaps else mean_sd(gaps, "+.3f")
        # Nothing for plain rows, and where every seed diverged.
        counts = (row.get("devices_in_last_round"), ".3g"), (row.get("clusters_in_use"), ".2g")
        left = ["" if count is None else format(count, form) for count, form in counts]
        return (row["label"], mean_sd(row["auroc"]["values"]), *others, gap, *left)

    def plot(self) -> Figure:
        """Return a figure: one line per row, its scores as points, bars are standard deviations over seeds."""
        figure = new_figure(7.5, 1.6 + 0.34 * len(self.rows))
        axes = figure.subplots()
        for score, marker, colour, shift, label in _MARKS:
            points = [(place + shift, row[score]) for place, row in enumerate(self.rows) if _has(row, score)]
            if points:
                axes.errorbar(
                    [found["mean"] for _, found in points],
                    [place for place, _ in points],
                    xerr=[found["std"] or 0.0 for _, found in points],
                    fmt=marker,
                    color=colour,
                    markersize=6,
                    elinewidth=1.2,
                    label=label,
                )
        if self.reference and (mean := self[self.reference]["auroc"]["mean"]) is not None:
            axes.axvline(mean, color=BLUE, linewidth=0.8, linestyle=":")
        axes.set_yticks(range(len(self.rows)), [row["label"] for row in self.rows])
        axes.invert_yaxis()
        axes.set(xlabel="AUROC on the test set")
        axes.grid(axis="x", alpha=0.3)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
        axes.set_title(self.title, fontsize=10, loc="left")
        if axes.containers:  # else there is no test set, and no score to show
            figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
        return figure


def comparison_of(spec: RunSpec, sweep: Sweep) -> Comparison:
    """Return the comparison of a finished sweep, and write it into the sweep's folder, if it has one.

    The reference is the first row of Tol-FL; the plain baselines follow as rows of their own.
    """
    summaries = {job.label: [one.summary or {} for one in sweep.results[job.key]] for job in sweep.jobs}
    reference = next((job.label for job in sweep.jobs if job.spec.scheme == "tol-fl"), None)
    theirs = [one.get("auroc") for one in summaries[reference]] if reference else None
    rows = []
    for job in sweep.jobs:
        own = summaries[job.label]
        names = {"label": job.label, "scheme": job.spec.scheme, "policy": job.spec.on_head_failure, "is_plain": False}
        counts = {name: over_seeds([one.get(name) for one in own])["mean"] for name in _COUNTS}
        rows.append(names | _scores(own, SCORES, theirs) | counts)
    baselines = [one.get("baselines", {}) for one in summaries[sweep.jobs[0].label]]
    for name in dict.fromkeys(name for of_seed in baselines for name in of_seed):
        names = {"label": f"{name} (plain)", "scheme": name, "policy": "", "is_plain": True}
        rows.append(names | _scores([{"auroc": of_seed.get(name)} for of_seed in baselines], SCORES[:1], theirs))
    found = [one for of_job in summaries.values() for one in of_job]
    result = Comparison(
        data=next((one["data"] for one in found if one), spec.data),
        devices=spec.devices,
        fail=spec.fail,
        rounds=spec.rounds,
        seeds=[one.seed for one in repetitions_of(spec)],
        reference=reference,
        chosen_by=next((one["chosen_by"] for one in found if one.get("chosen_by")), None),
        rows=rows,
    )
    if sweep.store is not None:
        write_file(sweep.store, "comparison.json", msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
    return result


def _scores(
    summaries: Sequence[Mapping[str, Any]], names: Sequence[str], reference: Sequence[float | None] | None
) -> dict[str, Any]:
    """Return scores, and the difference of the AUROC to the reference's, seed by seed."""
    pairs = zip([one.get("auroc") for one in summaries], reference, strict=True) if reference else ()
    gaps = [None if a is None or b is None else a - b for a, b in pairs]
    scores = {name: over_seeds([one.get(name) for one in summaries]) for name in names}
    return scores | {"difference_to_reference": over_seeds(gaps)}


def over_seeds(values: Sequence[float | None]) -> dict[str, Any]:
    """Return the mean of a number over seeds, its standard deviation, and each value; None where there is none.

    >>> over_seeds([0.5, None])
    {'mean': 0.5, 'std': None, 'values': [0.5, None]}
    """
    known = [value for value in values if value is not None]
    mean = statistics.fmean(known) if known else None
    return {"mean": mean, "std": statistics.stdev(known) if len(known) > 1 else None, "values": list(values)}


def _has(row: Mapping[str, Any], score: str) -> bool:
    """Return whether a row has a score of its own; with one model all of them are one number, but for its last bits."""
    mean = row.get(score, {}).get("mean")
    return mean is not None and (score == "auroc" or not math.isclose(mean, row["auroc"]["mean"]))
