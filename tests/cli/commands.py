"""Every command of `tolfl`, and the examples in its help, found by asking the command line itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from tolfl.cli import app


def all_commands() -> dict[str, Any]:
    """Return what can be called, by the words that call it: 'data list', 'simulate', ..."""
    return dict(_below(typer.main.get_command(app), ()))


def _below(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield " ".join(path), command
        return
    for name, one in inner.items():
        yield from _below(one, (*path, name))


def examples_of(command: Any) -> list[str]:
    """Return the examples in a command's help, each a line for a shell."""
    paragraphs = re.split(r"\n\s*\n", command.help or "")
    return [" ".join(text.split()).removeprefix("Example: ") for text in paragraphs if "Example: " in text]
