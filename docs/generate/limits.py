"""The page of limits, and the page of settings: values and trade-offs as the code has them."""

from __future__ import annotations

import re
from typing import Any, get_type_hints

import msgspec

from docs.generate.comments import evaluated, said_in_class, said_in_module
from docs.generate.words import cell, number, table
from tolfl.core.spec import RunSpec, Timing, allowed, title

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
        ("net.wire", "_MAX_NUMBER", ""),
        ("net.wire", "_MAX_INTEGER", ""),
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
        ("signals.captures.pcap_reading", "_LONGEST_BYTES", ""),
        ("signals.captures.pcapng_reading", "_LONGEST_BLOCK_BYTES", "longest block of a pcapng file"),
        ("signals.captures.windows", "LATENESS_S", ""),
        ("signals.recordings.reading", "_LONGEST_METADATA", ""),
        ("cli.data", "_LONGEST_RECORDING_S", ""),
    ],
    "Detectors": [
        ("detect.detector_learner", "MAX_FEATURES", ""),
        ("detect.drift", "SIGNIFICANCE", ""),
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
