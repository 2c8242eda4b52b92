"""The command as a person types it, also for the tests of what it starts."""

from __future__ import annotations

from tests.cli.conftest import tolfl

__all__ = ["tolfl"]
