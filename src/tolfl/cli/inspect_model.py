"""`tolfl inspect`: what is in a saved detector, and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from tolfl.cli import options
from tolfl.cli.options import Format

if TYPE_CHECKING:
    from rich.table import Table

    from tolfl.detect import Detector

Model = Annotated[Path, typer.Argument(help="A saved detector (tolfl fit).")]


def inspect(model: Model, format: options.HowShown = Format.TABLE) -> None:
    """Show what a saved detector is: features, model and why, thresholds, devices, failures on the way.

    Example: tolfl inspect model

    Example: tolfl inspect model --format json
    """
    from tolfl.detect import Detector

    found = {"file": str(model), **description_of(Detector.load(model))}
    if format is Format.JSON:
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return
    show_description(found, is_complete=True)


def description_of(detector: Detector) -> dict[str, Any]:
    """Return what a detector says of itself, as plain values."""
    thresholds: dict[str, Any] = msgspec.to_builtins(detector.thresholds)
    for name in ("levels", "n_at_least", "n_higher"):  # hundreds of numbers that p-values are read from
        del thresholds[name]
    return {
        "name": detector.choice.name,
        "model": detector.choice.model,
        "code": detector.choice.code,
        "n_models": len(detector.networks),
        "n_parameters": sum(
            layer.weight.size + layer.bias.size for layer in next(iter(detector.networks.values())).layers
        ),
        "choice": msgspec.to_builtins(detector.choice),
        "features": [
            {"name": name, "unit": unit}
            for name, unit in zip(detector.features.names, detector.features.units, strict=True)
        ],
        "thresholds": thresholds,
        "trainings": msgspec.to_builtins(detector.trainings),
        "spec": msgspec.to_builtins(detector.spec),
    }


def show_description(found: Mapping[str, Any], is_complete: bool = False) -> None:
    """Print a description as people read it."""
    from tolfl.cli.tables import console_for_tables

    console = console_for_tables()
    last = found["trainings"][-1]
    several = f", {found['n_models']} models" if found["n_models"] > 1 else ""
    trained = (
        f"{last['n_samples']} rows of {len(last['devices'])} device(s), {last['rounds']} round(s) of {last['scheme']}"
    )
    console.print(f"{found['name']}{several}: {len(found['features'])} features; {trained}", soft_wrap=True)
    console.print(f"why: {found['choice']['reason']}", soft_wrap=True)
    if is_complete:
        names = [one["name"] + (f" [{one['unit']}]" if one["unit"] else "") for one in found["features"]]
        more = f", ... ({len(names) - 20} more)" if len(names) > 20 else ""
        console.print(f"features: {', '.join(names[:20])}{more}", soft_wrap=True)
    for number, training in enumerate(found["trainings"]):
        for event in training["events"]:
            of_training = f"training {number}, " if len(found["trainings"]) > 1 else ""
            console.print(f"  {of_training}round {event['round']}: {event['device'] or ''} {event['what']}".rstrip())
        for note in training["notes"]:
            console.print(f"  {note}", soft_wrap=True)
    console.print(_devices(found))
    console.print(_promise(found["thresholds"]), soft_wrap=True)
    if is_complete and len(found["trainings"]) > 1:
        console.print(f"trained {len(found['trainings'])} times, each time on from the last")


def _devices(found: Mapping[str, Any]) -> Table:
    from rich.table import Table

    table = Table("device", "rows trained", "held back", "rounds", "threshold", "", box=None, padding=(0, 2, 0, 0))
    own = found["thresholds"]["per_device"]
    devices = found["trainings"][-1]["devices"]
    for device in devices[:20]:
        threshold = own.get(device["name"])
        note = "" if device["is_survivor"] else "lost on the way"
        if threshold is not None and not threshold["is_own"]:
            note = "the fleet's threshold: too few held-back rows for one of its own"
        shown = "-" if threshold is None else f"{threshold['threshold']:.4g}"
        numbers = (str(device[key]) for key in ("n_trained", "n_held_back", "rounds"))
        table.add_row(device["name"], *numbers, shown, note)
    if len(devices) > 20:
        table.add_row(f"... {len(devices) - 20} more", "", "", "", "", "")
    return table


def _promise(thresholds: Mapping[str, Any]) -> str:
    promise = (
        f"threshold {thresholds['threshold']:.4g}, agreed on {thresholds['n_scores']} {thresholds['calibrated_on']}"
    )
    budget = f"{thresholds['budget']:.3g}"
    if thresholds["calibrated_on"] == "all samples":
        return f"{promise}: {budget} of the training rows are above it"
    if thresholds["is_guaranteed"]:
        return f"{promise}: at most {budget} of typical rows raise an alarm"
    return f"{promise}; too few, or not drawn at random: {budget} false alarms are hoped for, not promised"
