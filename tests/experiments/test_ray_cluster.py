"""A sweep on Ray gives the rows that it gives here, also when a worker is killed in the middle of it."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from tests.experiments.test_sweep import SPEC, changed, jobs, without_clock
from tolfl.core.errors import SpecError
from tolfl.experiments.ray_cluster import add_results, check_executor, compute_group, compute_on_ray
from tolfl.experiments.sweep import Job, Sweep, groups

# Ray leaves sockets and files to its own processes; what its modules warn about on import is not ours either.
pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is an extra"),
    pytest.mark.slow, pytest.mark.processes, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300),
]  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init("local", num_cpus=2, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
    yield
    ray.shutdown()


def worker_pids() -> set[int]:
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if b"ray::compute_group" in (folder / "cmdline").read_bytes():
                    found.add(int(folder.name))
            except OSError:  # it has ended since
                continue
    return found


def test_the_rows_are_those_of_a_local_sweep(cluster: None, tmp_path: Path) -> None:
    here, there = Sweep(jobs()), Sweep(jobs(), tmp_path)
    list(here)
    steps = list(compute_on_ray(there))

    assert steps[-1].jobs_done == steps[-1].n_jobs == len(jobs())
    assert without_clock(there.results) == without_clock(here.results)
    assert list(compute_on_ray(Sweep(jobs(), tmp_path))) == []  # all of it is on disk


def test_a_worker_that_is_killed_is_replaced(cluster: None) -> None:
    long = [Job(f"long {seed}", changed(seed=seed, rounds=400)) for seed in range(2)]
    sweep = Sweep(long)
    killed: list[int] = []
    is_over = threading.Event()

    def kill_the_first() -> None:
        while not killed and not is_over.wait(0.02):
            for pid in sorted(worker_pids())[:1]:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    killer = threading.Thread(target=kill_the_first)
    killer.start()
    list(compute_on_ray(sweep))
    is_over.set()
    killer.join()

    assert killed, "the tasks were over before one could be killed"
    alone = Sweep(long)
    list(alone)
    assert without_clock(sweep.results) == without_clock(alone.results)


def test_a_worker_that_sends_nothing_is_named() -> None:
    sweep = Sweep(jobs())
    with pytest.raises(SpecError, match="a worker sent no result"):
        add_results(sweep, groups(jobs())[0], {})


def test_what_a_worker_sends_has_no_models() -> None:
    files = compute_group(msgspec.json.encode([Job("one", SPEC)]), "")
    assert {Path(name).suffix for name in files} == {".toml", ".json", ".jsonl"}


def test_other_places_are_refused() -> None:
    with pytest.raises(SpecError, match="use local, ray"):
        check_executor("moon")
