"""Byzantine devices against every defence: AUROC under each attack, and what a defence costs where all are honest.

On Comms-ML with the three clusters of the paper's tables, of four, three and three devices, with less data and a larger
step than there: the question is how far a model falls, not how far it gets. A run that diverges leaves no model.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import msgspec

from tolfl.core.spec import DefenceSpec
from tolfl.experiments.experiment import Experiment, Options
from tolfl.experiments.paper.setups import SETUPS
from tolfl.experiments.result_rows import Row, distinct_values, rows_of, rows_where
from tolfl.experiments.results import ExperimentReport, Table, Verdict
from tolfl.experiments.sweep import Job, Repetition

#: Byzantine devices and what each sends; devices 0 to 3, 4 to 6 and 7 to 9 are a cluster each.
ATTACKS = {
    "nobody lies": "",
    "one flips": "1:flip",
    "one per cluster flips": "1,5,8:flip",
    "one per cluster sends -10 times": "1,5,8:scale=-10",
    "one claims a million samples": "1:samples=1000000",
    "the same, and flips": "1:flip,samples=1000000",
    "a whole cluster sends -10 times": "7,8,9:scale=-10",
}
#: Devices have 72 to 96 samples and updates of a length between 0.2 and 0.9; a defender would know both roughly.
DEFENCES = {
    "none": DefenceSpec(),
    "median": DefenceSpec("median"),
    "trimmed mean": DefenceSpec("trimmed-mean"),
    "clipped": DefenceSpec(clip_to_median=1.0),
    "capped": DefenceSpec(max_samples=100),
    "chain clipped": DefenceSpec(chain_clip=0.5),
    "all": DefenceSpec("median", clip_to_median=1.0, max_samples=100, chain_clip=0.5),
}
#: A loss of AUROC that matters to a user.
_NOTICEABLE = 0.02


def jobs(options: Options, rows: Sequence[Row] = ()) -> list[Job]:  # noqa: ARG001
    """Return every attack under every defence."""
    setup = SETUPS["comms-ml"]
    small: dict[str, Any] = {"rounds": 60, "repetitions": 5, "splits": 5, "comms_ml": {"windows_per_region": 400}}
    base = setup.spec(quick=True, rounds=4) if options.quick else setup.spec(train={"lr": 0.02}, **small)
    return [
        Job(
            f"{attack}, {name}",
            msgspec.structs.replace(base, liars=ATTACKS[attack], defence=defence),
            {"scenario": "liars", "attack": attack, "liars": ATTACKS[attack], "defence": name, "set": str(defence)},
        )
        for attack in ATTACKS
        for name, defence in DEFENCES.items()
    ]


def attack_rows(job: Job, repetitions: Sequence[Repetition]) -> list[dict[str, Any]]:
    """Return one row per repetition, also where it diverged."""
    return [{**row, "has_diverged": row["auroc"] is None} for row in rows_of(job, repetitions)]


def report(rows: Sequence[Row]) -> ExperimentReport:
    """Return the report of rows."""
    defences = distinct_values(rows, "defence")
    lines = [
        (attack, *(_cell(rows_where(rows, attack=attack, defence=defence)) for defence in defences))
        for attack in distinct_values(rows, "attack")
    ]
    settings = {row["defence"]: row["set"].partition(";")[0] for row in rows if row["set"]}
    notes = (
        "AUROC, mean ± standard deviation over repetitions, each on a split of its own; 'n lost': so many of them "
        "diverged and left no model, the mean is over the others.",
        f"Defences: {'; '.join(f'{name}: {text}' for name, text in settings.items())}.",
    )
    table = Table("AUROC by attack and defence", ("attack", *defences), tuple(lines), notes)
    return ExperimentReport("liars", "Devices that lie, and defences", list(rows), [table], _verdicts(rows))


def _cell(rows: Sequence[Row]) -> str:
    left = [row["auroc"] for row in rows if row["auroc"] is not None]
    lost = f"{len(rows) - len(left)} lost" if len(left) < len(rows) else ""
    mean = f"{statistics.fmean(left):.3f}" if left else ""
    spread = f"±{statistics.stdev(left):.3f}" if len(left) > 1 else ""
    return " ".join(filter(None, (mean, spread, lost))) or "-"


def _verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """Return verdicts on each defence: its cost without an attack, and the attacks that it withstands."""
    honest = {row["seed"]: row["auroc"] for row in rows_where(rows, liars="", set="")}
    found = []
    for attack in distinct_values(rows, "attack"):
        for defence in distinct_values(rows, "defence"):
            own = rows_where(rows, attack=attack, defence=defence)
            left = [row for row in own if row["auroc"] is not None and row["seed"] in honest]
            gaps, lost = [row["auroc"] - honest[row["seed"]] for row in left], len(own) - len(left)
            if own and (own[0]["liars"] or own[0]["set"]):
                mean = f"{statistics.fmean(gaps):+.3f} against honest devices without a defence" if gaps else "no model"
                evidence = mean + (f"; {lost} of {len(own)} diverged" if lost else "")
                is_small = not lost and statistics.fmean(gaps) > -_NOTICEABLE
                found.append(Verdict(f"{attack}, {defence}: loses less than {_NOTICEABLE:g}", is_small, evidence))
    return found


EXPERIMENT = Experiment(
    "liars",
    "Byzantine devices with forged updates or sample counts, with and without each defence",
    ("comms-ml",),
    jobs,
    attack_rows,
    report,
)
