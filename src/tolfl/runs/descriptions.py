"""Descriptions of records and failures, the same on terminal, page and report.

`describe` is about one record; the columns of the table of failures, a headline and a few sentences are about an
incident. Each has the time at which it became known, for a page that replays a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tolfl.core.errors import UnknownNameError
from tolfl.core.records import (
    AlarmSent,
    AnyRecord,
    Evaluated,
    FailureHappened,
    Joined,
    RosterChanged,
    RoundClosed,
    RunEnded,
    RunStarted,
    Scored,
    TakenOver,
    round_name,
)
from tolfl.core.spec import Timing
from tolfl.runs.failure_history import ENDS, FOUND, NO_STALL_S, RESTARTED, DeviceFailure, Incident, sides_of

_N_NAMED = 8  #: more devices than this are counted, not named


def seconds(value: float) -> str:
    """Return a duration for people.

    >>> seconds(0.1778), seconds(0.004), seconds(0)
    ('0.18 s', '0.004 s', '0 s')
    """
    if value < NO_STALL_S:
        return "0 s"
    return f"{value:.2f} s" if value >= 0.01 else f"{value:.1g} s" if value >= 0.001 else "under 0.001 s"


def device_list(ids: Sequence[int]) -> str:
    """Return devices by their ids.

    >>> device_list([3]), device_list([3, 4, 5]), device_list(range(20))
    ('device 3', 'devices 3, 4 and 5', '20 devices (0, 1, 2, 3, 4, 5, 6, 7, ...)')
    """
    if len(ids) == 1:
        return f"device {ids[0]}"
    if len(ids) > _N_NAMED:
        return f"{len(ids)} devices ({', '.join(str(one) for one in ids[:_N_NAMED])}, ...)"
    return f"devices {', '.join(str(one) for one in ids[:-1])} and {ids[-1]}"


def describe(record: AnyRecord, stages: Sequence[tuple[str, int]] = ()) -> str:  # noqa: PLR0911  (one per kind)
    """Return a record in a few words; empty for those that hold only numbers.

    >>> describe(FailureHappened(time_s=4.5, device=0, round=2, what="found dead: connection refused", by=3))
    'device 0 is gone (connection refused), reported by device 3'
    """
    match record:
        case RunStarted():
            return f"{record.scheme} on {record.data} starts, seed {record.seed}"
        case RoundClosed():
            stall = f", stalled {seconds(record.stall_s)}" if record.stall_s > NO_STALL_S else ""
            inside = f"{len(record.included)} device{'s' * (len(record.included) != 1)} inside"
            return f"round {round_name(stages, record.round or 0)} closed by device {record.device}: {inside}{stall}"
        case RosterChanged():
            return (
                f"device {record.device} closes the run" if record.is_over else f"{len(record.devices)} devices go on"
            )
        case FailureHappened():
            return _described_failure(record)
        case TakenOver():
            return f"device {record.device} takes over cluster {record.cluster} from device {record.previous}"
        case Joined():
            return f"device {record.device} is part of the fleet again"
        case Evaluated() if record.auroc is not None:
            return f"AUROC {record.auroc:.3f} in round {round_name(stages, record.round or 0)}"
        case RunEnded():
            return f"{'the run' if record.device is None else f'device {record.device}'} ends: {record.reason}"
        case AlarmSent():
            return f"device {record.device}: {record.what}"
        case Scored() if record.auroc is not None:
            return f"AUROC {record.auroc:.3f} in the end"
    return ""


def _described_failure(line: FailureHappened) -> str:
    if line.device is None:
        return _described_cut(line.what)
    says = "" if line.by is None else f", reported by device {line.by}"
    return f"device {line.device} {failure_words(line.what)}{says}"


def failure_words(what: str) -> str:
    """Return a failure in plain words: a peer that refuses connections is gone, one without a sign of life may be slow.

    >>> failure_words("found dead: connection refused"), failure_words("found dead: silent for 2 s")
    ('is gone (connection refused)', 'is silent (for 2 s)')
    >>> failure_words("died (train)"), failure_words("found dead: missing from the round")
    ('died (train)', 'is missing from the round')
    """
    found, _, how = what.partition(": ")
    if found != FOUND:
        return what
    if what == RESTARTED:
        return how
    if how.startswith("silent "):
        return f"is silent ({how.removeprefix('silent ')})"
    return f"is {how}" if how.startswith("missing") else f"is gone ({how})"


def _described_cut(what: str) -> str:
    """Return a cut by its two sides.

    >>> _described_cut("cut 3 | 0,1,2"), _described_cut("healed 3,4 | 0")
    ('device 3 cut off from devices 0, 1 and 2', 'devices 3 and 4 connected again with device 0')
    """
    sides, is_cut = sides_of(what), what.startswith("cut ")
    if sides is None or not (is_cut or what.startswith("healed ")):
        return what
    one, other = map(device_list, sides)
    return f"{one} {'cut off from' if is_cut else 'connected again with'} {other}"


def tone(record: AnyRecord) -> str:
    """Return whether a record is `good`, `bad` or `quiet` (of every round); empty for what is none of them."""
    match record:
        case FailureHappened():
            return "good" if record.what.startswith(ENDS) else "bad"
        case TakenOver() | Joined():
            return "good"
        case AlarmSent():
            return "good" if record.event == "close" else "bad"
        case RoundClosed() | RosterChanged() | Evaluated():
            return "quiet"
    return ""


def what_failed(incident: Incident) -> str:
    """Return what failed and how, devices with the same fate together."""
    fates: dict[str, list[DeviceFailure]] = {}
    for one in incident.failures:
        fates.setdefault(one.what, []).append(one)
    return "; ".join(_fate(what, hit) for what, hit in fates.items())


def _fate(what: str, hit: Sequence[DeviceFailure]) -> str:
    ids = sorted(one.device for one in hit if one.device is not None)
    if not ids:
        return _described_cut(what)
    led = sorted(one.head_of for one in hit if one.head_of is not None)
    said = failure_words(what)
    if len(ids) > 1 and said.startswith("is "):
        said = f"are {said.removeprefix('is ')}"
    if not led:
        return f"{device_list(ids)} {said}"
    if len(ids) == 1:
        return f"device {ids[0]}, head of cluster {led[0]}, {said}"
    return f"{device_list(ids)}, {len(led)} of them {'a head' if len(led) == 1 else 'heads'}, {said}"


def short_label(incident: Incident) -> str:
    """Return a label of two or three words, for a curve."""
    if len(incident.failures) > 1:
        return f"{len(incident.failures)} failures"
    (one,) = incident.failures
    what = failure_words(one.what).partition(" (")[0]
    return what if one.device is None else f"{one.name} {what}"


def who_noticed(incident: Incident, simulated_timing: str = "") -> str:
    """Return the time until detection, and by which device; in a simulation the time follows from its timing."""
    found = [one for one in incident.failures if one.found_by is not None]
    if len(found) > 1 and all(one.found_after_s is None for one in found):
        by = device_list(sorted({one.found_by for one in found if one.found_by is not None}))
        return f"the time of failure is not known, by {by} ({', '.join(dict.fromkeys(one.found_how for one in found))})"
    if found:
        return _listed(dict.fromkeys(_finding(one, len(incident.failures) > 1) for one in found[:_N_NAMED]), len(found))
    if simulated_timing and incident.devices:
        try:
            delay_s = Timing.preset(simulated_timing).crash_detection_s
        except UnknownNameError:
            return "not recorded"
        return f"{seconds(delay_s)} (set by timing {simulated_timing})"
    return "not detected: nothing had to be done" if not incident.devices else "not recorded"


def _finding(one: DeviceFailure, is_one_of_several: bool) -> str:
    whom = f"{one.name}: " if is_one_of_several else ""
    after = "the time of failure is not known" if one.found_after_s is None else seconds(one.found_after_s)
    return f"{whom}{after}, by device {one.found_by} ({one.found_how})"


def who_took_over(incident: Incident) -> str:
    """Return which device became a head."""
    told = []
    for line in incident.takeovers[:_N_NAMED]:
        # The time of failure is not known if others only declared it failed.
        dead = [one for one in incident.failures if one.device == line.previous and not one.is_only_found]
        is_timed = dead and dead[-1].time_s < line.time_s
        after = f" after {seconds(line.time_s - dead[-1].time_s)}" if is_timed else ""
        told.append(f"device {line.device} for {line.previous} in cluster {line.cluster}{after}")
    more = len(incident.takeovers) - _N_NAMED
    return "; ".join(told) + (f"; {more} more" if more > 0 else "") or "not needed, or not possible"


def samples_lost(incident: Incident) -> str:
    """Return how many samples are no longer trained on."""
    if incident.samples_before is None:
        after = "" if incident.samples_after is None else f"; {incident.samples_after:,} go on"
        return f"not known: no round was closed before{after}"
    if incident.samples_after is None:
        return f"all {incident.samples_before:,}: no round was closed after it"
    if (n_models := len({line.included for line in incident.after})) > 1:
        apart = f"{n_models} models continue separately, the largest with {incident.samples_after:,}"
        return f"{incident.samples_lost:,} of {incident.samples_before:,}: {apart}"
    return f"{incident.samples_lost:,} of {incident.samples_before:,}"


def who_came_back(incident: Incident, stages: Sequence[tuple[str, int]] = ()) -> str:
    """Return what returned, thawed or healed, and in which round."""
    back = [one for one in incident.failures if one.back_in_round is not None]
    told = [f"{one.name}, round {round_name(stages, one.back_in_round or 0)}" for one in back[:_N_NAMED]]
    return _listed(told, len(back)) or "no"


def _listed(texts: Iterable[str], n_texts: int) -> str:
    return "; ".join(texts) + ("; ..." if n_texts > _N_NAMED else "")


@dataclass(frozen=True)
class IncidentCell:
    """A cell of the table of failures, and when it became known: a replay shows nothing before its time."""

    text: str
    known_s: float


#: The table of failures, on every surface.
COLUMNS = ("round", "at", "what failed", "noticed after", "who took over", "stalled", "samples lost", "came back")


def incident_cells(
    incident: Incident, stages: Sequence[tuple[str, int]] = (), simulated_timing: str = ""
) -> list[IncidentCell]:
    """Return one row of the table of failures."""
    at_s = incident.time_s
    found = [one.time_s + (one.found_after_s or 0.0) for one in incident.failures if one.found_by is not None]
    back = [one.back_s for one in incident.failures if one.back_s is not None]
    noticed_s = min(found, default=min((line.time_s for line in incident.takeovers), default=at_s))
    closed_s = at_s if not incident.after else max(line.time_s for line in incident.after)
    return [
        IncidentCell(round_name(stages, incident.round), at_s),
        IncidentCell(f"{at_s:.1f} s", at_s),
        IncidentCell(what_failed(incident), at_s),
        IncidentCell(who_noticed(incident, simulated_timing), noticed_s),
        IncidentCell(who_took_over(incident), max((line.time_s for line in incident.takeovers), default=at_s)),
        IncidentCell(seconds(incident.stall_s), at_s if incident.stalled_until_s is None else incident.stalled_until_s),
        IncidentCell(samples_lost(incident), closed_s),
        IncidentCell(who_came_back(incident, stages), max(back, default=at_s)),
    ]


def headline(incident: Incident, stages: Sequence[tuple[str, int]] = ()) -> list[IncidentCell]:
    """Return the incident in one line, and in a longer one once somebody took over, and once all are back."""
    cells = dict(zip(COLUMNS, incident_cells(incident, stages), strict=True))
    told = [cells["what failed"]]
    if incident.takeovers:
        took_over = cells["who took over"]
        told.append(IncidentCell(f"{told[-1].text}; took over: {took_over.text}", took_over.known_s))
    if all(one.back_s is not None for one in incident.failures):
        back = cells["came back"]
        told.append(IncidentCell(f"{told[-1].text}; came back: {back.text}", back.known_s))
    return told


def sentence(incident: Incident, stages: Sequence[tuple[str, int]] = ()) -> str:
    """Describe an incident in a few short sentences."""
    where = f"round {round_name(stages, incident.round)}"
    parts = [f"In {where}, {incident.time_s:.1f} s into the run: {headline(incident, stages)[-1].text}."]
    found = [one for one in incident.failures if one.found_after_s is not None]
    if len(found) == 1:
        parts.append(f"Device {found[0].found_by} noticed after {seconds(found[0].found_after_s or 0.0)}.")
    if incident.samples_after is None:
        parts.append("No round was closed after it.")
    else:
        stall = seconds(incident.stall_s)
        parts.append(f"It held up the training for {stall}." if incident.stall_s else "No stall was measured.")
        if incident.samples_lost is not None:
            parts.append(f"Samples lost: {samples_lost(incident)}.")
    return " ".join(parts)
