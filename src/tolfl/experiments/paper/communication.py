"""What a round costs: messages and bytes, counted from the ledger of simulated rounds, beside the paper's table.

The paper prints 28.3, 12.8 and 21.0 MB per epoch for FL, SBT and Tol-FL, and neither N nor k nor what was counted. So
every way of counting is shown, and how well each fits these three numbers.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tolfl.core.plot_style import BLUE, GREEN, SKY, VERMILION, bare, new_figure
from tolfl.core.records import RoundClosed, RunStarted
from tolfl.core.spec import BlobsSpec, IFCASpec, RunSpec
from tolfl.experiments.experiment import Experiment, Options
from tolfl.experiments.paper.published import published
from tolfl.experiments.result_rows import SCHEME_NAMES, Row, scheme_label
from tolfl.experiments.results import ExperimentReport, Table, Verdict
from tolfl.experiments.sweep import Job, Repetition

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LAYOUTS = (("fl", 1), ("sbt", 10), ("tol-fl", 3), ("tol-fl", 5), ("fedgroup", 5), ("ifca", 5), ("fesem", 5))

#: Bytes depend on the model alone, and messages on the layout: a few samples of as many features as Comms-ML has do.
_SPEC = RunSpec(
    data="blobs",
    devices=10,
    rounds=5,
    blobs=BlobsSpec(samples_per_device=4, n_features=112, n_test=4, n_validation=0),
    ifca=IFCASpec(warm_rounds=1, trial_rounds=2),  # so that its usual round is among the five
)

ACCOUNTINGS = {
    "unicast": "every message by itself",
    "broadcast": "the new model goes out once, for everybody",
    "per_cluster": "the new model goes out once per cluster",
    "hops": "members up and down; heads only hop",
    "paper": "FL's server outside the fleet, SBT without distribution, Tol-FL with one broadcast among heads",
}
_COLOURS = {"FL": VERMILION, "SBT": GREEN, "Tol-FL (k = 3)": SKY, "Tol-FL (k = 5)": BLUE}
_HATCHES = {"FL": "", "SBT": "//", "Tol-FL (k = 3)": "..", "Tol-FL (k = 5)": ""}


def jobs(options: Options, rows: Sequence[Row] = ()) -> list[Job]:  # noqa: ARG001
    """Return a few rounds of every layout; `quick` changes nothing, for they take seconds."""
    specs = [msgspec.structs.replace(_SPEC, scheme=scheme, clusters=k) for scheme, k in _LAYOUTS]
    return [Job(f"{spec.scheme}, k = {spec.clusters}", spec, {"k": spec.clusters}) for spec in specs]


def cost_rows(job: Job, repetitions: Sequence[Repetition]) -> list[dict[str, Any]]:
    """Return what a run's rounds cost; messages and bytes are means over its rounds."""
    found = []
    for one in repetitions:
        closed = [record for record in one.records if isinstance(record, RoundClosed)]
        model_bytes = next(record.model_bytes for record in one.records if isinstance(record, RunStarted))
        summary = one.summary or {}
        found.append(
            {
                "scheme": one.spec.scheme,
                "n_devices": one.spec.devices,
                **job.tags,
                "job": one.key,
                "rounds": len(closed),
                "model_bytes": model_bytes,
                "n_params": model_bytes // 4,  # float32
                "messages": {name: summary["messages"][name] / len(closed) for name in ACCOUNTINGS},
                "bytes": summary["bytes"] / len(closed),
                "models_in_first_round": closed[0].bytes / model_bytes,
                "models_in_last_round": closed[-1].bytes / model_bytes,
                "control_bytes": summary["control_bytes"] / len(closed),
            }
        )
    return found


def report(rows: Sequence[Row]) -> ExperimentReport:
    """Return the report of rows."""
    averaging = [row for row in rows if row["scheme"] in ("fl", "sbt", "tol-fl")]
    tables = [_messages(averaging), _megabytes(averaging), _fits(averaging), _rivals(rows)]
    return ExperimentReport(
        "communication",
        "Communication: messages and bytes per round",
        rows,
        tables,
        _verdicts(averaging),
        {"communication": lambda: _plot(averaging)},
    )


