"""One line of `tolfl doctor`."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class State(StrEnum):
    """How bad it is."""

    OK = "ok"
    NOTE = "note"  #: something that only some people need is not there
    WARNING = "warning"  #: it works, and may not for long, or not for everything
    PROBLEM = "problem"  #: something that was asked about does not work


class Finding(msgspec.Struct, frozen=True):
    """What was looked at, what was found, and what to do about it."""

    area: str
    name: str
    state: State
    found: str
    todo: str = ""

    @property
    def sentence(self) -> str:
        """What was found and what to do, as one sentence."""
        return f"{self.found}; {self.todo}" if self.todo else self.found
