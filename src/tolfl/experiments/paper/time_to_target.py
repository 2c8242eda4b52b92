"""How long training takes: rounds and virtual seconds until the loss is within 5 % of batch training's.

Batch's converged loss is the least that it reaches in the experiment's rounds, seed by seed; its batches are N times a
device's, so that a round has as many updates as a device's. FL, SBT and Tol-FL compute the same model round by round
(docs/decisions/0008), so it is trained once, and each layout only sets when its rounds are closed: in virtual seconds,
which the simulator derives from samples, bytes and links. Nothing here was measured with a clock.

How fast averaging follows batch depends on who has which samples, so both are shown: one class per group of devices,
as in the paper's text, and as many samples each, dealt out at random.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tolfl.core.plot_style import BLACK, BLUE, GREEN, SKY, VERMILION, bare, draw_band, new_figure
from tolfl.core.records import Evaluated, RoundClosed
from tolfl.core.spec import CommsMLSettings, DatasetSpec, LinkModel, RunSpec
from tolfl.experiments.experiment import Experiment, Options
from tolfl.experiments.result_rows import Row, distinct_values, mean_sd, rows_where, scheme_label
from tolfl.experiments.results import ExperimentReport, Table, Verdict
from tolfl.experiments.sweep import Job, Repetition

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LAYOUTS = (("batch", 1), ("fl", 1), ("tol-fl", 3), ("tol-fl", 5), ("sbt", 10))
_UPLINKS = ("serial", "parallel")
#: Local training per sample. At the simulator's default, a transfer takes as long as a round of training; with devices
#: ten times as slow, training dominates.
_SECONDS_PER_SAMPLE = (LinkModel().seconds_per_sample, 10 * LinkModel().seconds_per_sample)
_SPEC = RunSpec(rounds=100, repetitions=5, evaluate_every=1)
_QUICK = RunSpec(rounds=30, repetitions=2, evaluate_every=1, comms_ml=CommsMLSettings(windows_per_region=100))
#: As many samples as the devices of one region each have: four, three and three devices share a region's samples.
_DEALT_OUT = DatasetSpec(partition="iid", sizes=(540.0,) * 4 + (720.0,) * 6)
WITHIN = 1.05  #: the paper's 5 %
BATCH = "batch"
_STYLES = {
    "batch": (BLACK, "--"),
    "FL": (VERMILION, "-"),
    "Tol-FL (k = 3)": (SKY, "-."),
    "Tol-FL (k = 5)": (BLUE, "-"),
    "SBT": (GREEN, ":"),
}


def jobs(options: Options, rows: Sequence[Row] = ()) -> list[Job]:  # noqa: ARG001
    """Return the trainings, and every layout under every condition: its rounds are the same models at other times."""
    base = _QUICK if options.quick else _SPEC
    dealt = DatasetSpec(partition="iid") if options.quick else _DEALT_OUT
    trainings = {
        BATCH: _with(base, "batch", 1),
        "averaging, one class per group": _with(base, "fl", 1),
        "averaging, dealt out at random": _with(base, "fl", 1, dataset=dealt),
    }
    found = [Job(name, spec, {"kind": "loss", "training": name}) for name, spec in trainings.items()]
    for scheme, k in _LAYOUTS:
        for uplink in _UPLINKS:
            for per_sample in _SECONDS_PER_SAMPLE:
                links = msgspec.structs.replace(base.links, uplink=uplink, seconds_per_sample=per_sample)
                own = _with(base, scheme, k, links=links)
                tags = {"kind": "time", "scheme": scheme, "k": k, "uplink": uplink, "seconds_per_sample": per_sample}
                found.append(Job(f"{scheme}, k = {k}, {uplink}, {per_sample:g} s per sample", own, tags))
    return found


def _with(spec: RunSpec, scheme: str, k: int, **fields: Any) -> RunSpec:
    return msgspec.structs.replace(spec, scheme=scheme, clusters=k, **fields)


def timing_rows(job: Job, repetitions: Sequence[Repetition]) -> list[dict[str, Any]]:
    """Return the losses of each seed; of a layout, when its rounds are closed: that is the same for all seeds."""
    if job.tags["kind"] == "time":
        closed = [record.time_s for record in repetitions[0].records if isinstance(record, RoundClosed)]
        clock = {"job": repetitions[0].key, "bandwidth_bps": job.spec.links.bandwidth_bps, "times_s": closed}
        return [{**job.tags, **clock}]
    return [
        {
            **job.tags,
            "data": (one.summary or {})["data"],
            "seed": one.spec.seed,
            "job": one.key,
            "n_devices": job.spec.devices,
            "n_samples": max(record.n_samples for record in one.records if isinstance(record, RoundClosed)),
            "losses": [record.loss for record in one.records if isinstance(record, Evaluated)],
        }
        for one in repetitions
    ]


# -- what the rows say ----------------------------------------------------------------------------------------------

_Losses = dict[str, list[list[float]]]  #: by training: of each seed, by round
_Needed = dict[str, list[int | None]]  #: by training: rounds until the target, of each seed that gets there


def _losses(rows: Sequence[Row]) -> _Losses:
    trainings = rows_where(rows, kind="loss")
    return {
        name: [row["losses"] for row in rows_where(trainings, training=name)]
        for name in distinct_values(trainings, "training")
    }


def _targets(losses: _Losses) -> list[float]:
    """Return 5 % above the least loss of batch, seed by seed."""
    return [WITHIN * min(of_seed) for of_seed in losses[BATCH]]


def _training_of(clock: Row, averaging: str) -> str:
    """Return which training's rounds a layout plays."""
    return BATCH if clock["scheme"] == BATCH else averaging


