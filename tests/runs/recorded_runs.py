"""Runs for reports, small enough to work out every number of them by hand."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tests import record_lines
from tolfl.core.records import AnyRecord, Evaluated, FailureHappened, RoundClosed, RunEnded, RunStarted, TakenOver
from tolfl.core.spec import RunSpec
from tolfl.runs.run_folder import RunFolder

CLUSTERS = ((0, 1), (2, 3))
SAMPLES = (100, 20, 30, 40)  #: of each device


def started(data: str = "blobs") -> RunStarted:
    return msgspec.structs.replace(record_lines.started(CLUSTERS), data=data)


def closed(
    round_index: int, time_s: float, included: Sequence[int], heads: Sequence[int] = (0, 2), stall_s: float = 0.0
) -> RoundClosed:
    n_samples = sum(SAMPLES[device] for device in included)
    told = {"n_samples": n_samples, "loss": 3.0 - round_index, "stall_s": stall_s, "name": f"{round_index}-{included}"}
    return record_lines.closed(time_s, round_index, included, heads, 0, **told)


def failed(time_s: float, device: int | None, round_index: int, what: str, by: int | None = None) -> FailureHappened:
    return FailureHappened(time_s=time_s, device=device, round=round_index, what=what, by=by)


def taken_over(time_s: float, device: int, previous: int, cluster: int = 0) -> TakenOver:
    return TakenOver(time_s=time_s, device=device, round=1, cluster=cluster, previous=previous)


def lost_head() -> list[AnyRecord]:
    """Return a real run of three rounds in which device 0, head of cluster 0, is killed in the second."""
    return [
        started(),
        closed(0, 1.0, (0, 1, 2, 3)),
        Evaluated(time_s=1.1, round=0, auroc=0.6),
        failed(1.5, 0, 1, "died (train)"),
        failed(1.6, 0, 1, "died (killed by signal 9)"),
        failed(1.75, 0, 1, "found dead: connection refused", by=3),
        taken_over(2.0, 1, 0),
        closed(1, 2.5, (1, 2, 3), (1, 2), stall_s=0.5),
        closed(2, 3.5, (1, 2, 3), (1, 2)),
        RunEnded(time_s=3.6, reason="over", survivors=(1, 2, 3)),
    ]


def summary(auroc: float | None = 0.8, **other: object) -> dict[str, object]:
    return {
        "seed": 0,
        "auroc": auroc,
        "average_precision": 0.9,
        "auroc_per_model": {"global": auroc},
        "auroc_all_models": auroc,
        "baselines": {"mean-vector": 0.5},
        "train_loss": 1.25,
        "ended": "over",
        "rounds": 3,
        "rounds_done": 3,
        "survivors": [1, 2, 3],
        "n_devices": 4,
        "messages": {"unicast": 1234},
        "bytes": 2_500_000,
        "wall_s": 3.6,
        "model_sha256": "abc",
        **other,
    }


def spec(**fields: object) -> RunSpec:
    return RunSpec.from_fields(
        {"data": "blobs", "devices": 4, "clusters": 2, "rounds": 3, "fail": "server@1", **fields}
    )


def recorded(records: Sequence[AnyRecord], auroc: float | None = 0.8, **fields: object) -> RunFolder:
    return RunFolder("mine", spec(**fields), records, summary(auroc), is_real=True, is_over=True)
