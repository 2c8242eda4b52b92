"""What commands print: JSON, tables, and the result of one run."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from tolfl.core.records import round_name

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tolfl.experiments.comparison import Comparison
    from tolfl.experiments.results import ExperimentReport

Summary = Mapping[str, Any]


def indented_json(value: object) -> bytes:
    """Return a value as JSON that people can read."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def show_json(value: object) -> None:
    """Print a value as indented JSON."""
    typer.echo(indented_json(value).decode(), nl=False)


def console_for_tables() -> Console:
    """Return a console on standard output; wide where it is no terminal, so that pipes get whole lines."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 120, highlight=False, emoji=False, markup=False)


def new_table(*columns: str, title: str | None = None) -> Table:
    """Return an empty table in the style of all commands."""
    from rich.table import Table

    return Table(*columns, title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))


def number(value: object, digits: int = 3) -> str:
    """Return a number for a cell; a dash where there is none."""
    return f"{value:.{digits}f}" if isinstance(value, int | float) else "-"


def age(seconds: float) -> str:
    """Return how old something is, in the unit that fits.

    >>> [age(4.2), age(240.0), age(7300.0), age(400_000.0)]
    ['4 s', '4 min', '2 h', '4 d']
    """
    for unit, size, most in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < most:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds // 86_400:.0f} d"


# -- one run ----------------------------------------------------------------------------------------------------


def show_run(summary: Summary, shown: str, out: Path) -> None:
    """Print the result of one run, or of its repetitions."""
    from tolfl.runs.run_report import model_scores, run_facts

    if shown == "json":
        show_json(summary)
        return
    console = console_for_tables()
    console.print(_heading(summary))
    if summary.get("repetitions"):
        console.print(_repetitions_table(summary))
    else:
        for line in _incidents(out) if summary["failures"] else []:
            console.print(line)
        table = new_table("model", "AUROC")
        for name, value in model_scores(summary):
            table.add_row(name, number(value))
        if table.rows:
            console.print(table)
        for name, text in run_facts(summary):
            console.print(f"{name}: {text}")
    console.print(f"run directory: {out}")


def _incidents(out: Path) -> list[str]:
    """Say what failed, and who took over."""
    from tolfl.runs.failure_history import FailureHistory, what_failed, who_took_over
    from tolfl.runs.run_reader import read_records

    history = FailureHistory.of(read_records(out))
    return [
        f"  round {round_name(history.stages, one.round)}: {what_failed(one)}"
        + (f"; took over: {who_took_over(one)}" if one.takeovers else "")
        for one in history.incidents
    ]


def _heading(summary: Summary) -> str:
    clusters = f" in {summary['n_clusters']} clusters" if summary["n_clusters"] > 1 else ""
    policy = f" ({summary['on_head_failure']})" if summary["fail"] and summary["on_head_failure"] else ""
    times = f", {len(summary['repetitions'])} repetitions" if summary.get("repetitions") else ""
    what = summary.get("learn", "autoencoder")
    learned = "" if what in {"autoencoder", summary["scheme"]} else f"{what.partition(':/')[0]} by "
    return (
        f"{learned}{summary['scheme']}{policy} on {summary['data']}: {summary['n_devices']} devices{clusters}, "
        f"{summary['rounds']} rounds, seed {summary['seed']}{times}"
    )


def _repetitions_table(summary: Summary) -> Table:
    from tolfl.runs.run_report import REPETITION_COLUMNS, repetition_row

    table = new_table(*REPETITION_COLUMNS)
    for one in summary["repetitions"]:
        table.add_row(*repetition_row(one))
    table.add_row("mean", number(summary["auroc"]), number(summary["average_precision"]))
    table.add_row("std", number(summary["auroc_std"]), end_section=True)
    for name, value in summary["baselines"].items():
        table.add_row(f"{name} (plain)", number(value))
    return table


# -- several runs side by side ----------------------------------------------------------------------------------


def show_comparison(comparison: Comparison, n_devices: int, out: Path) -> None:
    """Print schemes side by side, and what the columns are."""
    console = console_for_tables()
    seeds = comparison.seeds
    which = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    what = f"fail {comparison.fail}" if comparison.fail else "nobody fails"
    console.print(f"{comparison.data}: {n_devices} devices, {comparison.rounds} rounds, {which}; {what}")
    console.print(_comparison_table(comparison))
    for line in _legend(comparison):
        console.print(line)
    console.print(f"folder: {out}  (comparison.png, comparison.json, one run directory per row)")


def _comparison_table(comparison: Comparison) -> Table:
    from tolfl.experiments.comparison import SCORES

    table = new_table("", "AUROC", "best*", "chosen", "all")
    table.add_column("difference" if comparison.reference else "", no_wrap=True)
    table.add_column("devices")
    table.add_column("models")
    for row in comparison.rows:
        means = {score: row[score]["mean"] for score in SCORES if score in row}
        # One model: the four numbers are one.
        is_one = row["is_plain"] or means["auroc_best"] == means["auroc"] == means["auroc_all_models"]
        others = ["", "", ""] if is_one else [number(means[score]) for score in list(SCORES)[1:]]
        difference = row["difference_to_reference"].get("auroc")
        is_reference = row["label"] == comparison.reference
        gap = "" if difference is None or is_reference else _with_spread(difference, "+.3f")
        table.add_row(row["label"], _with_spread(row["auroc"]), *others, gap, *_in_last_round(row))
    return table


def _in_last_round(row: Mapping[str, Any]) -> list[str]:
    """Return how many devices and models were left; nothing for plain rows, and where every seed diverged."""
    counts = (row.get("devices_in_last_round"), ".3g"), (row.get("clusters_in_use"), ".2g")
    return ["" if count is None else format(count, form) for count, form in counts]


def _with_spread(over_seeds: Mapping[str, Any], form: str = ".3f") -> str:
    if over_seeds["mean"] is None:
        return "-"
    spread = "" if over_seeds["std"] is None else f" ±{over_seeds['std']:.3f}"
    return f"{over_seeds['mean']:{form}}{spread}"


def _legend(comparison: Comparison) -> list[str]:
    several = any(row.get("clusters_in_use") is not None or "isolate" in row["policy"] for row in comparison.rows)
    lines = ["AUROC: mean over devices of the model each uses" + (", ± std over seeds" * (len(comparison.seeds) > 1))]
    if several:
        lines += [
            "best*: the best single model, chosen on the test set (an oracle); "
            f"chosen: by least {comparison.chosen_by or 'loss'}; all: least score of all models, sample by sample",
        ]
    if comparison.reference:
        lines.append(f"difference: AUROC minus that of {comparison.reference}, seed by seed")
    lines.append("devices, models: how many trained in the last round; plain rows need all data in one place")
    return lines


# -- experiments ------------------------------------------------------------------------------------------------


def show_report(reports: Sequence[ExperimentReport], folder: Path) -> None:
    """Print tables and verdicts of experiments, and in one line where all of it is."""
    console = console_for_tables()
    for report in reports:
        for table in (table for table in report.tables if not table.is_detail):
            shown = new_table(*table.columns, title=table.title)
            for row in table.rows:
                shown.add_row(*row)
            console.print(shown)
            for note in table.notes:
                console.print(note, style="dim")
            console.print()
        for verdict in report.verdicts:
            console.print(f"{verdict.text:<13}  {verdict.claim}: {verdict.evidence}")
    names = ", ".join(report.name for report in reports)
    n_rows = sum(len(report.rows) for report in reports)
    console.print(f"{names}: {n_rows} rows in {folder} (JSON with specifications, Markdown, figures)", soft_wrap=True)