def first_within(losses: Sequence[float], target: float) -> int | None:
    """Return after how many rounds the loss is at the target or below, for the first time.

    >>> first_within([3.0, 1.0, 2.0], 1.5), first_within([3.0], 1.5)
    (2, None)
    """
    return next((number for number, loss in enumerate(losses, start=1) if loss <= target), None)


def round_s(clock: Row) -> float:
    """Return the mean time between two closed rounds (the first one needs no model to arrive)."""
    times: list[float] = clock["times_s"]
    return (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else times[0]


# -- the report -----------------------------------------------------------------------------------------------------


def report(rows: Sequence[Row]) -> ExperimentReport:
    """Return the report of rows."""
    losses, clocks = _losses(rows), rows_where(rows, kind="time")
    needed = {name: list(map(first_within, of_seeds, _targets(losses))) for name, of_seeds in losses.items()}
    averagings = [name for name in losses if name != BATCH]
    tables = [_rounds(losses, needed, rows[0]["n_samples"]), _seconds(clocks, needed, averagings)]
    verdicts = [_gets_there(losses, needed, averaging) for averaging in averagings]
    verdicts += [
        _order(rows_where(clocks, uplink=uplink, seconds_per_sample=_SECONDS_PER_SAMPLE[0])) for uplink in _UPLINKS
    ]
    data = rows[0]["data"]
    figures = {
        name: partial(_plot, clocks, losses, averaging, f"{data}, {_placing(averaging)}")
        for name, averaging in zip(("timing", "timing-at-random"), averagings, strict=True)
    }
    title = f"Timing: until the loss is within 5 % of batch's, {data}"
    return ExperimentReport("timing", title, rows, tables, verdicts, figures)


def _rounds(losses: _Losses, needed: _Needed, n_samples: int) -> Table:
    batch = losses[BATCH]
    n_rounds, lines = len(batch[0]), []
    for name, rounds in needed.items():
        n_reached = sum(number is not None for number in rounds)
        taken = mean_sd(rounds, ".1f") if n_reached else f"not reached in {n_rounds}"
        last = mean_sd([of_seed[-1] for of_seed in losses[name]])
        lines.append((name, f"{n_reached} of {len(rounds)}", taken, last))
    lately = [1 - of_seed[-1] / of_seed[-1 - n_rounds // 10] for of_seed in batch]
    notes = (
        f"Loss: mean of J over all {n_samples:,} typical training samples, dropout off; mean and standard "
        f"deviation over {len(batch)} seeds.",
        f"The target is 1.05 times the least loss of batch within {n_rounds} rounds, seed by seed; over the last "
        f"tenth of them it still fell by {100 * float(np.mean(lately)):.1f} %.",
        "FL, SBT and Tol-FL compute the same model round by round: trained once, their rounds are the same.",
    )
    columns = ("training", "seeds that get there", "rounds", f"loss after {n_rounds} rounds")
    return Table("Rounds until the loss is within 5 % of batch's", columns, tuple(lines), notes)


def _seconds(clocks: Sequence[Row], needed: _Needed, averagings: Sequence[str]) -> Table:
    lines = []
    for clock in sorted(clocks, key=lambda clock: (clock["seconds_per_sample"], _UPLINKS.index(clock["uplink"]))):
        is_batch = clock["scheme"] == BATCH
        if is_batch and clock["uplink"] != _UPLINKS[0]:
            continue  # it sends nothing: the same again
        reached = [filter(None, needed[_training_of(clock, averaging)]) for averaging in averagings]
        until = [mean_sd([clock["times_s"][number - 1] for number in numbers], ".1f") for numbers in reached]
        how = (f"{1000 * clock['seconds_per_sample']:g}", "-" if is_batch else clock["uplink"])
        lines.append((*how, scheme_label(clock), f"{round_s(clock):.3f}", *until))
    notes = (
        "The clock is virtual: these are seconds of the simulator, computed from samples, bytes and links; none of "
        f"them was measured. Links have {clocks[0]['bandwidth_bps'] / 1e6:g} Mbit/s; a round ends when its model is "
        "closed, and a device starts the next one when the model is there. serial: a receiver takes one model at a "
        "time; parallel: all at once.",
        "Times of the seeds that get there; a dash: none does.",
    )
    placed = (f"s, {_placing(averaging)}" for averaging in averagings)
    columns = ("training, ms per sample", "uplink", "scheme", "s per round", *placed)
    return Table("Virtual seconds until the loss is within 5 % of batch's", columns, tuple(lines), notes)


def _placing(averaging: str) -> str:
    """Return who has which samples."""
    return averaging.removeprefix("averaging, ")


def _gets_there(losses: _Losses, needed: _Needed, averaging: str) -> Verdict:
    rounds = needed[averaging]
    n_reached = sum(number is not None for number in rounds)
    end, batch = (float(np.mean([of_seed[-1] for of_seed in losses[name]])) for name in (averaging, BATCH))
    claim = f"FL, SBT and Tol-FL come within 5 % of batch ({_placing(averaging)})"
    seeds = f"{n_reached} of {len(rounds)} seeds within {len(losses[BATCH][0])} rounds"
    return Verdict(claim, n_reached == len(rounds), f"{seeds}; loss in the end {end:.2f}, batch {batch:.2f}")


def _order(clocks: Sequence[Row]) -> Verdict:
    """Compare the length of rounds, for their number is the same: the order does not depend on the target."""
    seconds = {scheme_label(clock): round_s(clock) for clock in clocks if clock["scheme"] != BATCH}
    between = [time for label, time in seconds.items() if label.startswith("Tol-FL")]
    is_so = all(seconds["FL"] < time < seconds["SBT"] for time in between)
    evidence = ", ".join(f"{label} {time:.3f}" for label, time in seconds.items()) + " s per round"
    return Verdict(f"FL is fastest, Tol-FL between, SBT slowest ({clocks[0]['uplink']} uplinks)", is_so, evidence)


def _plot(clocks: Sequence[Row], losses: _Losses, averaging: str, title: str) -> Figure:
    """Return the loss over virtual time, a panel for every uplink and speed of training."""
    speeds, target = distinct_values(clocks, "seconds_per_sample"), float(np.mean(_targets(losses)))
    figure = new_figure(7, 2.3 * len(speeds) + 0.5)
    grid = figure.subplots(len(speeds), len(_UPLINKS), sharey=True, sharex="row", squeeze=False)
    for axes, (per_sample, uplink) in zip(grid.flat, itertools.product(speeds, _UPLINKS), strict=True):
        for clock in rows_where(clocks, uplink=uplink, seconds_per_sample=per_sample):
            label = scheme_label(clock)
            colour, line = _STYLES.get(label, (SKY, "-"))
            draw_band(axes, clock["times_s"], losses[_training_of(clock, averaging)], colour, label, line)
        axes.axhline(target, color="0.4", linewidth=0.9, label="batch's least + 5 %")
        axes.set_xscale("log")
        axes.set_title(f"{uplink} uplinks, training {1000 * per_sample:g} ms per sample", fontsize=8.5)
        bare(axes)
    for axes in grid[:, 0]:
        axes.set_ylabel("loss J, mean", fontsize=9)
    for axes in grid[-1]:
        axes.set_xlabel("virtual time (s)", fontsize=9)
    figure.suptitle(title, fontsize=9.5)
    marks, names = grid[0, 0].get_legend_handles_labels()
    figure.legend(marks, names, loc="outside lower center", ncols=6, frameon=False, fontsize=8, columnspacing=1.2)
    return figure


EXPERIMENT = Experiment(
    "timing",
    "rounds and virtual time to come within 5 % of batch training's loss",
    ("comms-ml",),
    jobs,
    timing_rows,
    report,
)
