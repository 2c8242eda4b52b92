"""The report of a run: specification, result, curves, the fleet before and after, and what each failure cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tolfl.core.records import RoundClosed, how_far
from tolfl.core.spec import RunSpec
from tolfl.runs.report import words
from tolfl.runs.report.cost import check_undisturbed, cost_blocks, pairs_of
from tolfl.runs.report.curves import Curves, draw_curves
from tolfl.runs.report.document import Block, Document, Grid, Heading, Listing, Picture, Side, Text
from tolfl.runs.report.fleet import LEGEND, fleet_after, fleet_before
from tolfl.runs.report.reading import Reported, ReportedRun
from tolfl.runs.report.story import FailureStory, story_of
from tolfl.runs.report.topology import draw_topology

_N_ROWS = 200  #: of the failure report; a fleet that loses more is told as a whole
_NOTES = (
    "Devices and rounds count from 0: round 20 is the one that begins when 20 are done. Stalled: how much longer the "
    "rounds took than undisturbed ones; a death that is noticed while the others still train holds up nobody. "
    "Samples lost: in the last model before a failure, and no longer in the first one without those who failed."
)
#: Fields of a specification that a reader looks for first.
_FIRST = ("scheme", "data", "devices", "clusters", "topology", "rounds", "fail", "on_head_failure", "seed")


def build_report(reported: Reported, undisturbed: Reported | None = None) -> Document:
    """Return the report of a run; `undisturbed` is the same one without failures."""
    if undisturbed is not None:
        check_undisturbed(undisturbed)
    stories = [story_of(run.records) for run in reported.runs]
    spec, first = reported.spec, reported.runs[0]
    kind = "a real network of processes" if first.is_real else "simulated, in virtual time"
    times = f", {len(reported.runs)} repetitions" if spec.repetitions > 1 else ""
    blocks = [
        *_state(reported),
        *_lead(reported, stories, undisturbed),
        Heading("Failure report"),
        *_failures(reported, stories),
        *cost_blocks(reported, undisturbed),
        Heading("Curves"),
        *_curves(reported, stories, undisturbed),
        Heading("The fleet before and after"),
        *_fleets(first, stories[0], is_one_of_several=len(reported.runs) > 1),
        Heading("Result"),
        *_result(reported, stories),
        Heading("Specification"),
        *_specification(spec),
        Text(_NOTES, "small"),
    ]
    return Document(f"{spec.scheme} on {spec.data}: {reported.name}", f"{kind}{times}; seed {spec.seed}", blocks)


# -- the beginning ----------------------------------------------------------------------------------------------


def _state(reported: Reported) -> list[Block]:
    if reported.is_finished and len(reported.runs) == reported.spec.repetitions:
        return []
    open_runs = [run for run in reported.runs if run.summary is None]
    slowest = min(open_runs, key=lambda run: run.rounds_done, default=reported.runs[0])
    far = how_far(slowest.stages, slowest.rounds_done, slowest.rounds)
    text = (
        f"This run is not finished: {slowest.rounds_done} of {slowest.rounds} rounds were closed when this was written."
    )
    if slowest.stages:
        text = f"This run is not finished: it was at {far} when this was written."
    if reported.spec.repetitions > 1:
        ended = len(reported.runs) - len(open_runs)
        text = (
            f"These runs are not finished: {ended} of {reported.spec.repetitions} repetitions have come to their end."
        )
    return [Text(text, "notice")]


def _lead(reported: Reported, stories: Sequence[FailureStory], undisturbed: Reported | None) -> list[Block]:
    n_incidents = sum(len(story.incidents) for story in stories)
    if not n_incidents:
        return [Text("Nobody failed.", "lead")]
    blocks: list[Block] = []
    if n_incidents == 1:
        run, story = next((run, story) for run, story in zip(reported.runs, stories, strict=True) if story.incidents)
        blocks.append(Text(words.sentence(story.incidents[0], run), "lead"))
    else:
        n_lost = sum(len(story.dead) for story in stories)
        stall_s = sum(story.stall_s for story in stories)
        text = f"{n_incidents} incidents; {n_lost} devices did not return; {words.seconds(stall_s)} stalled in all."
        blocks.append(Text(text, "lead"))
    pairs = pairs_of(reported, undisturbed)
    if pairs:
        cost = sum(other - own for _, own, other in pairs) / len(pairs)
        blocks.append(Text(f"AUROC cost against the undisturbed run: {cost:.3f}.", "lead"))
    return blocks


# -- failures ---------------------------------------------------------------------------------------------------


def _failures(reported: Reported, stories: Sequence[FailureStory]) -> list[Block]:
    has_seeds = reported.spec.repetitions > 1
    rows = [
        ([str(run.spec.seed)] if has_seeds else [])
        + [
            f"{words.which_round(incident.round, run)} ({incident.time_s:.1f}\u00a0s)",
            words.what_failed(incident),
            words.noticed(incident, run),
            words.took_over(incident),
            words.seconds(incident.stall_s),
            words.samples(incident),
            words.came_back(incident, run),
        ]
        for run, story in zip(reported.runs, stories, strict=True)
        for incident in story.incidents
    ]
    if not rows:
        return [Text("No record tells of a failure.")]
    columns = ["round", "what failed", "noticed after", "who took over", "stalled", "samples lost", "came back"]
    blocks: list[Block] = [Grid(rows[:_N_ROWS], ["seed", *columns] if has_seeds else columns)]
    if len(rows) > _N_ROWS:
        blocks.append(Text(f"The first {_N_ROWS} of {len(rows)} incidents; records.jsonl has them all.", "small"))
    unexplained = sum(story.unexplained_stall_s for story in stories)
    if unexplained:
        blocks.append(Text(f"Stalled before anything failed: {words.seconds(unexplained)}.", "small"))
    return blocks


# -- pictures ---------------------------------------------------------------------------------------------------


def _curves(reported: Reported, stories: Sequence[FailureStory], undisturbed: Reported | None) -> list[Block]:
    drawn = [Curves.of(run.records) for run in reported.runs]
    if not any(curves.loss or curves.auroc for curves in drawn):
        has_rounds = any(isinstance(line, RoundClosed) for run in reported.runs for line in run.records)
        why = "No round has a loss, and none was scored" if has_rounds else "No round was closed"
        return [Text(f"{why}: there is nothing to draw.")]
    beside = [Curves.of(run.records) for run in undisturbed.runs] if undisturbed is not None else []
    marks: dict[int, str] = {}
    for story in stories:
        for incident in story.incidents:
            text = words.mark(incident)
            marks[incident.round] = text if marks.get(incident.round, text) == text else "several failures"
    kinds = {"AUROC on the test set": any(one.auroc for one in drawn), "training loss": any(one.loss for one in drawn)}
    lines = " and ".join(kind for kind, is_there in kinds.items() if is_there)
    each = ", one line per repetition" if len(drawn) > 1 else ""
    dashed = "; dashed: the undisturbed run" if beside else ""
    dotted = "; dotted: failures" if marks else ""
    caption = f"{lines[0].upper()}{lines[1:]} over rounds{each}{dashed}{dotted}."
    return [Picture("curves", draw_curves(drawn, beside, marks, reported.runs[0].stages), caption)]


def _fleets(run: ReportedRun, story: FailureStory, is_one_of_several: bool) -> list[Block]:
    before = fleet_before(run.records)
    if before is None:
        return [Text("This run had no fleet, or none of its devices has begun.")]
    after = fleet_after(run.records, story)
    n_dead, n_live = len(story.dead), len(before.marks) - len(story.dead)
    which = f" (seed {run.spec.seed})" if is_one_of_several else ""
    late = "In the end" if run.summary is not None else "As it is now"
    return [
        Side(
            [
                Picture("before", draw_topology(before.clusters, before.marks), f"Before the first round{which}."),
                Picture(
                    "after",
                    draw_topology(after.clusters, after.marks),
                    f"{late}{which}: {n_live} devices live, {n_dead} dead.",
                ),
            ]
        ),
        Text(LEGEND, "small"),
    ]


# -- numbers ----------------------------------------------------------------------------------------------------


def _result(reported: Reported, stories: Sequence[FailureStory]) -> list[Block]:
    summaries = [run.summary for run in reported.runs if run.summary is not None]
    if not summaries:
        return [Text("There is no result before the run ends.")]
    if reported.spec.repetitions > 1:
        rows = [
            [
                str(run.spec.seed),
                *_scores(run.summary),
                words.seconds(story.stall_s),
                str(len(run.summary["survivors"])),
            ]
            for run, story in zip(reported.runs, stories, strict=True)
            if run.summary is not None
        ]
        known = [summary["auroc"] for summary in summaries if summary["auroc"] is not None]
        mean = [Text(f"Mean AUROC {sum(known) / len(known):.3f} over {len(known)} repetitions.")] if known else []
        return [Grid(rows, ("seed", "AUROC", "average precision", "training loss", "stalled", "devices left")), *mean]
    return [Grid(_facts(summaries[0], stories[0]))]


def _scores(summary: Mapping[str, Any]) -> list[str]:
    return [_number(summary[name]) for name in ("auroc", "average_precision", "train_loss")]


def _facts(summary: Mapping[str, Any], story: FailureStory) -> list[tuple[str, str]]:
    n_models = len(summary["auroc_per_model"])
    mean = f", the mean over {n_models} models" if n_models > 1 else ""
    facts = [("AUROC", _number(summary["auroc"]) + mean), ("average precision", _number(summary["average_precision"]))]
    if n_models > 1:
        facts.append(("all models together", _number(summary["auroc_all_models"])))
    facts += [
        (f"{name} (plain, all data in one place)", _number(auroc)) for name, auroc in summary["baselines"].items()
    ]
    facts += [
        ("training loss", _number(summary["train_loss"])),
        ("ended", str(summary["ended"])),
        ("rounds", f"{summary['rounds_done']} of {summary['rounds']}{_stages(summary)}"),
        ("devices left", f"{len(summary['survivors'])} of {summary['n_devices']}"),
        ("stalled by failures", words.seconds(story.stall_s)),
        ("messages with models", f"{summary['messages']['unicast']:,} ({summary['bytes'] / 1e6:.1f} MB)"),
    ]
    if "wall_s" in summary:
        facts.append(("duration", f"{summary['wall_s']:.1f} s by the clock, from the start of the processes"))
    else:
        facts.append(("duration", f"{summary['virtual_s']:.1f} s of virtual time"))
    return [*facts, ("SHA-256 of the model", str(summary["model_sha256"] or "no model is left"))]


def _stages(summary: Mapping[str, Any]) -> str:
    """Say in which stages the rounds are, where there are stages; summaries from before there were any have none."""
    told = ", ".join(f"{name} {n_rounds}" for name, n_rounds in summary.get("stages", ()))
    return f" ({told})" if told else ""


def _number(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, int | float) else "-"


def _specification(spec: RunSpec) -> list[Block]:
    values = {name: getattr(spec, name) for name in _FIRST}
    usual = {"fail": "nobody", "on_head_failure": "the scheme's default", "clusters": "the default"}
    rows = [(name, str(value) if value not in ("", None) else usual.get(name, "")) for name, value in values.items()]
    return [Grid([row for row in rows if row[1]]), Listing(spec.to_toml())]
