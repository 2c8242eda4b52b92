"""What `tolfl doctor` looks at. A check changes nothing, and says what it found and what to do."""

from __future__ import annotations

from tolfl.cli.checks.finding import Finding, State

__all__ = ["Finding", "State"]
