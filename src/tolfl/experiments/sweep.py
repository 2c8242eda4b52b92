"""Many runs that share rounds: these are trained once, and runs that are finished on disk are not computed again.

Rounds before the first failure are the same whatever follows it, and for Tol-FL, FL and SBT they are the same models
whatever the number of clusters (docs/decisions/0008) and the links. Repetitions of one specification are computed as
one batch; if one of them diverges, they are computed one by one.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

import msgspec
from filelock import BaseFileLock, FileLock, Timeout

from tolfl.core.errors import DivergedError, RunDirectoryError
from tolfl.core.records import AnyRecord, RunEnded, Scored
from tolfl.core.spec import LinkModel, RunSpec
from tolfl.datasets import FederatedDataset
from tolfl.learners.layouts import failure_plan, is_plain
from tolfl.learners.training import Model
from tolfl.runs.checkpoint import Checkpoint
from tolfl.runs.directory import write_file
from tolfl.runs.run_reader import read_records
from tolfl.sim.simulation import Progress, Runs, datasets_of, repetitions_of

#: How often jobs of other processes are polled, where nothing else is left to compute.
_WAIT_S = 0.5
#: Fields added after results were stored; their defaults change nothing.
_ADDED_LATER = (
    "comms_ml.rare_factor",
    "dataset.window_s", "dataset.per", "dataset.rate", "dataset.centre", "dataset.without_bursts",
    "dataset.columns", "dataset.ignore",
    "dataset.encoding", "defence", "liars", "run", "learn",
)  # fmt: skip
_DIVERGED = "diverged.json"


def spec_hash(spec: RunSpec) -> str:
    """Return the name under which a specification's results are stored; the folder of its data is not part of it."""
    without_dir = msgspec.structs.replace(spec, dataset=msgspec.structs.replace(spec.dataset, dir=""))
    fields, defaults = without_dir.to_fields(), RunSpec().to_fields()
    for name in _ADDED_LATER:
        *sections, last = name.split(".")
        section = reduce(dict.__getitem__, sections, fields)
        if last in section and section[last] == reduce(dict.__getitem__, [*sections, last], defaults):
            del section[last]
    return hashlib.sha256(msgspec.toml.encode(fields)).hexdigest()[:16]


@dataclass(frozen=True)
class Job:
    """One specification to compute, with all its repetitions, and the columns that its rows get."""

    label: str
    spec: RunSpec
    tags: Mapping[str, Any] = field(default_factory=dict)
    folder: str = ""  #: its run directory; empty: named by data, scheme, policy and the hash of the specification

    @cached_property
    def key(self) -> str:
        """The name under which its results are stored."""
        return spec_hash(self.spec)

    @cached_property
    def name(self) -> str:
        """The name of its run directory."""
        parts = (Path(self.spec.data).stem, self.spec.scheme, self.spec.on_head_failure, self.key)
        return self.folder or "-".join(filter(None, parts))

    @cached_property
    def shared_rounds(self) -> int:
        """How many rounds no failure can have touched, in any repetition.

        The last round before a failure is not among them: where a model takes longer to arrive than a failure to be
        detected, survivors drop it.
        """
        if is_plain(self.spec):
            return 0
        firsts = [failure_plan(one).first_round for one in repetitions_of(self.spec)]
        return min(self.spec.rounds if first is None else max(0, first - 1) for first in firsts)

    @cached_property
    def shared_key(self) -> str:
        """The same for all jobs whose models are equal until a device fails (docs/decisions/0008)."""
        same = msgspec.structs.replace(self.spec, fail="", on_head_failure="", lost_model="lost")
        # A layout of one's own adds devices in another order; which device is late depends on the layout, and so does
        # what a robust rule makes of a cluster.
        depends = same.topology or same.deadline_s is not None or same.defence.depends_on_layout
        if is_plain(same) or depends:
            return spec_hash(same)
        same = msgspec.structs.replace(same, links=LinkModel(), timing="localhost")
        if same.scheme in {"tol-fl", "fl", "sbt"}:
            same = msgspec.structs.replace(same, scheme="averaging", clusters=None)
        return spec_hash(same)


@dataclass(frozen=True)
class Repetition:
    """One finished repetition of a job."""

    spec: RunSpec
    key: str  #: of the specification it was computed from: the job's, or its own where the batch diverged
    summary: Mapping[str, Any] | None  #: None: it diverged, and left no model
    _records: Sequence[AnyRecord] | Path = ()

    @cached_property
    def records(self) -> Sequence[AnyRecord]:
        """What happened, in order."""
        if not isinstance(self._records, Path):
            return self._records
        found = read_records(self._records)
        if not found or not isinstance(found[-1], RunEnded | Scored):
            raise RunDirectoryError(self._records, "lacks the end of its run; delete it to compute it again")
        return found


