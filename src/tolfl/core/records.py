"""Run records: one JSON line for each thing that happened, the same from the simulator and from a real network.

Tables, plots and the dashboard read these lines and nothing else. A new field needs a default; a changed meaning
needs a new `SCHEMA`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from tolfl.core.errors import TolFLError

SCHEMA = 1


class Record(msgspec.Struct, frozen=True, tag_field="kind", kw_only=True, tag=True):
    """What every line says: when, who, in which round, on which version of the model."""

    time_s: float  #: virtual seconds; of real devices, seconds since the run began
    device: int | None = None  #: who wrote it
    round: int | None = None  #: from 0
    version: str | None = None  #: work.round.revision.history
    schema: int = SCHEMA  #: version of these lines


class RunStarted(Record, frozen=True, tag="run_started", kw_only=True):
    """The run begins."""

    scheme: str  #: as in the specification
    data: str  #: as in the specification
    seed: int  #: as in the specification
    clusters: tuple[tuple[int, ...], ...]  #: the devices of each
    model_bytes: int  #: size of one model
    hosts: tuple[int, ...] = ()  #: who keeps which model, where there are several
    defence: str = ""  #: against Byzantine devices, and whether the model depends on the clusters
    liars: str = ""  #: Byzantine devices of the run, on purpose
    learn: str = ""  #: what the fleet computes
    stages: tuple[tuple[str, int], ...] = ()  #: of the computation, in order: name and number of rounds
    unix_s: float | None = None  #: the time of the day at which the clock of these lines was 0, where it is a real one
    #: Device, incarnation and process of the writer and of those it was connected with: no other run has them.
    processes: tuple[tuple[int, int, int], ...] = ()


class RoundClosed(Record, frozen=True, tag="round_closed", kw_only=True):
    """A closer closes a round. One that dies while it distributes may leave two of a round: the heavier one wins."""

    parent: str  #: the history that the round extends: the last part of the version before it
    included: tuple[int, ...]  #: whose updates are in it
    #: id: failed, left, dropped, refused, late; of schemes with several models also orphaned and waits for a group
    missing: dict[str, str]
    n_samples: int  #: of the devices that are included
    loss: float | None  #: mean over samples
    bytes: int  #: of the messages with a model: their unicast number times the size of the model
    messages: dict[str, int]  #: with a model, counted in five ways
    heads: tuple[int, ...]  #: the last one closed the round
    stall_s: float  #: how much longer the round took than without failures
    groups: dict[str, tuple[int, ...]] = {}  #: who trained which model, where there are several
    stage: str = ""  #: of what the fleet learns, where that has several
    digest: str = ""  #: of the state after the round
    metrics: dict[str, float] = {}  #: whatever else the learner measured, by name
    present: tuple[int, ...] = ()  #: the devices that go on, where the next round depends on them


class RoundAdopted(Record, frozen=True, tag="round_adopted", kw_only=True):
    """In its own folder: a real device goes on from a round that another one closed, so its records are complete."""

    parent: str  #: as in `round_closed`
    included: tuple[int, ...]  #: as in `round_closed`; nobody: only the roster changed
    missing: dict[str, str]  #: as in `round_closed`
    n_samples: int  #: as in `round_closed`
    heads: tuple[int, ...]  #: as in `round_closed`
    stall_s: float  #: as this device measured it
    loss: float | None = None  #: as in `round_closed`
    devices: tuple[int, ...]  #: that go on
    is_over: bool = False  #: whether the run is finished
    stage: str = ""  #: that the round belongs to


class RosterChanged(Record, frozen=True, tag="roster", kw_only=True):
    """Only the roster changes, without an update."""

    parent: str  #: the history that it extends
    devices: tuple[int, ...]  #: that go on
    is_over: bool  #: whether the run is finished


class FailureHappened(Record, frozen=True, tag="failure", kw_only=True):
    """A device fails or returns, a link is cut or heals."""

    #: died (with its phase, or by which signal), found dead (and how), came back, did not come back in time, frozen,
    #: thawed, cut, healed
    what: str
    by: int | None = None  #: who noticed, where it was another device


class TakenOver(Record, frozen=True, tag="takeover", kw_only=True):
    """A device becomes the head of its cluster because the one before it is gone."""

    cluster: int  #: from 0
    previous: int  #: the head before it


class Joined(Record, frozen=True, tag="join", kw_only=True):
    """A device that was outside is part of the roster again."""

    incarnation: int  #: the one that joins


class Traffic(Record, frozen=True, tag="traffic", kw_only=True):
    """In its own folder: what a real device has sent in a round."""

    history: str  #: that the round extends
    sent: tuple[tuple[int, str, int], ...]  #: destination, kind and bytes of each message with a model inside
    control_messages: int  #: small ones
    control_bytes: int  #: of these


class Evaluated(Record, frozen=True, tag="evaluation", kw_only=True):
    """The model is scored while the run goes on (`evaluate_every`): behind the closed round, and with its time."""

    auroc: float | None  #: on the test set
    loss: float | None = None  #: of all devices' training samples, the failed ones' included, dropout off


class RunEnded(Record, frozen=True, tag="run_ended", kw_only=True):
    """The run is over, or nobody can go on."""

    reason: str  #: of the end
    survivors: tuple[int, ...]  #: devices that are left


class AlarmSent(Record, frozen=True, tag="alarm", kw_only=True):
    """In its own folder: a device that watches has sent an event of a group of alarms, also after the end."""

    id: str  #: of the event
    event: str  #: open, update, close
    severity: str  #: notice, warning, high
    what: str  #: in one line for people


class Scored(Record, frozen=True, tag="scores", kw_only=True):
    """Scores of the models in the end, as in `summary.json`; the last line."""

    auroc: float | None  #: of the model that each device uses; the scores are explained under schemes
    average_precision: float | None  #: of the same model
    auroc_per_model: dict[str, float]  #: each of them, by name
    auroc_best: float | None  #: of the best one, chosen on the test set
    auroc_chosen: float | None  #: of the one that held-back typical samples choose
    auroc_all_models: float | None  #: of all together: the least of their scores
    train_loss: float | None  #: mean over the training samples


AnyRecord = (
    RunStarted
    | RoundClosed
    | RoundAdopted
    | RosterChanged
    | FailureHappened
    | TakenOver
    | Joined
    | Traffic
    | Evaluated
    | RunEnded
    | AlarmSent
    | Scored
)


def history_of(record: Record) -> str:
    """Return the history that a record extended to: the last part of its version."""
    return str(record.version).rpartition(".")[2]


def stage_of(stages: Sequence[tuple[str, int]], round_index: int) -> tuple[str, int, int]:
    """Return the stage of a round, the round in it and how many it has; no name, where a run has no stages.

    What comes after the last round belongs to the last stage. Stages that take turns are listed piece by piece.

    >>> stage_of([("scaling", 1), ("thresholds", 6)], 3)
    ('thresholds', 2, 6)
    >>> stage_of([("train", 1), ("evaluate", 1), ("train", 1), ("evaluate", 1)], 2)
    ('train', 1, 2)
    """
    name, n_rounds, before = "", 0, dict[str, int]()
    for name, n_rounds in stages:
        if round_index < n_rounds:
            break
        round_index -= n_rounds
        before[name] = before.get(name, 0) + n_rounds
    else:
        round_index += n_rounds
        before[name] = before.get(name, 0) - n_rounds
    return name, before.get(name, 0) + round_index, sum(of for other, of in stages if other == name)


def round_name(stages: Sequence[tuple[str, int]], round_index: int) -> str:
    """Return a round as failure plans count them, from 0, and in which stage it is where the run has stages.

    >>> round_name([], 3), round_name([("scaling", 1), ("thresholds", 6)], 3)
    ('3', '3 (thresholds:2)')
    """
    name, inner, _ = stage_of(stages, round_index)
    return f"{round_index} ({name}:{inner})" if name else str(round_index)


def how_far(stages: Sequence[tuple[str, int]], rounds_done: int, rounds: int) -> str:
    """Say how many rounds are done, and in which stage where the run has stages.

    >>> how_far([], 15, 109), how_far([("scaling", 2), ("autoencoder", 100), ("thresholds", 7)], 15, 109)
    ('15 of 109 rounds', 'autoencoder 13/100 (15 of 109 rounds)')
    """
    overall = f"{rounds_done} of {rounds} rounds" if rounds else f"{rounds_done} round{'s' * (rounds_done != 1)}"
    if not stages:
        return overall
    name, inner, of = stage_of(stages, max(0, rounds_done - 1))
    return f"{name} {inner + bool(rounds_done)}/{of} ({overall})"


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(AnyRecord)


def encode_records(records: Iterable[AnyRecord]) -> bytes:
    """Return the records as JSON lines."""
    return b"".join(_encoder.encode(record) + b"\n" for record in records)


def decode_records(lines: Iterable[bytes | str], source: str = "records") -> Iterator[AnyRecord]:
    """Read JSON lines back; a line that is no record is named by its number."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                record = _decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise TolFLError(f"{source}, line {number}: {_newer_version(line) or error}") from None
            if record.schema > SCHEMA:  # it may mean something else by the same names
                raise TolFLError(f"{source}, line {number}: {_newer_version(line)}")
            yield record


def _newer_version(line: bytes | str) -> str:
    """Say that a line is of a newer version; nothing where it is not."""
    try:
        schema = msgspec.json.decode(line, type=_AnySchema).schema
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    return f"written by a newer version of tolfl: schema {schema}, this one reads {SCHEMA}" if schema > SCHEMA else ""


class _AnySchema(msgspec.Struct):
    schema: int = SCHEMA
