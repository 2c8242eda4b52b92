"""How many threads compute: two for groups of devices, one inside a matrix product."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import TypeVar

import torch

#: More than two threads would mostly wait for Python's lock between the small steps of training.
_MAX_THREADS = 2

Item = TypeVar("Item")
Found = TypeVar("Found")


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Let torch compute on one thread: many of them inside small products only get in each other's way."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def in_threads(compute: Callable[[Item], Found], items: Sequence[Item]) -> list[Found]:
    """Return what is computed from each item, several at a time where there are several.

    >>> in_threads(abs, [-1, 2])
    [1, 2]
    """
    if len(items) < 2:
        return [compute(item) for item in items]
    return list(_pool().map(compute, items))


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(_MAX_THREADS, os.cpu_count() or 1), thread_name_prefix="computing")