class Sweep:
    """Computes jobs. Iterate to run it; what an earlier attempt left in `store` is used.

    >>> clean = RunSpec(data="blobs", devices=4, clusters=2, rounds=4)
    >>> failing = msgspec.structs.replace(clean, fail="server@2")
    >>> sweep = Sweep([Job("clean", clean), Job("failing", failing)])
    >>> len(list(sweep))  # four rounds of the first, and the last three of the second
    7
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        store: Path | None = None,
        data: FederatedDataset | Sequence[FederatedDataset] | None = None,
        model: Model | None = None,
    ) -> None:
        self.jobs, self.store = list(jobs), store
        self.results: dict[str, list[Repetition]] = {}  #: by key of a job
        self._data, self._model = data, model
        self._runs: Runs | None = None
        self._prefixes: dict[int, list[Checkpoint]] = {}  #: of the group that is computed, by rounds done

    def __iter__(self) -> Iterator[Progress]:
        """Compute group after group; one that another process computes is left to it, and polled in the end."""
        found = groups(self.jobs)
        waiting, total = list(found), sum(map(len, found))
        while waiting:
            taken = []
            for group in waiting:
                is_finished = all(map(self.is_finished, group))
                lock = None if is_finished or self.store is None else _lock_of(self.store, group[0])
                if lock is not None and not lock.is_locked:
                    taken.append(group)
                    continue
                try:
                    yield from self._compute_group(group, total)
                finally:
                    if lock is not None:
                        lock.release()
            if len(taken) == len(waiting):
                label = f"{taken[0][0].label} (another process computes it)"
                done = sum(job.key in self.results for group in found for job in group)
                yield Progress(label=label, jobs_done=done, n_jobs=total)
                time.sleep(_WAIT_S)
            waiting = taken
        self._prefixes = {}

    def _compute_group(self, group: Sequence[Job], total: int) -> Iterator[Progress]:
        missing = [job for job in group if not self.is_finished(job)]
        datasets = datasets_of(missing[0].spec, self._data) if missing else []
        self._prefixes = self._stored_prefixes(group[0]) if missing else {}
        wanted = {job.shared_rounds for job in group}
        for job in missing:
            done = len(self.results)
            for progress in self._compute(job, datasets, wanted):
                yield replace(progress, jobs_done=done, n_jobs=total)

    def _compute(self, job: Job, datasets: list[FederatedDataset], wanted: set[int]) -> Iterator[Progress]:
        folder = None if self.store is None else self.store / job.name
        if folder is None or not (folder / _DIVERGED).is_file():
            try:
                yield from self._compute_batch(job, datasets, wanted)
            except DivergedError as error:
                if folder is not None:
                    write_file(folder, _DIVERGED, msgspec.json.encode({"diverged": str(error)}) + b"\n")
            else:
                return
        if job.spec.repetitions == 1:
            self.results[job.key] = [Repetition(job.spec, job.key, None)]
            return
        self._prefixes = {}
        singles = [Job(job.label, job.spec.repetition(index)) for index in range(job.spec.repetitions)]
        for single, data in zip(singles, datasets, strict=True):
            if not self.is_finished(single):
                yield from self._compute(single, [data], set())
        self.results[job.key] = [self.results[single.key][0] for single in singles]

    def _compute_batch(self, job: Job, datasets: list[FederatedDataset], wanted: set[int]) -> Iterator[Progress]:
        usable = [rounds for rounds in self._prefixes if rounds <= job.shared_rounds]
        known = self._prefixes[max(usable)] if usable else None
        folder = None if self.store is None else self.store / job.name
        spec = job.spec if folder is None else _as_started(folder, job)
        self._runs = runs = Runs(spec, datasets, self._model, folder, resume=True, known=known)
        for progress in runs:
            if progress.rounds_done in wanted - set(self._prefixes) and progress.rounds_done <= job.shared_rounds:
                self._keep_prefix(job, progress.rounds_done, runs.checkpoints())
            yield Progress(progress.rounds_done, progress.rounds, progress.loss, label=job.label)
        self._runs = None
        self.results[job.key] = [
            Repetition(result.spec, job.key, result.summary, _folder(folder, job.spec, index) or result.records)
            for index, result in enumerate(runs.results)
        ]

    def save_checkpoints(self) -> None:
        """Write to disk what is needed to resume."""
        if self._runs is not None:
            self._runs.save_checkpoints()

    @property
    def computing_s(self) -> float:
        """The computing time of the finished jobs, whenever they were computed; shared rounds count once."""
        return sum(
            float((self.results[job.key][0].summary or {}).get("seconds_per_round", 0.0))
            * (job.spec.rounds - (0 if job is group[0] else job.shared_rounds))
            for group in groups(self.jobs)
            for job in group
            if job.key in self.results
        )

    # -- on disk ------------------------------------------------------------------------------------------------

    def is_finished(self, job: Job) -> bool:
        """Return whether a job has its results, from this attempt or an earlier one."""
        if job.key not in self.results and self.store is not None:
            finished = read_finished(self.store, job)
            if finished is not None:
                self.results[job.key] = finished
        return job.key in self.results

    def _keep_prefix(self, job: Job, rounds: int, prefix: list[Checkpoint]) -> None:
        self._prefixes[rounds] = prefix
        if self.store is not None:
            for index, checkpoint in enumerate(prefix):
                write_file(self.store / "shared", _prefix_file(job, rounds, index), checkpoint.to_bytes())

    def _stored_prefixes(self, job: Job) -> dict[int, list[Checkpoint]]:
        if self.store is None:
            return {}
        found = {}
        for path in sorted((self.store / "shared").glob(f"{job.shared_key}-*-0.safetensors")):
            rounds = int(path.name.split("-")[1])
            paths = [path.with_name(_prefix_file(job, rounds, index)) for index in range(job.spec.repetitions)]
            if all(one.is_file() for one in paths):
                found[rounds] = [Checkpoint.read(one) for one in paths]
        return found


def _lock_of(store: Path, job: Job) -> BaseFileLock:
    """Try to lock a job's group; one process at a time computes it in a store."""
    path = store / "shared" / f"{job.shared_key}.lock"
    lock = FileLock(path, blocking=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(Timeout):
            lock.acquire()
    except OSError as error:
        raise RunDirectoryError(path, f"cannot be written ({error.strerror}); choose another folder") from None
    return lock


def groups(jobs: Sequence[Job]) -> list[list[Job]]:
    """Return jobs that share rounds together, in order of appearance; the one that shares the most rounds first."""
    by_key: dict[str, dict[str, Job]] = {}
    for job in jobs:
        by_key.setdefault(job.shared_key, {}).setdefault(job.key, job)
    return [sorted(group.values(), key=lambda job: -job.shared_rounds) for group in by_key.values()]


def read_finished(store: Path, job: Job) -> list[Repetition] | None:
    """Return the results of a job; None if it is not finished, or was made from another specification."""
    folder = store / job.name
    if (folder / _DIVERGED).is_file():
        if job.spec.repetitions == 1:
            return [Repetition(job.spec, job.key, None)]
        singles = [read_finished(store, Job("", one)) for one in repetitions_of(job.spec)]
        return None if None in singles else [found for single in singles if single for found in single]
    path = folder / "summary.json"
    if not path.is_file():
        return None
    try:
        if spec_hash(RunSpec.from_file(folder / "spec.toml")) != job.key:
            return None
        summary: dict[str, Any] = msgspec.json.decode(path.read_bytes())
        summaries = list(summary.get("repetitions") or [summary])
    except (OSError, msgspec.DecodeError, AttributeError, TypeError, ValueError) as error:
        raise RunDirectoryError(folder, f"cannot be read ({error}); delete it to compute it again") from None
    if len(summaries) != job.spec.repetitions:
        problem = f"has {len(summaries)} of {job.spec.repetitions} repetitions; delete it to compute it again"
        raise RunDirectoryError(folder, problem)
    return [
        Repetition(job.spec.repetition(index), job.key, found, _folder(folder, job.spec, index) or ())
        for index, found in enumerate(summaries)
    ]


def _as_started(folder: Path, job: Job) -> RunSpec:
    """Return a job's specification as an earlier attempt wrote it: its data may have been elsewhere then."""
    path = folder / "spec.toml"
    stored = RunSpec.from_file(path) if path.is_file() else job.spec
    return stored if spec_hash(stored) == job.key else job.spec


def _folder(folder: Path | None, spec: RunSpec, index: int) -> Path | None:
    """Return where the records of a repetition are."""
    return folder if folder is None or spec.repetitions == 1 else folder / f"repetition-{index}"


def _prefix_file(job: Job, rounds: int, index: int) -> str:
    return f"{job.shared_key}-{rounds}-{index}.safetensors"
