"""Every scheme under one failure plan, on the same devices, with the same seeds.

Rounds that several rows have in common are trained once (`Sweep`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tolfl.core.errors import RunDirectoryError, SpecError, UnknownNameError
from tolfl.core.failures import FailurePlan
from tolfl.core.spec import RunSpec
from tolfl.core.topology import Topology, asked_layout
from tolfl.datasets import FederatedDataset
from tolfl.experiments.comparison import Comparison, compared
from tolfl.experiments.sweep import Cell, Sweep, SweepProgress
from tolfl.learners.layouts import SCHEMES, failure_plan, layout, n_clusters
from tolfl.learners.training import Model
from tolfl.runs.directory import write_file
from tolfl.sim.simulation import datasets_of, repetitions_of

#: The order of rows; a scheme that is not named here follows.
#: What a comparison shows where a head dies.
_COMPARED_POLICIES: dict[str, tuple[str, ...]] = {
    "tol-fl": ("elect", "drop"),
    "fl": ("isolate", "freeze"),
    "sbt": ("elect",),
    "batch": ("freeze",),
    "batch-small": ("freeze",),
    "fedgroup": ("strict", "rehome"),
    "ifca": ("strict", "rehome"),
    "fesem": ("strict", "rehome"),
}
_ORDER = ("tol-fl", "sbt", "fl", "batch", "batch-small", "fedgroup", "ifca", "fesem")


class CompareSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A comparison: which schemes, and what their runs have in common."""

    schemes: tuple[str, ...]
    run: RunSpec


@dataclass(frozen=True)
class Entry:
    """One row to be computed."""

    label: str
    spec: RunSpec

    @property
    def folder(self) -> str:
        """The name of its run directory."""
        return "-".join(filter(None, (self.spec.scheme, self.spec.on_head_failure)))


def known_schemes() -> list[str]:
    """Return every scheme that can be compared, in the order of rows."""
    return sorted(SCHEMES, key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name))


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


def entries(spec: RunSpec, schemes: Sequence[str]) -> list[Entry]:
    """Return the rows: one per scheme, and one per policy where the plan lets a head of that scheme die.

    The failure plan is turned into device ids first, so that it means the same devices for every scheme.
    """
    clusters = asked_layout(spec)
    plan = _plan_of_devices(spec, clusters)
    found = []
    for name in schemes:
        own = msgspec.structs.replace(spec, scheme=name, fail=plan, on_head_failure="", topology="")
        if spec.topology:
            own = msgspec.structs.replace(own, topology=_topology_for(own, clusters))
        policies = _COMPARED_POLICIES[name] if _loses_a_head(own) else ("",)
        for policy in policies:
            label = f"{name} ({policy})" if policy else name
            found.append(Entry(label, msgspec.structs.replace(own, on_head_failure=policy)))
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
    """Tell whether a head may die or be cut off, so that the policy matters."""
    heads = {cluster[0] for cluster in layout(spec).clusters}
    plans = [failure_plan(one) for one in repetitions_of(spec)]
    return any(plan.cuts or any(failure.device in heads for failure in plan.failures) for plan in plans)


class Comparing:
    """A comparison at work. Iterate to make it go on.

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
        self.entries = entries(spec, schemes)
        self._data = datasets_of(spec, data)
        if out is not None:
            _prepare(out, CompareSpec(self.schemes, spec), resume)
        self._cells = [Cell(entry.label, entry.spec, entry.folder) for entry in self.entries]
        self._sweep = Sweep(self._cells, out, self._data, model)

    @property
    def n_rows(self) -> int:
        """How many runs there are to compute."""
        return len(self.entries)

    def __iter__(self) -> Iterator[SweepProgress]:
        """Compute row after row; the result is there when the iteration is over."""
        yield from self._sweep
        if self.out is not None:
            result = msgspec.json.format(msgspec.json.encode(self.result.to_dict()), indent=2)
            write_file(self.out, "comparison.json", result + b"\n")

    def save_checkpoints(self) -> None:
        """Keep on disk what `--resume` needs."""
        self._sweep.save_checkpoints()

    @property
    def result(self) -> Comparison:
        """The finished comparison."""
        summaries = [self._sweep.summaries[cell.key] for cell in self._cells]
        pairs = zip(self.entries, summaries, strict=True)
        runs = [(entry.label, entry.spec.scheme, entry.spec.on_head_failure, found) for entry, found in pairs]
        rows, reference = compared(runs)
        seeds = tuple(one.seed for one in repetitions_of(self.spec))
        chosen_by = next((s["chosen_by"] for found in summaries for s in found if s["chosen_by"]), None)
        return Comparison(self._data[0].name, self.spec.fail, self.spec.rounds, seeds, reference, rows, chosen_by)


def read_spec(out: Path) -> CompareSpec:
    """Return what a comparison on disk was started with."""
    path = out / "compare.toml"
    if not path.is_file():
        raise RunDirectoryError(out, "holds no comparison to resume; leave out --resume to start one")
    try:
        fields = msgspec.toml.decode(path.read_bytes())
        return CompareSpec(tuple(fields["schemes"]), RunSpec.from_fields(fields["run"]))
    except (OSError, KeyError, TypeError, msgspec.DecodeError) as error:
        raise RunDirectoryError(path, f"is no comparison that can be read ({error})") from None


def _prepare(out: Path, spec: CompareSpec, resume: bool) -> None:
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
