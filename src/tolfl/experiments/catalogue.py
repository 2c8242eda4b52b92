"""Every experiment by name: its jobs, the rows of each, and the report that rows lead to.

A new experiment is a file with three functions and one `Experiment`, and its name here. The sweep gives it the cache,
`--resume`, `--on ray`, `--data` and its own stored specifications.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from tolfl.core.errors import RunDirectoryError, UnknownNameError
from tolfl.core.spec import RunSpec
from tolfl.experiments import attacks, beyond
from tolfl.experiments.experiment import Experiment, Options
from tolfl.experiments.paper import auroc_tables, communication, samples, server_figure, step_size, time_to_target
from tolfl.experiments.ray_cluster import compute_on_ray
from tolfl.experiments.results import SCHEMA, ExperimentReport, read_results, spec_fields
from tolfl.experiments.sweep import Job, Sweep
from tolfl.sim.simulation import Progress

EXPERIMENTS = {
    one.name: one
    for one in (
        *auroc_tables.EXPERIMENTS,
        communication.EXPERIMENT,
        time_to_target.EXPERIMENT,
        server_figure.EXPERIMENT,
        samples.EXPERIMENT,
        beyond.EXPERIMENT,
        attacks.EXPERIMENT,
        step_size.EXPERIMENT,
    )
}
#: What `all` runs: what the paper shows.
OF_THE_PAPER = ("clean", "client", "server", "communication", "timing", "server-figure", "samples")


def chosen_experiments(name: str) -> list[Experiment]:
    """Return the experiments of a name, in the order in which they run."""
    if name == "all":
        return [EXPERIMENTS[one] for one in OF_THE_PAPER]
    if name not in EXPERIMENTS:
        raise UnknownNameError("experiment", name, [*EXPERIMENTS, "all", "render"])
    return [EXPERIMENTS[name]]


@dataclass
class RunningExperiment:
    """An experiment that is computed. Iterate to run it; then it has rows, specifications and a report."""

    experiment: Experiment
    options: Options
    rows: list[dict[str, Any]] = field(default_factory=list)
    specs: dict[str, RunSpec] = field(default_factory=dict)  #: of the rows, by their `job`
    seconds: float = 0.0  #: wall-clock time
    computing_s: float = 0.0  #: of all jobs, including those from the cache
    _sweep: Sweep | None = None

    def __iter__(self) -> Iterator[Progress]:
        """Compute jobs until the experiment, which sees the rows so far, has no further ones."""
        started, known = time.perf_counter(), set[tuple[str, str]]()
        while new := [job for job in self._jobs() if (job.key, job.label) not in known]:
            known |= {(job.key, job.label) for job in new}
            self._sweep = sweep = Sweep(new, self.options.cache)
            stored = {job.key for job in new if sweep.is_finished(job)}
            executor, _, address = self.options.executor.partition(":")
            yield from compute_on_ray(sweep, address) if executor == "ray" else sweep
            self.computing_s += sweep.computing_s
            for job in new:
                self._add(job, sweep, job.key in stored)
        self.seconds = time.perf_counter() - started

    def _jobs(self) -> list[Job]:
        def in_data_dir(spec: RunSpec) -> RunSpec:
            return msgspec.structs.replace(
                spec, dataset=msgspec.structs.replace(spec.dataset, dir=self.options.data_dir)
            )

        jobs = self.experiment.jobs(self.options, self.rows)
        return [replace(job, spec=in_data_dir(job.spec)) for job in jobs]

    def _add(self, job: Job, sweep: Sweep, is_stored: bool) -> None:
        repetitions = sweep.results[job.key]
        try:
            self.rows += self.experiment.rows(job, repetitions)
        except (LookupError, TypeError, ValueError, StopIteration) as error:
            if sweep.store is None or not is_stored:
                raise
            problem = f"is damaged, or of another version of tolfl ({error!r}); delete it to compute it again"
            raise RunDirectoryError(sweep.store / job.name, problem) from error
        for one in repetitions:
            self.specs[one.key] = job.spec if one.key == job.key else one.spec

    def save_checkpoints(self) -> None:
        """Write to disk what is needed to resume."""
        if self._sweep is not None:
            self._sweep.save_checkpoints()

    @property
    def report(self) -> ExperimentReport:
        """The report of all rows."""
        return self.experiment.report(self.rows)

    @property
    def origin(self) -> dict[str, Any]:
        """What a reader needs to compute the rows again."""
        data, is_quick = self.options.data, self.options.quick
        chosen = [] if tuple(data) == self.experiment.data else ["--data", ",".join(data)]
        return {
            "schema": SCHEMA,
            "command": " ".join(["tolfl reproduce", self.experiment.name, *chosen, *["--quick"] * is_quick]),
            "is_quick": is_quick,
            "seconds": round(self.seconds, 1),
            "seconds_computing": round(self.computing_s, 1),
            "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
            "versions": {"python": platform.python_version()}
            | {name: version(name) for name in ("tolfl", "numpy", "scikit-learn")},
            "specs": {key: spec_fields(spec) for key, spec in self.specs.items()},
        }


def stored_reports(folder: Path) -> dict[str, tuple[ExperimentReport, dict[str, Any]]]:
    """Return the report of every results file of a folder, made again from its rows, and where its rows come from."""
    found = {}
    for name, experiment in EXPERIMENTS.items():
        path = folder / f"{name}.json"
        if path.is_file():
            content = read_results(path)
            origin = {
                key: value
                for key, value in content.items()
                if key not in ("rows", "verdicts", "name", "title", "sha256")
            }
            found[name] = (_report(experiment, content["rows"], path), origin)
    return found


def _report(experiment: Experiment, rows: Sequence[dict[str, Any]], path: Path) -> ExperimentReport:
    try:
        return experiment.report(rows)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise RunDirectoryError(path, f"was edited by hand: its rows do not fit together ({error!r})") from None