def _messages(rows: Sequence[Row]) -> Table:
    shown = []
    for row in rows:
        counts = [f"{row['messages'][name]:g}" for name in ACCOUNTINGS]
        shown.append((scheme_label(row), *counts, _orders(row)))
    names = tuple(name.replace("_", " ") for name in ACCOUNTINGS)
    notes = tuple(f"{name.replace('_', ' ')}: {what}." for name, what in ACCOUNTINGS.items())
    k_of_n = "The paper's order, O(N + k) for Tol-FL, is not what its special cases have: 2N at k = 1 and N at k = N."
    title = f"Messages per round, counted, N = {rows[0]['n_devices']}"
    return Table(title, ("scheme", *names, "paper's order"), tuple(shown), (*notes, k_of_n))


def _orders(row: Row) -> str:
    n_devices, k = row["n_devices"], row["k"]
    orders = {"fl": ("2N", 2 * n_devices), "sbt": ("N", n_devices), "tol-fl": ("N + k", n_devices + k)}
    text, value = orders[row["scheme"]]
    return f"{text} = {value}"


def _megabytes(rows: Sequence[Row]) -> Table:
    paper = paper_mb()
    shown = []
    for row in rows:
        mb = row["model_bytes"] / 1e6
        own = [f"{row['messages'][name] * mb:.2f}" for name in ACCOUNTINGS]
        shown.append((scheme_label(row), *own, f"{paper[row['scheme']]:.1f}"))
    one = rows[0]
    model = f"One model: {one['n_params']:,} parameters, {one['model_bytes']:,} bytes in float32."
    small = f"Acknowledgements and other small messages add {one['control_bytes']:,.0f} bytes per round."
    title = f"Megabytes per round, N = {one['n_devices']}"
    columns = ("scheme", *(name.replace("_", " ") for name in ACCOUNTINGS), "the paper's MB")
    return Table(title, columns, tuple(shown), (model, small))


def _fits(rows: Sequence[Row]) -> Table:
    fits = {(name, k): fit for k in (5, 3) for name in ACCOUNTINGS if (fit := fit_of(rows, name, k)) is not None}
    shown = []
    for (name, k), (counts, mb, worst) in fits.items():
        ratio = " : ".join(f"{count:g}" for count in counts)
        shown.append((name.replace("_", " "), str(k), ratio, f"{mb:.3f}", f"{100 * worst:.1f} %"))
    columns = ("accounting", "k", "FL : SBT : Tol-FL", "MB per message", "worst error")
    notes = (_what_fits(fits, rows[0]["n_params"]),) if fits else ()
    return Table("Which accounting fits 28.3 : 12.8 : 21.0 MB", columns, tuple(shown), notes)


def fit_of(rows: Sequence[Row], accounting: str, k: int) -> tuple[list[float], float, float] | None:
    """Return the counts of FL, SBT and Tol-FL, the size of a message that fits best, and its largest relative error."""
    found = _by_scheme(rows, k)
    if found is None:
        return None
    paper = paper_mb()
    counts = {scheme: float(row["messages"][accounting]) for scheme, row in found.items()}
    mb = statistics.fmean(paper[scheme] / count for scheme, count in counts.items())
    worst = max(abs(mb * count / paper[scheme] - 1) for scheme, count in counts.items())
    return list(counts.values()), mb, worst


def _what_fits(fits: Mapping[tuple[str, int], tuple[list[float], float, float]], n_params: int) -> str:
    (name, k), (_, mb, worst) = min(fits.items(), key=lambda item: item[1][2])
    return (
        f"The paper's megabytes fit the accounting '{name}' with k = {k} to {100 * worst:.1f} %. A message would then "
        f"have {mb:.2f} MB, {1e6 * mb / n_params:.0f} bytes for each of our model's parameters where float32 has 4: "
        "another model, or numbers sent as text. The paper does not say. 'paper' was put together so that the ratio "
        "comes out: it is a reading of the table, and the megabytes themselves cannot be compared."
    )


def _rivals(rows: Sequence[Row]) -> Table:
    shown = tuple(
        (
            scheme_label(row),
            f"{row['messages']['unicast']:g}",
            f"{row['models_in_first_round']:g}",
            f"{row['models_in_last_round']:g}",
            f"{row['models_in_last_round'] * row['model_bytes'] / 1e6:.2f}",
        )
        for row in rows
    )
    restarts, rounds = RunSpec().ifca.restarts, RunSpec().ifca.trial_rounds
    note = (
        f"A message may carry several models: IFCA sends all of them to every device, and while it compares {restarts} "
        f"restarts (by default {rounds} rounds) all models of each. FedGroup's and FeSEM's devices get one."
    )
    columns = ("scheme", "messages", "models, first round", "models, usual round", "MB, usual round")
    return Table("Models moved per round, each message by itself", columns, shown, (note,))


