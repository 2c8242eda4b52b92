"""A report as blocks, and the same blocks as Markdown. Their texts come from files, and nobody trusts them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True)
class Heading:
    """The title of a section."""

    text: str


@dataclass(frozen=True)
class Text:
    """A paragraph; a notice is one that nobody should miss."""

    text: str
    kind: Literal["plain", "lead", "notice", "small"] = "plain"


@dataclass(frozen=True)
class Grid:
    """A table; without columns, pairs of a name and a value."""

    rows: Sequence[Sequence[str]]
    columns: Sequence[str] = ()


@dataclass(frozen=True)
class Picture:
    """A drawing, and what it shows in words. Its colours are names, `var(--ink)`, until somebody fills them in."""

    name: str  #: of its file, where it gets one
    svg: str
    caption: str


@dataclass(frozen=True)
class Side:
    """Pictures beside each other where there is room."""

    pictures: Sequence[Picture]


@dataclass(frozen=True)
class Listing:
    """Text as a program would read it."""

    text: str


Block: TypeAlias = Heading | Text | Grid | Picture | Side | Listing


@dataclass(frozen=True)
class Document:
    """A report, ready to be written down."""

    title: str
    subtitle: str
    blocks: Sequence[Block]

    @property
    def pictures(self) -> list[Picture]:
        """All drawings in it."""
        found: list[Picture] = []
        for block in self.blocks:
            found += [block] if isinstance(block, Picture) else block.pictures if isinstance(block, Side) else []
        return found


def printable(text: str) -> str:
    r"""Return a text without what a reader cannot see or what turns the line around: controls become U+FFFD.

    >>> printable("a\x00b\u202ec") == "a\ufffdb\ufffdc"
    True
    """
    return "".join(
        one if one in "\n\t" or unicodedata.category(one) not in ("Cc", "Cf", "Cs", "Co", "Cn") else "\ufffd"
        for one in text
    )


#: What Markdown would read as more than text. An underscore between letters is none.
_SPECIAL = re.compile(r"[\\`*\[\]<>|~#!&$]|(?<!\w)_|_(?!\w)")


def to_markdown(document: Document, folder: str) -> str:
    """Return a report as Markdown; its pictures are SVG files in a folder beside it."""
    parts = [f"# {_plain(document.title)}", _plain(document.subtitle)]
    for block in document.blocks:
        match block:
            case Heading():
                parts.append(f"## {_plain(block.text)}")
            case Text():
                parts.append(f"> **{_plain(block.text)}**" if block.kind == "notice" else _plain(block.text))
            case Grid():
                parts.append(_grid(block))
            case Picture():
                parts.append(_picture(block, folder))
            case Side():
                parts += [_picture(picture, folder) for picture in block.pictures]
            case Listing():
                parts.append(_listing(block))
    return "\n\n".join(part for part in parts if part) + "\n"


def _plain(text: str) -> str:
    r"""Return a text that Markdown shows as it is, in one line.

    >>> _plain("on_head_failure <b> | *x*")
    'on_head_failure \\<b\\> \\| \\*x\\*'
    """
    return _SPECIAL.sub(lambda found: "\\" + found[0], " ".join(printable(text).split()))


def _grid(grid: Grid) -> str:
    columns = grid.columns or ("", *[""] * (max((len(row) for row in grid.rows), default=1) - 1))
    lines = [columns, *grid.rows]
    rows = ["| " + " | ".join(_plain(cell) for cell in line) + " |" for line in lines]
    return "\n".join([rows[0], "|" + "---|" * len(columns), *rows[1:]])


def _picture(picture: Picture, folder: str) -> str:
    return f"![{_plain(picture.caption)}]({folder}/{picture.name}.svg)\n\n{_plain(picture.caption)}"


def _listing(listing: Listing) -> str:
    longest = max((len(run) for run in re.findall("`+", listing.text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{printable(listing.text).rstrip()}\n{fence}"
