"""What failures cost: AUROC against the same run without them, seed by seed."""

from __future__ import annotations

import msgspec

from tolfl.core.errors import SpecError
from tolfl.core.records import FailureHappened
from tolfl.core.spec import RunSpec
from tolfl.runs.report.document import Block, Grid, Text
from tolfl.runs.report.reading import Reported

Pair = tuple[int, float, float]  #: seed, AUROC, AUROC undisturbed
#: What may differ between a run and its undisturbed twin.
_MAY_DIFFER = ("fail", "on_head_failure", "lost_model", "evaluate_every", "checkpoint_every", "repetitions", "seed")


def check_undisturbed(undisturbed: Reported) -> None:
    """Refuse to compare with a run that had failures of its own, or has no result yet."""
    for run in undisturbed.runs:
        if run.spec.fail or any(isinstance(line, FailureHappened) for line in run.records):
            raise SpecError(f"run {undisturbed.name} had failures of its own; compare with one in which nobody failed")
        if run.summary is None:
            raise SpecError(f"run {undisturbed.name} is not finished; compare with one that is")


def pairs_of(reported: Reported, undisturbed: Reported | None) -> list[Pair]:
    """Return the AUROC of each repetition beside that of the undisturbed run with the same seed."""
    beside = {run.spec.seed: run.auroc for run in undisturbed.runs} if undisturbed is not None else {}
    own = {run.spec.seed: run.auroc for run in reported.runs}
    pairs = [(seed, value, beside.get(seed)) for seed, value in own.items()]
    return [(seed, value, other) for seed, value, other in pairs if value is not None and other is not None]


def cost_blocks(reported: Reported, undisturbed: Reported | None) -> list[Block]:
    """Return the table of AUROCs with and without failures, or why there is none."""
    if undisturbed is None:
        return [Text("AUROC cost: not known; no undisturbed run was named to compare with.", "small")]
    pairs = pairs_of(reported, undisturbed)
    if not pairs:
        return [Text(f"AUROC cost: not known; run {undisturbed.name} has no AUROC for the same seed.", "small")]
    rows = [(str(seed), f"{own:.3f}", f"{other:.3f}", f"{other - own:+.3f}") for seed, own, other in pairs]
    if len(pairs) > 1:
        means = [sum(pair[place] for pair in pairs) / len(pairs) for place in (1, 2)]
        rows.append(("mean", f"{means[0]:.3f}", f"{means[1]:.3f}", f"{means[1] - means[0]:+.3f}"))
    blocks: list[Block] = [Grid(rows, ("seed", "AUROC of this run", "undisturbed", "cost"))]
    other_fields = _differing_fields(reported.spec, undisturbed.spec)
    if other_fields:
        named = ", ".join(other_fields)
        blocks.append(Text(f"The undisturbed run differs in more than its failures: {named}.", "notice"))
    return blocks


def _differing_fields(one: RunSpec, other: RunSpec) -> list[str]:
    names = [field.name for field in msgspec.structs.fields(RunSpec) if field.name not in _MAY_DIFFER]
    return [name for name in names if getattr(one, name) != getattr(other, name)]
