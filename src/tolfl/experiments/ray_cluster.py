"""A sweep on a Ray cluster, with the same rows as on this machine.

Ray gets one task per group of jobs that share rounds (`sweep.groups`): the jobs as JSON, and the files of
finished jobs come back as bytes. Nothing is pickled by us, no shared folder is needed, and a task whose worker dies is
started again by Ray.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from tolfl.core.errors import SpecError
from tolfl.experiments.sweep import Job, Sweep, groups, read_finished
from tolfl.runs.directory import write_file
from tolfl.sim.simulation import Progress

#: A worker that dies is replaced so often; a task that fails because of its data is not repeated.
_RETRIES = 5


def check_executor(text: str) -> str:
    """Return `local`, `ray` or `ray:ADDRESS`; anything else, or a missing Ray, is an error.

    >>> check_executor("local")
    'local'
    """
    if text != "local" and text.partition(":")[0] != "ray":
        raise SpecError(f"--on {text}: use local, ray (this machine) or ray:ADDRESS (a cluster)")
    if text != "local":
        import ray  # noqa: F401, PLC0415  (an extra: missing, it is missing at the start)
    return text


def compute_on_ray(sweep: Sweep, address: str = "") -> Iterator[Progress]:
    """Compute what is missing on as many workers as there are; without an address, on a cluster of this machine."""
    import ray  # noqa: PLC0415  (an extra)

    missing = [[job for job in group if not sweep.is_finished(job)] for group in groups(sweep.jobs)]
    todo = [group for group in missing if group]
    total, done = len(sweep.jobs), len(sweep.jobs) - sum(len(group) for group in todo)
    if not todo:
        return
    is_ours = not ray.is_initialized()
    if is_ours:
        ray.init(address or "local", logging_level=logging.ERROR, log_to_driver=False)
    try:
        task = ray.remote(num_cpus=1, max_retries=_RETRIES)(compute_group)
        data_dir = os.environ.get("TOLFL_DATA", "")
        waiting = {task.remote(msgspec.json.encode(group), data_dir): group for group in todo}
        while waiting:
            ready, _ = ray.wait(list(waiting), num_returns=1)
            group = waiting.pop(ready[0])
            add_results(sweep, group, ray.get(ready[0]))
            done += len(group)
            yield Progress(label=group[-1].label, jobs_done=done, n_jobs=total)
    finally:
        if is_ours:
            ray.shutdown()


def compute_group(jobs: bytes, data_dir: str) -> dict[str, bytes]:
    """Compute jobs in a folder of their own; return their files without models and checkpoints."""
    if data_dir:
        os.environ.setdefault("TOLFL_DATA", data_dir)
    with tempfile.TemporaryDirectory(prefix="tolfl-") as folder:
        store = Path(folder)
        for _ in Sweep(msgspec.json.decode(jobs, type=list[Job]), store):
            pass
        kept = [path for path in sorted(store.rglob("*")) if path.suffix in (".toml", ".jsonl", ".json")]
        return {str(path.relative_to(store)): path.read_bytes() for path in kept}


def add_results(sweep: Sweep, group: list[Job], files: Mapping[str, bytes]) -> None:
    """Add a worker's results to the sweep, and to its store if it has one; summaries last: they mark a finished job."""
    with tempfile.TemporaryDirectory(prefix="tolfl-") as scratch:
        store = sweep.store or Path(scratch)
        for name in sorted(files, key=lambda name: (name.count("/") == 1 and name.endswith("summary.json"), name)):
            write_file(store, name, files[name])
        for job in group:
            finished = read_finished(store, job)
            if finished is None:
                raise SpecError(f"{job.label}: a worker sent no result; compute it here, with --on local")
            for repetition in finished if sweep.store is None else []:
                _ = repetition.records if repetition.summary else ()  # its folder is deleted next
            sweep.results[job.key] = finished
