"""Which devices train together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tolfl.kernel.jobs import TrainJob
from tolfl.models.settings import TrainSettings

_SMALLEST_SHARE = 0.5  # of the largest batch in the group; below it, padding costs more than another group


def group_jobs(jobs: Sequence[TrainJob], settings: TrainSettings, max_devices: int) -> list[list[int]]:
    """Return indices into `jobs`: each group has one dtype and sample shape, and its largest device first.

    Grouping the jobs of one group again gives that group, so a caller may train group by group.
    """
    kinds = [(job.start.itemsize, job.pool.shape[1:]) for job in jobs]
    sizes = [job.n_samples for job in jobs]
    batches = [min(size, settings.batch_size or size) for size in sizes]
    runs: list[list[int]] = []
    for index in sorted(range(len(jobs)), key=lambda index: (kinds[index], -sizes[index])):
        largest = runs[-1][0] if runs else index
        belongs = kinds[index] == kinds[largest] and batches[index] >= _SMALLEST_SHARE * batches[largest]
        if runs and belongs:
            runs[-1].append(index)
        else:
            runs.append([index])
    return [group for run in runs for group in _split_evenly(run, max_devices)]


def _split_evenly(run: list[int], max_devices: int) -> list[list[int]]:
    """Cut a run into as few groups as allowed, all of nearly the same size: a small rest would be a slow group."""
    n_groups = -(-len(run) // max_devices)
    edges = [part * len(run) // n_groups for part in range(n_groups + 1)]
    return [run[first:last] for first, last in pairwise(edges)]
