"""How much is searched and measured.

Hypothesis searches without a deadline, and in continuous integration along the same path every time. `make test` looks
at a fifth of the usual number of examples (`TOLFL_QUICK`), `make test-all` at all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from coverage import Coverage
from hypothesis import settings

_EXAMPLES = 20 if os.environ.get("TOLFL_QUICK") else 100
settings.register_profile("search", deadline=None, max_examples=_EXAMPLES)
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=_EXAMPLES)
settings.load_profile("repeatable" if os.environ.get("CI") else "search")

#: `make test` measures the rooms of the algorithm by their own tests and the simulator's: measured Python takes two to
#: four times as long. The searches of the explorer go through the same lines thousands of times.
_MEASURED = {"core", "kernel", "learners", "protocol", "sim"}
_SEARCHES = {"test_explorer.py"}

if os.environ.get("TOLFL_QUICK") and "PYTEST_XDIST_WORKER" in os.environ:
    # Each process that a test starts would take 0.3 s longer.
    os.environ.pop("COVERAGE_PROCESS_CONFIG", None)


@pytest.fixture(scope="module", autouse=True)
def _pause_coverage(request: pytest.FixtureRequest) -> Iterator[None]:
    """Measure no tests of other rooms in a quick run."""
    measuring = Coverage.current() if os.environ.get("TOLFL_QUICK") else None
    if measuring is None or (request.path.parent.name in _MEASURED and request.path.name not in _SEARCHES):
        yield
        return
    measuring.stop()
    yield
    measuring.start()
