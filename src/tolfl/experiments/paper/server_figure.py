"""The loss over rounds when the server is lost: devices that train alone, against devices that train together.

The paper's figure shows FL, whose devices train in isolation from then on, and SBT, which loses one device. Tol-FL with
both of its policies and FL that stops are drawn beside them. Loss: the mean of J over all typical training samples of
all devices, the lost one's included, dropout off; for isolated devices the mean over the survivors' models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.core.plot_style import BLUE, GREEN, ORANGE, PURPLE, VERMILION, bare, new_figure
from tolfl.core.records import Evaluated
from tolfl.core.spec import CommsMLSettings, DatasetSpec, RunSpec
from tolfl.experiments.experiment import Experiment, Options
from tolfl.experiments.result_rows import Row, distinct_values, mean_sd, rows_where
from tolfl.experiments.results import ExperimentReport, Table, Verdict
from tolfl.experiments.sweep import Job, Repetition

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: 1,000 pictures keep it to minutes. The paper says "MNIST" in its text and Fashion-MNIST in its tables: both.
_FEW = DatasetSpec(max_train=1000, max_test=1000)
_SPECS = {
    "comms-ml": RunSpec(data="comms-ml", clusters=3, rounds=100, repetitions=5),  # one cluster per typical region
    "fashion-mnist": RunSpec(data="fashion-mnist", rounds=100, repetitions=5, dataset=_FEW),
    "mnist": RunSpec(data="mnist", rounds=100, repetitions=5, dataset=_FEW),
}

_QUICK: dict[str, Any] = {
    **{"rounds": 20, "repetitions": 2, "comms_ml": CommsMLSettings(windows_per_region=100)},
    "dataset": DatasetSpec(max_train=300, max_test=300),
}
#: Scheme and what follows the server's loss: name, colour and line; the paper's own curves first, and not dashed.
CURVES = {
    ("fl", "isolate"): ("FL, each device alone", VERMILION, "-"),
    ("sbt", "elect"): ("SBT", GREEN, "-"),
    ("tol-fl", "elect"): ("Tol-FL, elect", BLUE, "--"),
    ("tol-fl", "drop"): ("Tol-FL, drop", PURPLE, "-."),
    ("fl", "freeze"): ("FL, training stops", ORANGE, ":"),
}


def jobs(options: Options, rows: Sequence[Row] = ()) -> list[Job]:  # noqa: ARG001
    """Return every curve of every data set; rounds before the failure are trained once."""
    found = []
    for name in options.data:
        spec = msgspec.structs.replace(_SPECS[name], **_QUICK if options.quick else {})
        for scheme, policy in CURVES:
            # Slow to detect a failure: else the survivors drop the server's last model while it is on its way.
            fields: dict[str, Any] = {"fail": f"device:0@{spec.rounds // 2}", "timing": "wireless", "evaluate_every": 1}
            own = msgspec.structs.replace(spec, scheme=scheme, on_head_failure=policy, **fields)
            found.append(Job(f"{spec.data}, {scheme} ({policy})", own))
    return found


def curve_rows(job: Job, repetitions: Sequence[Repetition]) -> list[dict[str, Any]]:
    """Return one curve per seed."""
    found = []
    for one in repetitions:
        losses = losses_by_round([record for record in one.records if isinstance(record, Evaluated)])
        found.append(
            {
                "data": job.spec.data,
                "scheme": job.spec.scheme,
                "policy": job.spec.on_head_failure,
                "k": job.spec.clusters or min(5, job.spec.devices),
                "n_devices": job.spec.devices,
                "seed": one.spec.seed,
                "job": one.key,
                "rounds": job.spec.rounds,
                "failed_after": job.spec.rounds // 2,
                "losses": [sum(of_round.values()) / len(of_round) for of_round in losses],
                "last_losses_by_device": losses[-1],
            }
        )
    return found


def losses_by_round(evaluated: Sequence[Evaluated]) -> list[dict[str, float]]:
    """Return the loss of each model of a round by the device that closed it; one entry where all have the same model.

    >>> alone = ((0, 0, 4), (1, 1, 3), (2, 1, 2))
    >>> losses_by_round([Evaluated(time_s=0, device=d, round=r, auroc=None, loss=x) for d, r, x in alone])
    [{'0': 4}, {'1': 3, '2': 2}]
    """
    found: dict[int, dict[str, float]] = {}
    for record in evaluated:
        if record.loss is not None and record.round is not None:
            found.setdefault(record.round, {})[str(record.device)] = record.loss
    return [found[index] for index in sorted(found)]


def report(rows: Sequence[Row]) -> ExperimentReport:
    """Return the report of rows."""
    names = distinct_values(rows, "data")
    verdicts = [verdict for name in names for verdict in _verdicts(rows_where(rows, data=name))]
    title = "Server failure: the loss of those who go on alone and of those who go on together"
    return ExperimentReport(
        "server-figure", title, rows, [_table(rows)], verdicts, {"server-figure": lambda: _plot(rows)}
    )


def _curve(rows: Sequence[Row], curve: tuple[str, str]) -> list[Row]:
    """Return a curve's rows, one per seed."""
    return rows_where(rows, scheme=curve[0], policy=curve[1])


