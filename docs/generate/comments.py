"""What the code says of a name: its value, and the `#:` comment beside or above its assignment. Nothing is imported."""

from __future__ import annotations

import ast
import inspect
import io
import operator
import textwrap
import tokenize
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

SOURCES = Path(__file__).resolve().parents[2] / "src" / "tolfl"
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], object]] = {
    ast.Add: operator.add,
    ast.LShift: operator.lshift,
    ast.Mult: operator.mul,
    ast.Pow: operator.pow,
}
_Comments = dict[int, tuple[str, bool]]  #: by line, and whether it has the line for itself


class Said(NamedTuple):
    """A name that is assigned in a module or class."""

    value: str  #: as it is written
    comment: str  #: '' where there is none


def said_in_module(name: str) -> dict[str, Said]:
    """Return every name on the top level of a module.

    >>> said_in_module("net.wire")["CHUNK_BYTES"].value
    '256 * 1024'
    """
    path = SOURCES / f"{name.replace('.', '/')}.py"
    source = path.read_text(encoding="utf-8")
    return _said(ast.parse(source).body, source)


def said_in_class(kind: type) -> dict[str, Said]:
    """Return every field of a class.

    >>> from tolfl.core.spec import LinkModel
    >>> said_in_class(LinkModel)["bandwidth_bps"].comment
    "of every device's link"
    """
    source = textwrap.dedent(inspect.getsource(kind))
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    return _said(definition.body, source)


def names_in(name: str) -> list[str]:
    """Return the public names of a package."""
    names = ast.literal_eval(said_in_module(f"{name}.__init__" if name else "__init__")["__all__"].value)
    return [str(one) for one in names]


def evaluated(value: str) -> object:
    """Return the number or text that an expression of plain numbers is.

    >>> evaluated("64 * 2**20")
    67108864
    """
    return _folded(ast.parse(value, mode="eval").body)


def _folded(node: ast.expr) -> object:
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        return _ARITHMETIC[type(node.op)](_folded(node.left), _folded(node.right))
    return ast.literal_eval(node)


def _said(body: list[ast.stmt], source: str) -> dict[str, Said]:
    by_line = _comments_by_line(source)
    return {
        name: Said(value, _beside(statement, by_line) or _above(statement, by_line))
        for statement in body
        for name, value in _assigned(statement)
    }


def _comments_by_line(source: str) -> _Comments:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {
        token.start[0]: (token.string.lstrip("#").lstrip(":").strip(), not token.line[: token.start[1]].strip())
        for token in tokens
        if token.type == tokenize.COMMENT
    }


def _assigned(statement: ast.stmt) -> list[tuple[str, str]]:
    match statement:
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
            pairs = list(zip(names, values, strict=True))
        case ast.Assign(targets=[name], value=value):
            pairs = [(name, value)]
        case ast.AnnAssign(target=name, value=default):
            pairs = [(name, default or ast.Constant(None))]
        case _:
            pairs = []
    return [(name.id, ast.unparse(value)) for name, value in pairs if isinstance(name, ast.Name)]


def _beside(statement: ast.stmt, by_line: _Comments) -> str:
    last = statement.end_lineno or statement.lineno
    found = (by_line.get(line, ("", True)) for line in range(statement.lineno, last + 1))
    return " ".join(comment for comment, is_alone in found if not is_alone and not comment.startswith("noqa"))


def _above(statement: ast.stmt, by_line: _Comments) -> str:
    lines: list[str] = []
    line = statement.lineno - 1
    while line in by_line and by_line[line][1]:
        lines.insert(0, by_line[line][0])
        line -= 1
    return " ".join(lines)
