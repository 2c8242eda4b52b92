"""Tables that people can read, and the same results as JSON."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from tolfl.sim.run import Result

Summary = Mapping[str, Any]


def show_results(results: Sequence[Result], shown: str, out: Path) -> None:
    """Print the result of one run, or of its repetitions."""
    summaries = [result.summary for result in results]
    if len(summaries) == 1:
        show_summary(summaries[0], shown, out)
        return
    together = _together(summaries)
    (out / "summary.json").write_bytes(msgspec.json.format(msgspec.json.encode(together), indent=2) + b"\n")
    if shown == "json":
        _print_json(together)
        return
    console = console_for_tables()
    console.print(_heading(summaries[0]) + f", {len(summaries)} repetitions")
    table = Table("seed", "AUROC", "average precision", "devices left", "training loss", "stall", box=None)
    for summary in summaries:
        left = str(len(summary["survivors"]))  # type: ignore[arg-type]
        cells = (summary["auroc"], summary["average_precision"])
        table.add_row(
            str(summary["seed"]),
            *map(number, cells),
            left,
            number(summary["train_loss"]),
            f"{summary['stall_s']:.2f} s",
        )
    mean, spread = together["auroc"], together["auroc_std"]
    table.add_row("mean ± std", f"{number(mean)} ± {number(spread)}", end_section=True)
    for name, value in together["baselines"].items():
        table.add_row(f"{name} (plain)", number(value))
    console.print(table)
    console.print(f"run directory: {out}")


def show_summary(summary: Summary, shown: str, out: Path) -> None:
    """Print one run."""
    if shown == "json":
        _print_json(summary)
        return
    console = console_for_tables()
    console.print(_heading(summary))
    for failure in summary.get("failures", []):
        who = "" if failure["device"] is None else f"device {failure['device']} "
        console.print(f"  round {failure['round']}: {who}{failure['what']}")
    console.print(_models_table(summary))
    for line in _facts(summary):
        console.print(line)
    console.print(f"run directory: {out}")


def console_for_tables() -> Console:
    """Return a console on standard output; wide where it is no terminal, so that pipes get whole lines."""
    return Console(width=None if sys.stdout.isatty() else 120, highlight=False, emoji=False, markup=False)


def number(value: object, digits: int = 3) -> str:
    """Return a number for a cell; a dash where there is none."""
    return f"{value:.{digits}f}" if isinstance(value, int | float) else "-"


def _heading(summary: Summary) -> str:
    clusters = f" in {summary['n_clusters']} clusters" if summary["n_clusters"] > 1 else ""
    policy = f" ({summary['on_head_failure']})" if summary.get("fail") else ""
    return (
        f"{summary['scheme']}{policy} on {summary['data']}: {summary['n_devices']} devices{clusters}, "
        f"{summary['rounds']} rounds, seed {summary['seed']}"
    )


def _models_table(summary: Summary) -> Table:
    table = Table("model", "AUROC", box=None)
    per_model = summary["auroc_per_model"]
    if len(per_model) > 1:
        table.add_row("mean over devices", number(summary["auroc"]))
        table.add_row("all together (per-sample minimum)", number(summary["auroc_all_models"]))
    for name, value in per_model.items():
        label = {"global": "the fleet's model"}.get(name, name)
        table.add_row(f"  {label}" if len(per_model) > 1 else label, number(value))
    if not per_model:
        table.add_row("no model is left" if not summary["survivors"] else "no test set", "-")
    for name, value in summary["baselines"].items():
        table.add_row(f"{name} (plain, all data in one place)", number(value))
    return table


def _facts(summary: Summary) -> list[str]:
    if not summary["rounds"]:
        return []
    rounds = max(1, summary["rounds_done"])
    messages, left = summary["messages"], len(summary["survivors"])
    lost = f"; {summary['rounds_lost']} rounds of a lighter branch lost" if summary["rounds_lost"] else ""
    done = f"{left} of {summary['n_devices']} devices left; {summary['rounds_done']} rounds"
    return [
        f"{done}; ended: {summary['ended']}{lost}",
        f"training loss {number(summary['train_loss'], 4)}; stalled {summary['stall_s']:.2f} s by failures",
        f"{messages['unicast'] / rounds:.1f} models sent per round, {summary['bytes'] / 1e6:.1f} MB in all; "
        f"{summary['virtual_s']:.1f} s of virtual time, {summary['seconds_per_round']:.3f} s per round to compute",
    ]


def _together(summaries: Sequence[Summary]) -> dict[str, Any]:
    """Return the summary of repetitions: means, spread (ddof 1), and each run."""
    first = dict(summaries[0])
    aurocs = [summary["auroc"] for summary in summaries if summary["auroc"] is not None]
    losses = [summary["train_loss"] for summary in summaries if summary["train_loss"] is not None]
    names = list(first["baselines"])
    first |= {
        "auroc": statistics.fmean(aurocs) if aurocs else None,
        "auroc_std": statistics.stdev(aurocs) if len(aurocs) > 1 else None,
        "train_loss": statistics.fmean(losses) if losses else None,
        "baselines": {name: statistics.fmean(s["baselines"][name] for s in summaries) for name in names},
        "repetitions": [dict(summary) for summary in summaries],
    }
    return first


def _print_json(value: object) -> None:
    typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
