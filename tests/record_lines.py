"""Short runs as their record lines, written by hand: what the page must show of them is plain to see."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tolfl.core.records import (
    AnyRecord,
    Evaluated,
    FailureHappened,
    Joined,
    RosterChanged,
    RoundAdopted,
    RoundClosed,
    RunEnded,
    RunStarted,
    Scored,
    TakenOver,
    Traffic,
    encode_records,
)

MODEL_BYTES = 1000
SAMPLES = 100  #: of each device


def started(clusters: Sequence[Sequence[int]], time_s: float = 0.0, device: int | None = None) -> RunStarted:
    return RunStarted(
        time_s=time_s,
        device=device,
        scheme="tol-fl",
        data="blobs",
        seed=0,
        clusters=tuple(map(tuple, clusters)),
        model_bytes=MODEL_BYTES,
    )


def closed(
    time_s: float, index: int, included: Sequence[int], heads: Sequence[int], work: int, **fields: object
) -> RoundClosed:
    """Return round `index` of the history whose rounds are called h0, h1, ..., unless `name` and `parent` say else."""
    name, parent = str(fields.pop("name", f"h{index}")), str(fields.pop("parent", f"h{index - 1}" if index else ""))
    n_sent = 2 * (len(included) - 1)
    settled: dict[str, object] = {
        "missing": {},
        "loss": 4.0 / (index + 1),
        "bytes": n_sent * MODEL_BYTES,
        "messages": {"unicast": n_sent, "broadcast": len(included)},
        "stall_s": 0.0,
        "n_samples": SAMPLES * len(included),
        **fields,
    }
    return RoundClosed(
        time_s=time_s,
        device=heads[-1],
        round=index,
        version=f"{work}.{index + 1}.0.{name}",
        parent=parent,
        included=tuple(included),
        heads=tuple(heads),
        **settled,  # type: ignore[arg-type]
    )


def adopted(line: RoundClosed, device: int) -> RoundAdopted:
    """Return what another device than the closer writes of a round."""
    return RoundAdopted(
        time_s=line.time_s + 0.01, device=device, round=line.round, version=line.version, parent=line.parent,
        included=line.included, missing=line.missing, n_samples=line.n_samples, heads=line.heads,
        stall_s=line.stall_s, loss=line.loss, devices=line.included,
    )  # fmt: skip


def ended(time_s: float, survivors: Sequence[int], auroc: float = 0.75) -> list[AnyRecord]:
    return [
        RunEnded(time_s=time_s, reason="over", survivors=tuple(survivors)),
        Scored(
            time_s=time_s,
            auroc=auroc,
            average_precision=0.5,
            auroc_per_model={},
            auroc_best=auroc,
            auroc_chosen=auroc,
            auroc_all_models=None,
            train_loss=1.0,
        ),
    ]


def lost_head() -> list[AnyRecord]:
    """Four devices in two clusters; head 0 dies in the third round, 1 takes over, and 0 comes back for the fifth."""
    everybody, rest = [0, 1, 2, 3], [1, 2, 3]
    return [
        started([[0, 1], [2, 3]]),
        closed(1.0, 0, everybody, [0, 2], 400),
        closed(2.0, 1, everybody, [0, 2], 800),
        Evaluated(time_s=2.0, device=2, round=1, version="800.2.0.h1", auroc=0.5),
        FailureHappened(time_s=2.25, device=0, round=2, what="died (train)"),
        TakenOver(time_s=2.5, device=1, round=2, version="800.2.0.h1", cluster=0, previous=0),
        closed(3.5, 2, rest, [1, 2], 1100, missing={"0": "failed"}, stall_s=0.5),
        closed(4.5, 3, rest, [1, 2], 1400),
        Evaluated(time_s=4.5, device=2, round=3, version="1400.4.0.h3", auroc=0.7),
        FailureHappened(time_s=4.6, device=0, round=4, what="came back"),
        Joined(time_s=5.0, device=0, round=4, version="1400.4.0.h3", incarnation=1),
        closed(5.5, 4, everybody, [0, 2], 1800),
        *ended(6.0, everybody),
    ]


def cut_in_two() -> list[AnyRecord]:
    """Four devices; 3 is cut off after the first round and trains on its own, in a lighter history."""
    return [
        started([[0, 1], [2, 3]]),
        closed(1.0, 0, [0, 1, 2, 3], [0, 2], 400),
        FailureHappened(time_s=1.5, round=1, what="cut 3 | 0,1,2"),
        closed(2.0, 1, [3], [3], 500, name="x1", parent="h0"),
        closed(2.5, 1, [0, 1, 2], [0, 2], 700, missing={"3": "failed"}),
        closed(3.0, 2, [3], [3], 600, name="x2", parent="x1"),
        closed(3.5, 2, [0, 1, 2], [0, 2], 1000),
    ]


def real_devices(folder: Path) -> None:
    """Write what two real devices and their launcher write while they train; nobody has counted messages yet."""
    uncounted = closed(1.0, 0, [0, 1], [0], 200, bytes=0, messages={})
    sent = Traffic(time_s=1.1, device=0, history="", sent=((1, "model", 1000),), control_messages=3, control_bytes=60)
    report = Traffic(
        time_s=0.9, device=1, history="", sent=((0, "report", 1000),), control_messages=2, control_bytes=40
    )
    found = FailureHappened(time_s=1.6, device=1, round=1, what="found dead: connection refused", by=0)
    died = FailureHappened(time_s=1.5, device=1, round=1, what="died (killed by signal 9)")
    over = RosterChanged(time_s=2.0, device=0, round=1, version="200.1.1.r", parent="h0", devices=(0,), is_over=True)
    own_end = RunEnded(time_s=2.0, device=0, reason="over", survivors=(0,))
    write(folder / "devices" / "0", [started([[0, 1]], 0.2, 0), uncounted, sent, found, over, own_end])
    write(folder / "devices" / "1", [started([[0, 1]], 0.1, 1), report])
    (folder / "launcher.jsonl").write_bytes(encode_records([died]))


def collected() -> list[AnyRecord]:
    """Return what is written into one file when these two have ended."""
    return [started([[0, 1]], 0.1), closed(1.0, 0, [0, 1], [0], 200), *ended(2.0, [0])]


def write(folder: Path, records: Sequence[AnyRecord]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "records.jsonl").write_bytes(encode_records(records))
    return folder