def _verdicts(rows: Sequence[Row]) -> list[Verdict]:
    unicast = {scheme_label(row): row["messages"]["unicast"] for row in rows}
    same = len(set(unicast.values())) == 1
    evidence = ", ".join(f"{label} {count:g}" for label, count in unicast.items())
    independent = Verdict("The unicast count is independent of k", same, f"{evidence} messages per round")
    found = _by_scheme(rows, 5)
    if found is None:
        return [independent]
    counts = {name: {scheme: row["messages"][name] for scheme, row in found.items()} for name in ACCOUNTINGS}
    paper = counts["paper"]
    ratio = " : ".join(f"{paper[scheme]:g}" for scheme in ("fl", "sbt", "tol-fl"))
    less = [name for name in ACCOUNTINGS if counts[name]["tol-fl"] < counts[name]["fl"]]
    every = "; ".join(f"{name.replace('_', ' ')} {c['tol-fl']:g} against {c['fl']:g}" for name, c in counts.items())
    return [
        Verdict(
            "20 : 9 : 15 under the paper's accounting (N = 10, k = 5)", ratio == "20 : 9 : 15", f"{ratio}, counted"
        ),
        Verdict("Tol-FL sends less than FL, as the paper counts", "paper" in less, _against(paper, "fl")),
        Verdict("Tol-FL sends less than FL, however one counts", len(less) == len(ACCOUNTINGS), every),
        Verdict(
            "Tol-FL sends less than every other method, as the paper counts",
            paper["tol-fl"] < min(paper["fl"], paper["sbt"]),
            _against(paper, "sbt"),
        ),
        independent,
    ]


def _against(counts: Mapping[str, float], other: str) -> str:
    return f"{counts['tol-fl']:g} messages against {SCHEME_NAMES[other]}'s {counts[other]:g}"


def _by_scheme(rows: Sequence[Row], k: int) -> dict[str, Row] | None:
    """Return the rows of FL, SBT and Tol-FL with k clusters; None where one is missing."""
    found = {row["scheme"]: row for row in rows if row["scheme"] != "tol-fl" or row["k"] == k}
    return {name: found[name] for name in ("fl", "sbt", "tol-fl")} if len(found) == 3 else None


def paper_mb() -> dict[str, float]:
    """Return the megabytes per epoch that the paper prints."""
    return {str(scheme): float(mb) for scheme, mb in published()["communication_mb_per_epoch"].items()}


def _plot(rows: Sequence[Row]) -> Figure:
    """Return bars of messages per round by accounting; the paper's megabytes, scaled to messages, as marks."""
    figure = new_figure(7, 3.2)
    axes = figure.subplots()
    width = 0.8 / len(rows)
    fit = fit_of(rows, "paper", 5)
    for number, row in enumerate(rows):
        label = scheme_label(row)
        places = [place + (number - (len(rows) - 1) / 2) * width for place in range(len(ACCOUNTINGS))]
        counts = [row["messages"][name] for name in ACCOUNTINGS]
        colour, hatch = _COLOURS.get(label, SKY), _HATCHES.get(label, "")
        bars = axes.bar(places, counts, 0.92 * width, color=colour, label=label, hatch=hatch, edgecolor="white")
        axes.bar_label(bars, fmt="%g", fontsize=7, padding=4)
        if fit is not None and row["k"] != 3:
            messages = paper_mb()[row["scheme"]] / fit[1]
            mark = f"the paper's MB / {fit[1]:.2f}" if row["scheme"] == "fl" else None
            axes.plot(places[-1], messages, "D", color="white", markeredgecolor="black", markersize=5, label=mark)
    axes.set_xticks(range(len(ACCOUNTINGS)), [name.replace("_", " ") for name in ACCOUNTINGS])
    axes.set_ylabel(f"messages per round, N = {rows[0]['n_devices']}", fontsize=9)
    axes.set_yticks(range(0, 2 * rows[0]["n_devices"] + 1, 5))
    axes.margins(y=0.12)
    bare(axes)
    marks, names = axes.get_legend_handles_labels()
    order = sorted(range(len(names)), key=lambda place: names[place].startswith("the paper"))
    marks, names = [marks[place] for place in order], [names[place] for place in order]
    figure.legend(marks, names, loc="outside upper center", ncols=5, frameon=False, fontsize=8, columnspacing=1.2)
    return figure


EXPERIMENT = Experiment(
    "communication",
    "messages and bytes per round under every accounting",
    ("blobs",),
    jobs,
    cost_rows,
    report,
)
