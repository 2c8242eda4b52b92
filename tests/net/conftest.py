"""The command as a person types it, also for the tests of what it starts."""

from __future__ import annotations

import pytest

from tests.cli.conftest import tolfl

__all__ = ["tolfl"]


@pytest.fixture(autouse=True)
def _processes_without_coverage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep coverage out of device processes: it would double the time they take to start."""
    if request.node.get_closest_marker("processes"):
        monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
