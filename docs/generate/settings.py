"""The pages of limits, of the specification and of device.toml, made from constants, fields and their comments."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from docs.generate.words import cell, number, table
from tolfl.core.spec import RunSpec, Timing, allowed, title
from tolfl.net.node_config import NodeConfig, WatchConfig

# -- what a file says of its names, which no module remembers --------------------------------------------------------

SOURCES = Path(__file__).resolve().parents[2] / "src" / "tolfl"
_COMMENT = re.compile(r"(?:^|\s)#:? (?!noqa|-- )(.*)$")  #: `# -- ...` heads a part of a class


def comments_of(name: str) -> dict[str, str]:
    """Return the comment of every name on the top level of a module; '' where there is none.

    >>> comments_of("net.connection")["_MAX_PAYLOADS"].partition(";")[0]
    'Models that may wait for a peer'
    """
    return _comments(*_parsed(SOURCES / f"{name.replace('.', '/')}.py"))


def fields_of(kind: type) -> dict[str, str]:
    """Return the comment of every field of a class.

    >>> fields_of(Timing)["heartbeat_s"].partition(";")[0]
    'between two signs of life'
    """
    body, source = _parsed(Path(inspect.getfile(kind)))
    definition = next(one for one in body if isinstance(one, ast.ClassDef) and one.name == kind.__name__)
    return _comments(definition.body, source)


@cache  # `inspect.getsource` reads and parses a whole file for every class in it
def _parsed(path: Path) -> tuple[list[ast.stmt], str]:
    source = path.read_text(encoding="utf-8")
    return ast.parse(source).body, source


def _comments(body: list[ast.stmt], source: str) -> dict[str, str]:
    """Return the names that statements assign, each with the comments beside it, else with those above it."""
    lines = source.splitlines()
    found: dict[str, str] = {}
    for statement in body:
        if not isinstance(statement, ast.Assign | ast.AnnAssign):
            continue
        first, last = statement.lineno - 1, statement.end_lineno
        above = list(takewhile(re.compile(r"\s*#").match, reversed(lines[:first])))
        beside = [line for line in lines[first:last] if _COMMENT.search(line)]
        texts = [_COMMENT.search(line) for line in beside or reversed(above)]
        comment = " ".join(text[1] for text in texts if text)
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        names = [one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]
        found |= dict.fromkeys(names, comment)
    return found


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
        ("net.links", "HELLO_S", ""),
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
        ("net.links", "_WATCHED_PERIODS", ""),
        ("net.links", "_FLUSH_S", ""),
    ],
    "Starting and finding each other": [
        ("net.client", "_ANSWER_S", "how long a device that is asked for its status may take to answer"),
        ("net.node", "_LOOK_S", "between two looks for those who are not there yet"),
        ("net.discovery", "_ASK_MS", "how long an answer by multicast DNS may take"),
        ("net.launcher", "_START_S", ""),
        ("net.launcher", "_START_S_PER_DEVICE", "and so much more for each device"),
        ("net.launcher", "_LEAVING_S", "how long `tolfl up` waits for devices to leave before it kills"),
        ("net.launcher", "_WAITED_PERIODS", ""),
    ],
    "Certificates and metrics": [
        ("net.enrolment", "_AUTHORITY_YEARS", "how long a fleet's authority is good"),
        ("net.status", "_REQUEST_S", "how long somebody who asks for metrics may take to say so"),
        ("net.status", "_MAX_REQUEST", "characters of such a request"),
    ],
    "Simulator": [
        ("sim.timeline", "_MAX_IDLE_TICKS", ""),
        ("sim.world", "CONTROL_BYTES", ""),
        ("core.byzantine", "_MAX_SCALE", "largest factor of a Byzantine device"),
        ("core.byzantine", "_MAX_COUNT", "most samples that a Byzantine device can report"),
    ],
    "Tables, captures, recordings": [
        ("tables.block_reader", "MAX_COLUMNS", "columns of a table"),
        ("tables.block_reader", "BLOCK_BYTES", "bytes of a table that are read at once"),
        ("signals.pcap", "_LONGEST_BYTES", ""),
        ("signals.pcap", "_LONGEST_BLOCK_BYTES", "longest block of a pcapng file"),
        ("signals.capture_rows", "LATENESS_S", ""),
        ("signals.sigmf", "_LONGEST_METADATA", ""),
        ("cli.data_commands", "_LONGEST_RECORDING_S", ""),
    ],
    "Detectors": [
        ("detect.detector_learner", "MAX_FEATURES", ""),
        ("detect.thresholds", "SIGNIFICANCE", ""),
        ("detect.detector", "FORMAT", ""),
    ],
    "The page of a run": [
        ("cli.run_commands", "_MOST_RUNS", "runs side by side"),
        ("dashboard.page_server", "_COMMAND_BYTES", "of a command from the page"),
        ("runs.run_report", "_N_ROWS", ""),
    ],
}


def limits() -> str:
    """Return the tables of limits."""
    parts = ["## Failure detector", cell(_about(Timing)), _timing()]
    for heading, constants in CONSTANTS.items():
        rows = [_constant(*one) for one in constants]
        parts += [f"## {heading}", table(["limit", "value", "what, and why"], rows)]
    return "\n\n".join(parts)


def _timing() -> str:
    said = fields_of(Timing)
    presets = [Timing.preset(name) for name in PRESETS]
    rows = [
        [f"`{field}`", *(number(getattr(preset, field), field) for preset in presets), cell(said[field])]
        for field in Timing.__struct_fields__
    ]
    return table(["setting", *(f"`{name}`" for name in PRESETS), "what, and why"], rows)


def _constant(module: str, name: str, words: str) -> list[str]:
    said = words or comments_of(module)[name]
    if not said:
        raise ValueError(f"tolfl.{module}.{name} has no comment, and the page no words for it")
    return [
        f"`{name.strip('_').lower()}`<br>{module}",
        number(getattr(import_module(f"tolfl.{module}"), name), name),
        cell(said),
    ]


def settings() -> str:
    """Return the tables of the specification: its own fields, then a section for each of its parts."""
    return "\n\n".join(_struct(RunSpec, ""))


def device() -> str:
    """Return the table of what stands in a device's file, but for `[watch]`."""
    return _keys(NodeConfig)


def watch() -> str:
    """Return the table of what stands in `[watch]` of a device's file."""
    return _keys(WatchConfig)


def _keys(kind: type[msgspec.Struct]) -> str:
    comments = fields_of(kind)
    rows = [
        [f"`{field.name}`", _value(field), cell(comments[field.name])]
        for field in msgspec.structs.fields(kind)
        if field.name != "watch"
    ]
    return table(["key", "default", "what"], rows)


def _value(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "(needed)"
    return "" if field.default is msgspec.NODEFAULT else _default(field.default, field.name)


def _struct(kind: type[msgspec.Struct], path: str) -> list[str]:
    comments, hints = fields_of(kind), get_type_hints(kind, include_extras=True)
    rows, below = [], []
    for field in msgspec.structs.fields(kind):
        name = f"{path}{field.name}"
        if isinstance(field.default, msgspec.Struct):
            below += [f"## [{name}]", cell(_about(type(field.default))), *_struct(type(field.default), f"{name}.")]
        else:
            hint = hints[field.name]
            what = comments[field.name] or title(hint)
            rows.append([f"`{name}`", _default(field.default, field.name), _allowed(hint), cell(what)])
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
