"""`tolfl completion`: what makes the Tab key of a shell know this command."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Shell(StrEnum):
    """Shells that can be taught."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="The shell that you type in.")]) -> None:
    """Print a script that lets a shell complete commands, flags and their values with the Tab key.

    Nothing is installed: read it into this shell, or add the same line to ~/.bashrc or ~/.zshrc.

    Example: eval "$(tolfl completion bash)"

    Example: eval "$(tolfl completion zsh)"

    Example: tolfl completion fish > ~/.config/fish/completions/tolfl.fish
    """
    from typer._completion_shared import get_completion_script

    typer.echo(get_completion_script(prog_name="tolfl", complete_var="_TOLFL_COMPLETE", shell=shell.value))
