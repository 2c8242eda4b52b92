"""The report of a run: its result, its curves, its fleet before and after, and what every failure cost.

`report_context` computes the content; the templates only lay it out. Texts come from files that are not
trusted: HTML is escaped by the template engine, Markdown by `plain`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tolfl.core.errors import SpecError
from tolfl.core.records import FailureHappened, RoundClosed, RunEnded, how_far
from tolfl.core.spec import RunSpec
from tolfl.runs.descriptions import COLUMNS, incident_cells, seconds, sentence
from tolfl.runs.failure_history import FailureHistory, first_states, last_states
from tolfl.runs.run_figures import COLOURS, curves_svg, fleet_svg, has_curves
from tolfl.runs.run_folder import RunFolder

_N_ROWS = 200  #: of the table of failures
#: Fields of a specification that a reader looks for first, and what an empty one means.
_FIRST = ("scheme", "data", "devices", "clusters", "topology", "rounds", "fail", "on_head_failure", "seed")
_EMPTY = {"fail": "nobody", "on_head_failure": "the scheme's default", "clusters": "the default"}
#: What may differ between a run and the same one without failures.
_MAY_DIFFER = ("fail", "on_head_failure", "lost_model", "evaluate_every", "checkpoint_every", "repetitions", "seed")


@dataclass(frozen=True)
class Picture:
    """A drawing with its description. Its colours are names, `var(--ink)`, until they are filled in."""

    name: str  #: of its file, where it gets one
    svg: str
    caption: str


def report_context(run: RunFolder, failure_free: RunFolder | None = None) -> dict[str, Any]:
    """Return the content of a run's report; `failure_free` is the same run without failures."""
    if failure_free is not None:
        check_failure_free(failure_free)
    spec, histories = run.spec, [FailureHistory.of(one.records) for one in run.runs]
    kind = "a real network of processes" if run.is_real else "simulated, in virtual time"
    times = f", {len(run.runs)} repetitions" if spec.repetitions > 1 else ""
    rows = _failure_rows(run, histories)
    return {
        "title": f"{spec.scheme} on {spec.data}: {run.name}",
        "subtitle": "; ".join(filter(None, (f"{kind}{times}", f"seed {spec.seed}", run.clock))),
        "notices": _notices(run),
        "leads": _leads(run, histories, failure_free),
        "failure_columns": (["seed"] if spec.repetitions > 1 else []) + list(COLUMNS),
        "failure_rows": rows[:_N_ROWS],
        "n_failure_rows": len(rows),
        "unexplained_stall": seconds(sum(one.unexplained_stall_s for one in histories)),
        "has_unexplained_stall": any(one.unexplained_stall_s for one in histories),
        **_cost(run, failure_free),
        **_curves(run, failure_free),
        "fleets": _fleets(run.runs[0], histories[0], is_one_of_several=len(run.runs) > 1),
        **_result(run, histories),
        "settings": _settings(run),
        "has_spec": run.has_spec,
        "toml": spec.to_toml() if run.has_spec else "",
        "colours": COLOURS,
    }


def render(context: Mapping[str, Any], template: str, figures: str = "") -> str:
    """Return a report as the text of a file: `report.html`, or `report.md` with its figures in a folder beside it."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415  (only who writes a report)

    environment = Environment(
        loader=PackageLoader("tolfl.runs"),
        autoescape=template.endswith(".html"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value,
    )
    environment.filters |= {"plain": plain, "fenced": fenced}
    return environment.get_template(template).render(context, figures=figures)


def pictures_of(context: Mapping[str, Any]) -> list[Picture]:
    """Return all drawings of a report."""
    return [*([context["curves"]] if context["curves"] else []), *context["fleets"]]


def printable(text: str) -> str:
    r"""Return a text without control characters and those that change its direction: they become U+FFFD.

    >>> printable("a\x00b\u202ec") == "a\ufffdb\ufffdc"
    True
    """
    return "".join(
        one if one in "\n\t" or unicodedata.category(one) not in ("Cc", "Cf", "Cs", "Co", "Cn") else "\ufffd"
        for one in text
    )


#: What Markdown would read as more than text. An underscore between letters is none.
_SPECIAL = re.compile(r"[\\`*\[\]<>|~#!&$]|(?<!\w)_|_(?!\w)")


def plain(text: object) -> str:
    r"""Return a text that Markdown shows as it is, in one line.

    >>> plain("on_head_failure <b> | *x*")
    'on_head_failure \\<b\\> \\| \\*x\\*'
    """
    return _SPECIAL.sub(lambda found: "\\" + found[0], " ".join(printable(str(text)).split()))


def fenced(text: str) -> str:
    """Return a listing that cannot end its own fence."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{printable(text).rstrip()}\n{fence}"


