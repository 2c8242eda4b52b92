"""`tolfl inspect`: what is in a saved detector, and where it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from tolfl.cli import flags
from tolfl.cli.output import show, table_of

if TYPE_CHECKING:
    from tolfl.cli.output import Line
    from tolfl.detect import Detector, Limit

Model = Annotated[Path, typer.Argument(help="A saved detector (tolfl fit).")]


def inspect(model: Model, format: flags.HowShown = "table") -> None:
    """Show what a saved detector is: features, model and why, thresholds, devices, failures on the way.

    Example: tolfl inspect model

    Example: tolfl inspect model --format json
    """
    from tolfl.detect import Detector

    found = {"file": str(model), **description_of(Detector.load(model))}
    show(found, format, lines_of_description(found, is_complete=True))


def description_of(detector: Detector) -> dict[str, Any]:
    """Return what a detector says of itself, as plain values."""
    thresholds: dict[str, Any] = msgspec.to_builtins(detector.thresholds)
    own = [one["own"] for one in thresholds["devices"].values() if one["own"] is not None]
    for limit, found in zip([thresholds["fleet"], *own], _limits(detector), strict=True):
        for name in ("levels", "n_at_least"):  # hundreds of numbers that p-values are read from
            del limit[name]
        limit |= {"expected_rate": found.expected_rate, "promise": found.promise}
    arrays = detector.model.arrays()
    return {
        "name": detector.model.name,
        "model": detector.spec.model,
        "n_numbers": sum(array.size for array in arrays.values()),
        "own_cells": {name: len(cells) for name, cells in detector.own_cells.items()},
        "features": [
            {"name": name, "unit": unit}
            for name, unit in zip(detector.features.names, detector.features.units, strict=True)
        ],
        "thresholds": thresholds,
        "trainings": msgspec.to_builtins(detector.trainings),
        "spec": msgspec.to_builtins(detector.spec),
    }


def _limits(detector: Detector) -> list[Limit]:
    return [detector.thresholds.fleet, *(one.own for one in detector.thresholds.devices.values() if one.own)]


def lines_of_description(found: Mapping[str, Any], is_complete: bool = False) -> Iterator[Line]:
    """Yield a description as people read it."""
    last = found["trainings"][-1]
    n_devices = sum(device["rounds"] > 0 for device in last["devices"])
    trained = f"{last['n_samples']} rows of {n_devices} device(s), {last['rounds']} round(s) of {last['scheme']}"
    yield f"{found['name']}: {len(found['features'])} features; {trained}"
    if is_complete:
        names = [one["name"] + (f" [{one['unit']}]" if one["unit"] else "") for one in found["features"]]
        rest = f", ... ({len(names) - 20} more)" if len(names) > 20 else ""
        yield f"features: {', '.join(names[:20])}{rest}"
    for number, training in enumerate(found["trainings"]):
        of_training = f"training {number}, " if len(found["trainings"]) > 1 else ""
        for event in training["events"]:
            yield f"  {of_training}round {event['round']}: {event['device'] or ''} {event['what']}".rstrip()
        yield from (f"  {note}" for note in training["notes"])
    more = len(last["devices"]) - 20
    rows = [_device_row(found, device) for device in last["devices"][:20]] + [[f"... {more} more"]] * (more > 0)
    yield table_of(["device", "rows trained", "held back", "rounds", "threshold", ""], rows)
    yield _promise(found["thresholds"])
    if is_complete and len(found["trainings"]) > 1:
        yield f"trained {len(found['trainings'])} times, each time on from the last"


def _device_row(found: Mapping[str, Any], device: Mapping[str, Any]) -> list[str]:
    name, limit, shown = device["name"], found["thresholds"]["devices"].get(device["name"]), "-"
    note = "" if device["is_survivor"] else "lost on the way"
    if limit is not None:
        shown = f"{(limit['own'] or found['thresholds']['fleet'])['value']:.4g}"
        note = limit["own"]["promise"] if limit["own"] else "the fleet's: too few held-back rows for its own"
    if name in found["own_cells"]:
        note = f"{note + '; ' if note else ''}{found['own_cells'][name]} cells of its own"
    return [name, *(str(device[key]) for key in ("n_trained", "n_held_back", "rounds")), shown, note]


def _promise(thresholds: Mapping[str, Any]) -> str:
    fleet = thresholds["fleet"]
    found = f"threshold {fleet['value']:.4g}, from {fleet['n_scores']} {thresholds['calibrated_on']}"
    if thresholds["calibrated_on"] == "all rows":
        return f"{found}: {fleet['budget']:.3g} of the training rows are above it"
    odd = ", ".join(f"{name}: {one['n_odd']}" for name, one in thresholds["devices"].items() if one["n_odd"])
    return f"{found}: {fleet['promise']}" + (f" (odd rows by device: {odd})" if odd else "")
