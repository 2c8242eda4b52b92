"""Every scheme under one failure plan, on the same devices, with the same seeds.

Rounds that several rows have in common are trained once: those before the first failure are the same whatever follows
it, and for Tol-FL, FL and SBT they are the same models (docs/decisions/0008). Repetitions are computed as one batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tolfl.core.errors import RunDirectoryError, SpecError, UnknownNameError
from tolfl.core.failures import FailurePlan
from tolfl.core.spec import RunSpec
from tolfl.core.topology import Topology
from tolfl.datasets import FederatedDataset
from tolfl.experiments.comparison import Comparison, compared
from tolfl.models import Model
from tolfl.runs.checkpoint import Checkpoint
from tolfl.runs.directory import write_file
from tolfl.schemes import SCHEMES, asked_layout, failure_plan, layout, scheme_of
from tolfl.sim.run import Progress, Runs, datasets_of, repetitions_of

#: The order of rows; a scheme that is not named here follows.
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


@dataclass(frozen=True)
class CompareProgress:
    """How far a comparison is."""

    label: str
    rows_done: int
    n_rows: int
    run: Progress


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
        policies = scheme_of(own).compared_policies if _loses_a_head(own) else ("",)
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
    n_clusters = scheme_of(spec).n_clusters(clusters.n_clusters, spec.devices)
    if n_clusters == clusters.n_clusters:
        return "|".join(",".join(map(str, cluster)) for cluster in clusters.clusters)
    between = "," if n_clusters == 1 else "|"
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
        self.spec, self.schemes, self.out, self.resume = spec.check(), tuple(schemes), out, resume
        self.entries = entries(spec, schemes)
        self._model = model
        self._data = datasets_of(spec, data)
        self._prefixes: dict[str, list[Checkpoint]] = {}
        self._summaries: list[list[dict[str, Any]]] = []
        self._runs: Runs | None = None
        if out is not None:
            _prepare(out, CompareSpec(self.schemes, spec), resume)

    @property
    def n_rows(self) -> int:
        """How many runs there are to compute."""
        return len(self.entries)

    def __iter__(self) -> Iterator[CompareProgress]:
        """Compute row after row; the result is there when the iteration is over."""
        for place, entry in enumerate(self.entries):
            finished = self._finished(entry)
            if finished is not None:
                self._summaries.append(finished)
                continue
            for progress in self._row(entry):
                yield CompareProgress(entry.label, place, self.n_rows, progress)
        if self.out is not None:
            result = msgspec.json.format(msgspec.json.encode(self.result.to_dict()), indent=2)
            write_file(self.out, "comparison.json", result + b"\n")

    def _row(self, entry: Entry) -> Iterator[Progress]:
        family, shared = self._family(entry.spec), self._shared_rounds(entry.spec)
        known = self._prefix(family) if shared else None
        out = None if self.out is None else self.out / entry.folder
        resume = self.resume and out is not None and (out / "spec.toml").exists()
        self._runs = runs = Runs(entry.spec, self._data, self._model, out, resume, known)
        for progress in runs:
            if known is None and progress.rounds_done == shared:
                known = runs.checkpoints()
                self._keep_prefix(family, known)
            yield progress
        self._runs = None
        self._summaries.append([result.summary for result in runs.results])

    def save_checkpoints(self) -> None:
        """Keep on disk what `--resume` needs."""
        if self._runs is not None:
            self._runs.save_checkpoints()

    @property
    def result(self) -> Comparison:
        """The finished comparison."""
        pairs = zip(self.entries, self._summaries, strict=True)
        runs = [(entry.label, entry.spec.scheme, entry.spec.on_head_failure, found) for entry, found in pairs]
        rows, reference = compared(runs)
        seeds = tuple(one.seed for one in repetitions_of(self.spec))
        chosen_by = next((s["chosen_by"] for found in self._summaries for s in found if s["chosen_by"]), None)
        return Comparison(self._data[0].name, self.spec.fail, self.spec.rounds, seeds, reference, rows, chosen_by)

    # -- rounds in common ---------------------------------------------------------------------------------------

    def _family(self, spec: RunSpec) -> str:
        # In a layout of one's own devices are added in another order; and who is late depends on the layout.
        may_share = not spec.topology and spec.deadline_s is None
        return scheme_of(spec).family if may_share else spec.scheme

    def _shared_rounds(self, spec: RunSpec) -> int:
        firsts = [failure_plan(one).first_round for one in repetitions_of(spec)]
        return min(spec.rounds if first is None else first for first in firsts)

    def _prefix(self, family: str) -> list[Checkpoint] | None:
        if family not in self._prefixes and self.out is not None and self.resume:
            paths = self._prefix_paths(family)
            if all(path.is_file() for path in paths):
                self._prefixes[family] = [Checkpoint.read(path) for path in paths]
        return self._prefixes.get(family)

    def _keep_prefix(self, family: str, prefix: list[Checkpoint]) -> None:
        self._prefixes[family] = prefix
        if self.out is not None:
            for path, checkpoint in zip(self._prefix_paths(family), prefix, strict=True):
                write_file(self.out, str(path.relative_to(self.out)), checkpoint.to_bytes())

    def _prefix_paths(self, family: str) -> list[Path]:
        assert self.out is not None
        return [self.out / "shared" / f"{family}-{i}.safetensors" for i in range(self.spec.repetitions)]

    def _finished(self, entry: Entry) -> list[dict[str, Any]] | None:
        """Return the summaries of a row that an earlier attempt finished."""
        path = None if self.out is None or not self.resume else self.out / entry.folder / "summary.json"
        if path is None or not path.is_file():
            return None
        try:
            summary: dict[str, Any] = msgspec.json.decode(path.read_bytes())
        except (OSError, msgspec.DecodeError) as error:
            raise RunDirectoryError(path, f"cannot be read ({error}); delete its folder to compute it again") from None
        return summary.get("repetitions") or [summary]


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
