"""The page of the command line, from the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer.main

from docs.generate.words import cell, table
from tolfl.cli import app

#: What a flag takes, in a reader's words.
_KINDS = {int: "whole number", float: "number", Path: "path"}


@cache
def commands() -> dict[str, Any]:
    """Return every command by its full name, in the order of `tolfl --help`."""
    return dict(_below("tolfl", typer.main.get_command(app)))


def _below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield name, command
    for part, inner in getattr(command, "commands", {}).items():
        yield from _below(f"{name} {part}", inner)


def flags(command: Any) -> list[str]:
    """Return every spelling of every flag of a command, without its help."""
    return [flag for option in _options(command) for flag in (*option.opts, *option.secondary_opts)]


def examples(command: Any) -> list[str]:
    """Return the examples in a command's help, each a line for a shell."""
    return [one.removeprefix("Example:").strip() for one in _paragraphs(command) if one.startswith("Example:")]


def page() -> str:
    """Return the page: a section per command, with its examples and all its flags."""
    found = list(commands().items())
    overview = table(
        ["command", "what it does"],
        [[f"[`{name}`](#{_anchor(name)})", cell(_paragraphs(command)[0])] for name, command in found[1:]],
    )
    return "\n\n".join([overview, *(_section(name, command) for name, command in found)])


def _section(name: str, command: Any) -> str:
    paragraphs = _paragraphs(command)
    said = [cell(one) for one in paragraphs if not one.startswith("Example:")]
    parts = [f"## {name} {{#{_anchor(name)}}}", *said, f"```text\n{_usage(name, command)}\n```"]
    if examples(command):
        parts.append("```sh\n" + "\n".join(examples(command)) + "\n```")
    if _arguments(command):
        rows = [[f"`{_placeholder(one)}`", cell(one.help or "")] for one in _arguments(command)]
        parts.append(table(["argument", "what it is"], rows))
    if _options(command):
        parts.append(table(["flag", "takes", "what it is"], [_row(one) for one in _options(command)]))
    return "\n\n".join(parts)


def _row(option: Any) -> list[str]:
    spelled = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
    takes = "" if option.is_flag else _type(option)
    said = cell(option.help or "")
    if option.required:
        said = f"{said} **Needed.**".strip()
    elif not option.is_flag and option.default not in (None, "", (), []) and "default:" not in said:
        said = f"{said} (default: {option.default})".strip()
    return [spelled, takes, said]


def _type(option: Any) -> str:
    kind = option.type_descriptor.annotation
    if get_origin(kind) is Literal:
        return ", ".join(f"`{one}`" for one in get_args(kind))
    name = _KINDS.get(kind, "text")
    return f"{name}, may be repeated" if option.multiple else name


def _usage(name: str, command: Any) -> str:
    words = [name, *(["[FLAGS]"] if _options(command) else [])]
    words += [_placeholder(one) if one.required else f"[{_placeholder(one)}]" for one in _arguments(command)]
    return " ".join([*words, *(["COMMAND"] if getattr(command, "commands", None) else [])])


def _placeholder(argument: Any) -> str:
    shown = (argument.metavar or argument.name or "").upper().strip("[]")
    return f"{shown}..." if argument.nargs == -1 and not shown.endswith("...") else shown


def _paragraphs(command: Any) -> list[str]:
    text = (command.help or "").replace("\b", "")
    return [re.sub(r"\s+", " ", one).strip() for one in re.split(r"\n\s*\n", text) if one.strip()]


def _arguments(command: Any) -> list[Any]:
    return [one for one in command.params if one.param_type_name == "argument"]


def _options(command: Any) -> list[Any]:
    return [one for one in command.params if one.param_type_name == "option" and not one.hidden]


def _anchor(name: str) -> str:
    return name.replace(" ", "-")