def _ends(rows: Sequence[Row]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a curve's losses at the failure and in the end, one per seed."""
    ends = np.array([(row["losses"][row["failed_after"] - 1], row["losses"][-1]) for row in rows])
    return ends[:, 0], ends[:, 1]


def _table(rows: Sequence[Row]) -> Table:
    shown = []
    for name in distinct_values(rows, "data"):
        of_data = rows_where(rows, data=name)
        _, sbt = _ends(_curve(of_data, ("sbt", "elect")))
        for curve, (label, *_) in CURVES.items():
            own = _curve(of_data, curve)
            at_failure, last = _ends(own)
            layout = f" (k = {of_data[0]['k']})" if curve[0] == "tol-fl" else ""
            shown.append((name, label + layout, mean_sd(at_failure), mean_sd(last), mean_sd(last - sbt, "+.3f")))
    first = rows[0]
    n_seeds = len({row["seed"] for row in rows})
    notes = (
        f"Loss: mean of J over all typical training samples of all {first['n_devices']} devices, the lost one's "
        f"included, dropout off; mean ± standard deviation over {n_seeds} seeds. Alone: the mean over survivors.",
        "Device 0 is lost after half of the rounds: FL's server, and the head of a cluster of Tol-FL.",
    )
    columns = ("data", "curve", "loss at the failure", "loss in the end", "end minus SBT's")
    return Table("Loss after the server is lost", columns, tuple(shown), notes)


def _verdicts(rows: Sequence[Row]) -> list[Verdict]:
    name = rows[0]["data"]
    (_, alone), (before, sbt), (_, elect), (_, drop), (_, frozen) = (_ends(_curve(rows, curve)) for curve in CURVES)
    largest = float(np.abs(elect - sbt).max())
    return [
        _below(f"{name}: together (SBT) the loss ends below that of devices alone", sbt - alone),
        _below(f"{name}: SBT goes on learning after the failure", sbt - before),
        _below(f"{name}: Tol-FL (drop, the paper's rule) ends below devices alone", drop - alone),
        _below(f"{name}: Tol-FL (drop) ends below training that stops", drop - frozen),
        Verdict(
            f"{name}: Tol-FL (elect) loses what SBT loses, one device",
            largest == 0,
            f"largest difference of the losses in the end: {largest:g}",
        ),
    ]


def _below(claim: str, differences: NDArray[np.float64]) -> Verdict:
    """Return a verdict on a claim that must hold for every seed."""
    n_below = int((differences < 0).sum())
    evidence = f"difference {mean_sd(differences, '+.3f')}; {n_below} of {len(differences)} seeds"
    return Verdict(claim, n_below == len(differences), evidence)


def _plot(rows: Sequence[Row]) -> Figure:
    """Return one panel per data set: the mean loss over seeds; the table has their spread."""
    names = distinct_values(rows, "data")
    figure = new_figure(3.5 * max(len(names), 1.4), 3.3)
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    for axes, name in zip(panels, names, strict=True):
        of_data = rows_where(rows, data=name)
        failed_after, rounds = of_data[0]["failed_after"], of_data[0]["rounds"]
        for curve, (label, colour, line) in CURVES.items():
            # A model that is not trained stays as it is.
            padded = [losses + losses[-1:] * (rounds - len(losses)) for losses in _losses(_curve(of_data, curve))]
            axes.plot(range(1, rounds + 1), np.mean(padded, axis=0), line, color=colour, label=label)
        axes.axvline(failed_after, color="0.5", linestyle=":", linewidth=1, label="server lost")
        axes.set_title(f"{name}, {len(padded)} seeds", fontsize=9)
        axes.set_xlabel("rounds done", fontsize=9)
        # The first losses may be so high that they hide the rest of the curve.
        axes.set_ylim(top=1.2 * max(max(losses[failed_after // 5 :]) for losses in _losses(of_data)))
        bare(axes)
    panels[0].set_ylabel("loss J, mean over typical samples", fontsize=9)
    marks, labels = panels[0].get_legend_handles_labels()
    figure.legend(marks, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8, columnspacing=1.2)
    return figure


def _losses(rows: Sequence[Row]) -> list[list[float]]:
    return [row["losses"] for row in rows]


EXPERIMENT = Experiment(
    "server-figure", "loss over rounds after a server failure", tuple(_SPECS), jobs, curve_rows, report
)