# -- the beginning ----------------------------------------------------------------------------------------------


def _notices(run: RunFolder) -> list[str]:
    notices = []
    n_unreadable = sum(one.n_unreadable for one in run.runs)
    if n_unreadable:
        lines = "1 line is no record" if n_unreadable == 1 else f"{n_unreadable} lines are no records"
        notices.append(f"{lines} that this version can read; this report is made from the others.")
    open_runs = [one for one in run.runs if not one.is_over]
    if not open_runs and len(run.runs) == run.spec.repetitions:
        return notices
    if run.spec.repetitions > 1:
        ended = len(run.runs) - len(open_runs)
        text = f"These runs are not finished: {ended} of {run.spec.repetitions} repetitions have come to their end."
        return [*notices, text]
    slowest = min(open_runs, key=lambda one: one.rounds_done)
    far = how_far(slowest.stages, slowest.rounds_done, slowest.rounds)
    return [*notices, f"This run is not finished: it was at {far} when this was written."]


def _leads(run: RunFolder, histories: Sequence[FailureHistory], failure_free: RunFolder | None) -> list[str]:
    n_incidents = sum(len(history.incidents) for history in histories)
    if not n_incidents:
        return ["Nobody failed."]
    if n_incidents == 1:
        ((history, incident),) = [(one, incident) for one in histories for incident in one.incidents]
        leads = [sentence(incident, history.stages)]
    else:
        n_lost = sum(len(history.dead) for history in histories)
        stall_s = sum(history.stall_s for history in histories)
        lost = f"{n_lost} device{'s' * (n_lost != 1)} did not return" if n_lost else "all devices returned"
        leads = [f"{n_incidents} incidents; {lost}; {seconds(stall_s)} stalled in all."]
    pairs = _auroc_pairs(run, failure_free)
    if pairs:
        cost = sum(other - own for _, own, other in pairs) / len(pairs)
        leads.append(f"AUROC cost against the failure-free run: {cost:.3f}.")
    return leads


# -- failures and their cost ------------------------------------------------------------------------------------


def _failure_rows(run: RunFolder, histories: Sequence[FailureHistory]) -> list[list[str]]:
    seeds = [[str(one.spec.seed)] if run.spec.repetitions > 1 else [] for one in run.runs]
    timing = "" if run.is_real else run.spec.timing
    return [
        [*seed, *(cell.text for cell in incident_cells(incident, history.stages, timing))]
        for seed, history in zip(seeds, histories, strict=True)
        for incident in history.incidents
    ]


def check_failure_free(failure_free: RunFolder) -> None:
    """Refuse to compare with a run that had failures of its own, or has no result yet."""
    for run in failure_free.runs:
        if run.spec.fail or any(isinstance(line, FailureHappened) for line in run.records):
            raise SpecError(f"run {failure_free.name} had failures of its own; compare with one in which nobody failed")
        if run.summary is None:
            raise SpecError(f"run {failure_free.name} is not finished; compare with one that is")


def _auroc_pairs(run: RunFolder, failure_free: RunFolder | None) -> list[tuple[int, float, float]]:
    """Return seed and AUROC of each repetition beside that of the failure-free run with the same seed."""
    beside = {one.spec.seed: one.auroc for one in failure_free.runs} if failure_free is not None else {}
    pairs = [(one.spec.seed, one.auroc, beside.get(one.spec.seed)) for one in run.runs]
    return [(seed, value, other) for seed, value, other in pairs if value is not None and other is not None]


def _cost(run: RunFolder, failure_free: RunFolder | None) -> dict[str, Any]:
    pairs = _auroc_pairs(run, failure_free)
    rows = [[str(seed), f"{own:.3f}", f"{other:.3f}", f"{other - own:+.3f}"] for seed, own, other in pairs]
    if len(pairs) > 1:
        means = [sum(pair[place] for pair in pairs) / len(pairs) for place in (1, 2)]
        rows.append(["mean", f"{means[0]:.3f}", f"{means[1]:.3f}", f"{means[1] - means[0]:+.3f}"])
    why = "no failure-free run was named to compare with"
    differing: list[str] = []
    if failure_free is not None:
        why = f"run {failure_free.name} has no AUROC for the same seed"
        names = [one.name for one in msgspec.structs.fields(RunSpec) if one.name not in _MAY_DIFFER]
        differing = [name for name in names if getattr(run.spec, name) != getattr(failure_free.spec, name)]
    return {"cost_rows": rows, "why_no_cost": why, "differing_fields": ", ".join(differing) if rows else ""}


