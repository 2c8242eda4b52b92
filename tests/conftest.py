"""How much is searched and measured.

Hypothesis searches without a deadline, and in continuous integration along the same path every time. `make test` looks
at a fifth of the usual number of examples (`TOLFL_QUICK`), `make test-all` at all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from coverage import Coverage
from hypothesis import settings

_EXAMPLES = 20 if os.environ.get("TOLFL_QUICK") else 100
settings.register_profile("search", deadline=None, max_examples=_EXAMPLES)
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=_EXAMPLES)
settings.load_profile("repeatable" if os.environ.get("CI") else "search")

#: `make test` measures the rooms of the algorithm by their own tests and the simulator's: measured Python takes two to
#: four times as long. Some go through the same lines hundreds of times: the others reach all but a few of those.
_ALGORITHM = ("core", "kernel", "learners", "protocol")
_MEASURED = {*_ALGORITHM, "sim"}
_REPETITIVE = {
    "protocol/test_explorer.py",
    "sim/test_failures.py",
    "sim/test_resume.py",
    "sim/test_returns_and_cuts.py",
    "sim/test_rivals_played.py",
}
_WORKER = Coverage.current() if "PYTEST_XDIST_WORKER" in os.environ else None
_MEASURING = _WORKER if os.environ.get("TOLFL_QUICK") else None

if _MEASURING is not None:
    os.environ.pop("COVERAGE_PROCESS_CONFIG", None)  # each process that a test starts would take 0.3 s longer
    for room in _ALGORITHM:
        for path in Path(next(iter(import_module(f"tolfl.{room}").__path__))).glob("*.py"):
            import_module(f"tolfl.{room}.{path.stem}")
    _MEASURING.stop()


@pytest.fixture(scope="module", autouse=True)
def _measure(request: pytest.FixtureRequest) -> Iterator[None]:
    """Measure the tests of some rooms in a quick run."""
    room, name = request.path.parts[-2:]
    if _MEASURING is None or room not in _MEASURED or f"{room}/{name}" in _REPETITIVE:
        yield
        return
    _MEASURING.start()
    yield
    _MEASURING.stop()


def pytest_sessionfinish() -> None:
    """Store what this worker measured: one that takes ten seconds to end is killed before it does so itself."""
    if _WORKER is not None:
        _WORKER.save()
