"""The page of the wire contract, from `wire.proto` and the comments in it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from docs.generate.words import cell, table

PROTO = Path(__file__).resolve().parents[2] / "src" / "tolfl" / "net" / "wire.proto"
_FIELD = re.compile(
    r"(?P<type>[\w.]+(?:<[^>]+>)?|repeated \w+) (?P<name>\w+) = (?P<number>\d+);\s*(?://\s*(?P<said>.*))?"
)
_CALL = re.compile(r"rpc (?P<name>\w+)\((?P<asks>[\w ]+)\) returns \((?P<answers>[\w ]+)\);")


@dataclass
class Section:
    """A message or the service: what is said of it, and its lines."""

    kind: str
    name: str
    said: str
    rows: list[list[str]] = field(default_factory=list)


def page() -> str:
    """Return what the contract says, then a table per message."""
    about, sections = parsed(PROTO.read_text(encoding="utf-8"))
    parts = [*about]
    for section in sections:
        head = ["call", "asks with", "answers with", "what"] if section.kind == "service" else _HEAD
        parts += [f"## {section.kind} {section.name} {{#{section.name.lower()}}}"]
        parts += [cell(section.said)] if section.said else []
        parts += [table(head, section.rows) if section.rows else "No fields."]
    return "\n\n".join(parts)


_HEAD = ["field", "number", "type", "what"]


def parsed(text: str) -> tuple[list[str], list[Section]]:
    """Return the paragraphs on top of a proto file, and its service and messages."""
    top, _, rest = text.partition('syntax = "proto3";')
    about = [cell(" ".join(one.replace("//", "").split())) for one in top.split("\n//\n")]
    sections: list[Section] = []
    said: list[str] = []
    choice = ""
    for line in (line.strip() for line in rest.splitlines()):
        if line.startswith("//"):
            said.append(line.removeprefix("//").strip())
            continue
        if begun := re.match(r"(service|message) (\w+) \{", line):
            sections.append(Section(begun[1], begun[2], " ".join(said)))
        elif begun := re.match(r"oneof (\w+) \{", line):
            choice = begun[1]
        elif line == "}":
            choice = ""
        elif found := _CALL.match(line):
            sections[-1].rows.append([*(f"`{one}`" for one in found.groups()), cell(" ".join(said))])
        elif found := _FIELD.match(line):
            what = "; ".join(
                part for part in (f"one of *{choice}*" if choice else "", cell(found["said"] or "")) if part
            )
            sections[-1].rows.append([f"`{found['name']}`", found["number"], f"`{found['type']}`", what])
        said = []
    return about, sections
