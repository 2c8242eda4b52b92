"""The pages of limits and of the specification, made from constants, fields and the comments behind them."""

from __future__ import annotations

import ast
import inspect
import io
import operator
import re
import textwrap
import tokenize
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import msgspec

from docs.generate.words import cell, number, table
from tolfl.core.spec import RunSpec, Timing, allowed, title

# -- what a file says of its names, read without importing it -----------------------------------------------------

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


# -- the pages of limits and of the specification -----------------------------------------------------------------

PRESETS = ("localhost", "lan", "wireless")
#: Constants by section: module and name; words of ours only where a name says it all in the code.
CONSTANTS: dict[str, list[tuple[str, str, str]]] = {
    "On the wire": [
        ("net.wire", "WIRE_VERSION", "version of the wire contract; another one is refused"),
        ("net.wire", "MAX_FRAME_BYTES", ""),
        ("net.wire", "CHUNK_BYTES", ""),
        ("net.links", "MAX_FRAMES_PER_S", ""),
        ("net.links", "MAX_HALF_OPEN", ""),
        ("net.links", "GREETING_S", ""),
        ("net.wire", "_MAX_SAMPLES", "samples that one contribution may claim"),
        ("net.wire", "MAX_COUNT", ""),
        ("net.wire", "_MAX_REASON", "characters of a reason why somebody is missing"),
        ("net.addresses", "_MAX_ADDRESS", ""),
        ("net.wire", "_MAX_ARRAYS", "arrays of one message"),
        ("net.wire", "_MAX_KEY", "characters of the name of an array"),
        ("core.contribution", "LARGEST_NUMBER", "numbers in an array are smaller"),
        ("core.contribution", "LARGEST_INTEGER", "integers in an array are smaller, so that two can be added"),
    ],
    "Between two devices": [
        ("net.connection", "_MAX_WAITING", ""),
        ("net.connection", "_MAX_PAYLOADS", ""),
        ("net.connection", "_MAX_URGENT", ""),
        ("net.links", "_SLOWEST_RETRY_S", "longest pause between two attempts to reach a peer"),
        ("net.links", "_SEED_RETRY_S", "pause between two attempts to reach a seed"),
        ("net.links", "_IDLE_S", ""),
        ("net.links", "_WATCHED_SILENCES", ""),
        ("net.links", "_FLUSH_S", ""),
    ],
    "Starting and finding each other": [
        ("net.client", "_ANSWER_S", "how long a device that is asked for its status may take to answer"),
        ("net.node", "_LOOK_S", "between two looks for those who are not there yet"),
        ("net.discovery", "_ASK_MS", "how long an answer by multicast DNS may take"),
        ("net.launcher", "_START_S", ""),
        ("net.launcher", "_START_S_PER_DEVICE", "and so much more for each device"),
        ("net.launcher", "_GOODBYE_S", "how long `tolfl up` waits for goodbyes before it kills"),
        ("net.launcher", "_PATIENCE", ""),
    ],
    "Certificates and metrics": [
        ("net.enrolment", "_AUTHORITY_YEARS", "how long a fleet's authority is good"),
        ("net.status", "_REQUEST_S", "how long somebody who asks for metrics may take to say so"),
        ("net.status", "_MAX_REQUEST", "characters of such a request"),
    ],
    "Simulator": [
        ("sim.timeline", "_MAX_IDLE_TICKS", ""),
        ("sim.world", "CONTROL_BYTES", ""),
        ("core.byzantine", "_MAX_SCALE", "largest factor of a liar of your own"),
        ("core.byzantine", "_MAX_COUNT", "most samples that a liar of your own can report"),
    ],
    "Tables, captures, recordings": [
        ("tables.block_reader", "MAX_COLUMNS", "columns of a table"),
        ("tables.block_reader", "_BLOCK_BYTES", "bytes of a table that are read at once"),
        ("signals.pcap", "_LONGEST_BYTES", ""),
        ("signals.pcap", "_LONGEST_BLOCK_BYTES", "longest block of a pcapng file"),
        ("signals.capture_rows", "LATENESS_S", ""),
        ("signals.sigmf", "_LONGEST_METADATA", ""),
        ("cli.data", "_LONGEST_RECORDING_S", ""),
    ],
    "Detectors": [
        ("detect.detector_learner", "MAX_FEATURES", ""),
        ("detect.thresholds", "SIGNIFICANCE", ""),
        ("detect.model_file", "FORMAT", ""),
    ],
    "The page of a run": [
        ("cli.run_commands", "_MOST_RUNS", "runs side by side"),
        ("dashboard.page_server", "_COMMAND_BYTES", "of a command from the page"),
        ("runs.run_report", "_N_ROWS", ""),
    ],
}


def limits() -> str:
    """Return the tables of limits."""
    parts = ["## When silence becomes a death", cell(_about(Timing)), _timing()]
    for heading, constants in CONSTANTS.items():
        rows = [_constant(*one) for one in constants]
        parts += [f"## {heading}", table(["limit", "value", "what, and why"], rows)]
    return "\n\n".join(parts)


def _timing() -> str:
    said = said_in_class(Timing)
    presets = [Timing.preset(name) for name in PRESETS]
    rows = [
        [f"`{field}`", *(number(getattr(preset, field), field) for preset in presets), cell(said[field].comment)]
        for field in Timing.__struct_fields__
    ]
    return table(["setting", *(f"`{name}`" for name in PRESETS), "what, and why"], rows)


def _constant(module: str, name: str, words: str) -> list[str]:
    found = said_in_module(module)[name]
    said = words or found.comment
    if not said:
        raise ValueError(f"tolfl.{module}.{name} has no comment, and the page no words for it")
    return [f"`{name.strip('_').lower()}`<br>{module}", number(evaluated(found.value), name), cell(said)]


def settings() -> str:
    """Return the tables of the specification: its own fields, then a section for each of its parts."""
    return "\n\n".join(_struct(RunSpec, ""))


def _struct(kind: type[msgspec.Struct], path: str) -> list[str]:
    said, hints = said_in_class(kind), get_type_hints(kind, include_extras=True)
    rows, below = [], []
    for field in msgspec.structs.fields(kind):
        name = f"{path}{field.name}"
        if isinstance(field.default, msgspec.Struct):
            below += [f"## [{name}]", cell(_about(type(field.default))), *_struct(type(field.default), f"{name}.")]
        else:
            what = said[field.name].comment or title(hints[field.name])
            rows.append([f"`{name}`", _default(field.default, field.name), _allowed(hints[field.name]), cell(what)])
    return [table(["field", "default", "allowed", "what"], rows), *below]


def _default(value: object, name: str) -> str:
    if value in (None, "", ()):
        return ""
    return number(list(value) if isinstance(value, tuple) else value, name)


def _allowed(hint: Any) -> str:
    listed = re.search(r"Literal\[(.*?)\]", str(hint))
    words = re.findall(r"'([^']*)'", listed[1]) if listed else []
    return f"one of {', '.join(f'`{word}`' for word in words)}" if words else allowed(hint)


def _about(kind: type) -> str:
    return (kind.__doc__ or "").split("\n\n")[0].strip()
