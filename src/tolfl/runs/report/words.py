"""A failure in words: the sentences and the cells of a failure report."""

from __future__ import annotations

from collections.abc import Sequence

from tolfl.core.errors import UnknownNameError
from tolfl.core.records import stage_of
from tolfl.core.spec import Timing
from tolfl.runs.report.reading import ReportedRun
from tolfl.runs.report.story import Casualty, Incident

_N_NAMED = 8  #: more devices than this are counted, not named


def seconds(value: float) -> str:
    """Return a duration for people.

    >>> seconds(0.1778), seconds(0.004), seconds(0)
    ('0.18 s', '0.004 s', '0 s')
    """
    if not value:
        return "0 s"
    return f"{value:.2f} s" if value >= 0.01 else f"{value:.1g} s" if value >= 0.001 else "under 0.001 s"


def devices(ids: Sequence[int]) -> str:
    """Return devices by their ids.

    >>> devices([3]), devices([3, 4, 5]), devices(range(20))
    ('device 3', 'devices 3, 4 and 5', '20 devices (0, 1, 2, 3, 4, 5, 6, 7, ...)')
    """
    if len(ids) == 1:
        return f"device {ids[0]}"
    if len(ids) > _N_NAMED:
        return f"{len(ids)} devices ({', '.join(str(one) for one in ids[:_N_NAMED])}, ...)"
    return f"devices {', '.join(str(one) for one in ids[:-1])} and {ids[-1]}"


def what_failed(incident: Incident) -> str:
    """Say whom it hit and how: those with the same fate together."""
    fates: dict[str, list[Casualty]] = {}
    for one in incident.casualties:
        fates.setdefault(one.what, []).append(one)
    return "; ".join(_fate(what, hit) for what, hit in fates.items())


def _fate(what: str, hit: Sequence[Casualty]) -> str:
    ids = sorted(one.device for one in hit if one.device is not None)
    if not ids:
        return what
    led = sorted(one.head_of for one in hit if one.head_of is not None)
    if not led:
        return f"{devices(ids)} {what}"
    if len(ids) == 1:
        return f"device {ids[0]}, head of cluster {led[0]}, {what}"
    return f"{devices(ids)}, {len(led)} of them {'a head' if len(led) == 1 else 'heads'}, {what}"


def mark(incident: Incident) -> str:
    """Say it in the two or three words that a curve has room for."""
    if len(incident.casualties) > 1:
        return f"{len(incident.casualties)} failures"
    (one,) = incident.casualties
    what = one.what.partition(" (")[0].partition(":")[0]
    return what if one.device is None else f"{one.name} {what}"


def noticed(incident: Incident, run: ReportedRun) -> str:
    """Say how long it took until somebody noticed, and who did."""
    found = [one for one in incident.casualties if one.found_by is not None]
    if found:
        told = dict.fromkeys(_finding(one, len(incident.casualties) > 1) for one in found[:_N_NAMED])
        return "; ".join(told) + ("; ..." if len(found) > _N_NAMED else "")
    if not run.is_real and any(one.device is not None for one in incident.casualties):
        try:
            delay_s = Timing.preset(run.spec.timing).crash_detection_s
        except UnknownNameError:
            return "not told"
        return f"{seconds(delay_s)} (set by timing {run.spec.timing})"
    return "by nobody: nothing had to be done" if not incident.devices else "not told"


def _finding(one: Casualty, is_one_of_several: bool) -> str:
    whom = f"{one.name}: " if is_one_of_several else ""
    after = "when it fell silent is not known" if one.found_after_s is None else seconds(one.found_after_s)
    return f"{whom}{after}, by device {one.found_by} ({one.found_how})"


def took_over(incident: Incident) -> str:
    """Say who became a head."""
    told = []
    for line in incident.takeovers[:_N_NAMED]:
        # Of one that was only found dead nobody knows when it fell silent.
        dead = [one for one in incident.casualties if one.device == line.previous and not one.is_only_found]
        after = f" after {seconds(max(0.0, line.time_s - dead[-1].time_s))}" if dead else ""
        told.append(f"device {line.device} for {line.previous} in cluster {line.cluster}{after}")
    more = len(incident.takeovers) - _N_NAMED
    return "; ".join(told) + (f"; {more} more" if more > 0 else "") or "nobody had to, or could"


def samples(incident: Incident) -> str:
    """Say how many samples are no longer trained on."""
    if incident.samples_before is None:
        after = "" if incident.samples_after is None else f"; {incident.samples_after:,} go on"
        return f"not known: no round was closed before{after}"
    if incident.samples_after is None:
        return f"all {incident.samples_before:,}: no round was closed after it"
    if incident.models_after > 1:
        apart = f"{incident.models_after} models go on apart, the largest with {incident.samples_after:,}"
        return f"{incident.samples_lost:,} of {incident.samples_before:,}: {apart}"
    return f"{incident.samples_lost:,} of {incident.samples_before:,}"


def which_round(round_index: int, run: ReportedRun) -> str:
    """Name a round by its number, and by its stage as a failure plan would where the run has stages."""
    name, inner, _ = stage_of(run.stages, round_index)
    return f"{round_index}, {name}:{inner}" if name else str(round_index)


def came_back(incident: Incident, run: ReportedRun) -> str:
    """Say who returned, thawed or healed, and in which round."""
    back = [one for one in incident.casualties if one.back_in_round is not None]
    told = [f"{one.name}, round {which_round(one.back_in_round or 0, run)}" for one in back[:_N_NAMED]]
    return "; ".join(told) + ("; ..." if len(back) > _N_NAMED else "") or "no"


def sentence(incident: Incident, run: ReportedRun) -> str:
    """Tell an incident in a few short sentences."""
    fell = what_failed(incident)
    name, inner, of = stage_of(run.stages, incident.round)
    where = f"round {incident.round}"
    if name:
        where = f"{name}, round {inner} of {of} ({where} of {run.rounds})"
    parts = [f"In {where}, {incident.time_s:.1f} s into the run: {fell}."]
    found = [one for one in incident.casualties if one.found_after_s is not None]
    if len(found) == 1:
        parts.append(f"Device {found[0].found_by} noticed after {seconds(found[0].found_after_s or 0.0)}.")
    if incident.takeovers:
        parts.append(f"Took over: {took_over(incident)}.")
    if incident.samples_after is None:
        parts.append("No round was closed after it.")
    else:
        stall = seconds(incident.stall_s)
        parts.append(f"It held up the training for {stall}." if incident.stall_s else "No stall was measured.")
        if incident.samples_lost is not None:
            parts.append(f"Samples lost: {samples(incident)}.")
    if run.summary is None:
        parts.append("The run was not over when this was written.")
    return " ".join(parts)
