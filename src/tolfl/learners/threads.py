"""Two threads for the work of many devices: the compiled kernel releases the interpreter's lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import lru_cache
from typing import TypeVar

#: More threads than this would mostly wait for Python's lock between their pieces of work.
_MAX_THREADS = 2
#: Whether a thread is one of the pool: it hands nothing on to the pool, which may be waiting for it.
_IS_OF_POOL = ContextVar("_IS_OF_POOL", default=False)

Item = TypeVar("Item")
Found = TypeVar("Found")


def halves_of(items: Sequence[Item]) -> list[Sequence[Item]]:
    """Return items in order, in two parts where there is enough for both.

    >>> halves_of([1, 2, 3]), halves_of([1])
    ([[1], [2, 3]], [[1]])
    """
    middle = len(items) // 2
    return [items[:middle], items[middle:]] if middle else [items]


def in_threads(compute: Callable[[Item], Found], items: Sequence[Item]) -> list[Found]:
    """Return what is computed from each item, several at a time where there are several.

    The outermost call takes the threads: of repetitions, each of many devices, two are computed at a time.

    >>> in_threads(abs, [-1, 2])
    [1, 2]
    """
    if len(items) < 2 or _IS_OF_POOL.get():
        return [compute(item) for item in items]
    return list(_pool().map(compute, items))


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    n_threads = min(_MAX_THREADS, os.cpu_count() or 1)
    return ThreadPoolExecutor(n_threads, "computing", initializer=_IS_OF_POOL.set, initargs=(True,))