# -- pictures ---------------------------------------------------------------------------------------------------


def _curves(run: RunFolder, failure_free: RunFolder | None) -> dict[str, Any]:
    drawn = [("this run", one.records) for one in run.runs]
    if not has_curves(drawn):
        has_rounds = any(isinstance(line, RoundClosed) for one in run.runs for line in one.records)
        why = "No round has a loss, and none was scored" if has_rounds else "No round was closed"
        return {"curves": None, "why_no_curves": f"{why}: there is nothing to draw."}
    beside = [("failure-free", one.records) for one in failure_free.runs] if failure_free is not None else []
    each = ", one line per repetition" if len(drawn) > 1 else ""
    dashed = "; dashed: the failure-free run" if beside else ""
    caption = f"Loss and AUROC over rounds, as far as they are known{each}{dashed}; dotted: failures."
    return {"curves": Picture("curves", curves_svg(drawn, beside), caption), "why_no_curves": ""}


def _fleets(run: RunFolder, history: FailureHistory, is_one_of_several: bool) -> list[Picture]:
    if run.started is None:
        return []
    before, after = first_states(run.started), last_states(history)
    n_dead, which = len(history.dead), f" (seed {run.spec.seed})" if is_one_of_several else ""
    late = "In the end" if run.is_over else "As it is now"
    text = f"{late}{which}: {len(before) - n_dead} devices live, {n_dead} dead."
    return [
        Picture("before", fleet_svg(run.started.clusters, before), f"Before the first round{which}."),
        Picture("after", fleet_svg(run.started.clusters, after), text),
    ]


# -- numbers ----------------------------------------------------------------------------------------------------


def _result(run: RunFolder, histories: Sequence[FailureHistory]) -> dict[str, Any]:
    # Of each, the stall as it is told above: an older version counted some twice.
    ended = [
        {**one.summary, "stall_s": history.stall_s}
        for one, history in zip(run.runs, histories, strict=True)
        if one.summary is not None
    ]
    facts: list[tuple[str, str]] = []
    rows: list[list[str]] = []
    mean = ""
    if run.spec.repetitions > 1:
        rows = [repetition_row(summary) for summary in ended]
        known = [summary["auroc"] for summary in ended if summary["auroc"] is not None]
        mean = f"Mean AUROC {sum(known) / len(known):.3f} over {len(known)} repetitions." if known else ""
    elif ended:
        (summary,) = ended
        facts += [(f"AUROC, {name.strip()}", _number(value)) for name, value in model_scores(summary)]
        facts += run_facts(summary)
        facts.append(("SHA-256 of the model", str(summary["model_sha256"] or "no model is left")))
    elif run.is_over:
        facts = _facts_of_records(run, histories[0])
    return {"facts": facts, "result_columns": REPETITION_COLUMNS, "result_rows": rows, "mean_auroc": mean}


REPETITION_COLUMNS = ("seed", "AUROC", "average precision", "training loss", "stalled", "devices left")


def repetition_row(summary: Mapping[str, Any]) -> list[str]:
    """Return one of several repetitions as a row of a table."""
    scores = [_number(summary[name]) for name in ("auroc", "average_precision", "train_loss")]
    return [str(summary["seed"]), *scores, seconds(summary["stall_s"]), str(len(summary["survivors"]))]


def model_scores(summary: Mapping[str, Any]) -> list[tuple[str, float | None]]:
    """Return the AUROC of what was learned, by name: of every model, of all together, and of plain baselines."""
    per_model: Mapping[str, float] = summary["auroc_per_model"]
    rows: list[tuple[str, float | None]] = []
    if len(per_model) > 1:
        rows = [
            ("mean over devices", summary["auroc"]),
            ("all together (per-sample minimum)", summary["auroc_all_models"]),
            (f"{summary['chosen_model']}, chosen by {summary['chosen_by']}", summary["auroc_chosen"]),
            ("best single model (an oracle: by the test set)", summary["auroc_best"]),
        ]
    known = {"global": "the fleet's model", "detector": "the fleet's detector"}
    rows += [("  " * (len(per_model) > 1) + known.get(name, name), value) for name, value in per_model.items()]
    if not per_model and not summary.get("metrics"):
        rows.append((_why_no_score(summary), None))
    return rows + [(f"{name} (plain, all data in one place)", value) for name, value in summary["baselines"].items()]


