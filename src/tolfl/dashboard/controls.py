"""What a person at the page may do to a fleet on this machine. The room that started the fleet does it."""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

Action = Literal["kill", "freeze", "thaw", "cut", "heal", "revive"]


class Command(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A click."""

    action: Action
    device: int


class Controls(Protocol):
    """A fleet that can be struck. What cannot be done is a `TolFLError` with a sentence for the page."""

    def obey(self, command: Command) -> None:
        """Do it, and return when it is done."""
        ...
