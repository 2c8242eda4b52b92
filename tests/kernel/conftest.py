"""Libraries and programs made from the kernel's source, each compiled once for all tests and test workers."""

from __future__ import annotations

import pytest

from tests.kernel.building import Builds


@pytest.fixture(scope="session")
def builds(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Builds:
    """What was compiled in this session, by any worker."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "kernel-builds"
    folder.mkdir(exist_ok=True)
    return Builds(folder)