def _why_no_score(summary: Mapping[str, Any]) -> str:
    if summary["survivors"] and summary["model_sha256"] is not None:
        return "no test set"
    has_state = summary["survivors"] and summary.get("state_digest") is not None
    return "nothing to score: see state.safetensors" if has_state else "no model is left"


def run_facts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return how a run ended and what it took, name and value: the terminal and the report print the same."""
    if not summary["rounds"]:
        return []
    # Summaries from before there were stages have none.
    stages = ", ".join(f"{name} {n_rounds}" for name, n_rounds in summary.get("stages", ()))
    messages = summary["messages"]["unicast"]
    each = f"{messages / max(1, summary['rounds_done']):.1f} per round"
    return [
        ("ended", str(summary["ended"])),
        ("rounds", f"{summary['rounds_done']} of {summary['rounds']}" + (f" ({stages})" if stages else "")),
        *([("rounds of a lighter branch", f"{lost} lost")] if (lost := summary.get("rounds_lost")) else []),
        ("devices left", f"{len(summary['survivors'])} of {summary['n_devices']}"),
        *((name, str(summary[name])) for name in ("liars", "defence") if summary.get(name)),
        *_models_in_use(summary),
        *([] if (value := summary["average_precision"]) is None else [("average precision", _number(value))]),
        *_how_well_trained(summary),
        ("stalled by failures", seconds(summary["stall_s"])),
        ("messages with models", f"{messages:,} ({each}), {summary['bytes'] / 1e6:.1f} MB in all"),
        ("duration", _duration(summary)),
    ]


def _models_in_use(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    if summary.get("clusters_in_use") is None:
        return []
    lost = summary["devices_lost_with_head"]
    out = f"; {lost} device{'s' * (lost != 1)} out of training: the head with their model is gone" if lost else ""
    return [("models in use", f"{summary['clusters_in_use']} of {summary['n_clusters']} in the last round{out}")]


def _how_well_trained(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the loss or score of the training rows, and the learner's own metrics."""
    from tolfl.learners.registry import BUILT_IN  # noqa: PLC0415  (a report of a folder needs no learners)

    measured = [(name, _number(value, 4)) for name, value in summary.get("metrics", {}).items()]
    if summary["train_loss"] is None and measured:
        return measured
    has_loss = summary.get("learn") in {None, *BUILT_IN}
    name = "training loss" if has_loss else "mean score of the training rows"
    return [*measured, (name, _number(summary["train_loss"], 4))]


def _duration(summary: Mapping[str, Any]) -> str:
    each = f", {summary['seconds_per_round']:.3f} s per round" if "seconds_per_round" in summary else ""
    if "wall_s" in summary:
        return f"{summary['wall_s']:.1f} s from the start of the processes{each}"
    return f"{summary['virtual_s']:.1f} s of virtual time{each and each + ' to compute'}"


def _facts_of_records(run: RunFolder, history: FailureHistory) -> list[tuple[str, str]]:
    """Return the facts of a run of devices on machines of their own, whose model has not been scored."""
    ending = next((line for line in reversed(run.records) if isinstance(line, RunEnded)), None)
    closed = [line for line in run.records if isinstance(line, RoundClosed)]
    loss = [("training loss in the last round", _number(closed[-1].loss))] if closed else []
    left = "-" if ending is None else f"{len(ending.survivors)} of {run.spec.devices}"
    return [
        ("ended", "-" if ending is None else ending.reason),
        ("rounds", f"{run.rounds_done} of {run.rounds}" if run.rounds else str(run.rounds_done)),
        ("devices left", left),
        *loss,
        ("stalled by failures", seconds(history.stall_s)),
        ("duration", f"{run.records[-1].time_s - run.records[0].time_s:.1f} s by the clock" if run.records else "-"),
    ]


def _number(value: object, digits: int = 3) -> str:
    return f"{value:.{digits}f}" if isinstance(value, int | float) else "-"


def _settings(run: RunFolder) -> list[tuple[str, str]]:
    known = _FIRST if run.has_spec else ("scheme", "data", "devices", "clusters", "topology", "seed")
    values = {name: getattr(run.spec, name) for name in known}
    rows = [(name, str(value) if value not in ("", None) else _EMPTY.get(name, "")) for name, value in values.items()]
    return [row for row in rows if row[1]]
