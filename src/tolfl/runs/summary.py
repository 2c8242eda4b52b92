"""Summaries: the one dictionary that tables, `summary.json` and `--format json` show."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from tolfl.core.metrics import auroc, average_precision
from tolfl.core.records import AnyRecord, FailureHappened, RoundClosed, RunEnded, Scored
from tolfl.core.spec import RunSpec
from tolfl.datasets import FederatedDataset
from tolfl.learners import Learner, Scorer, State
from tolfl.learners.layouts import is_plain, layout, policy
from tolfl.learners.learner import digest_of
from tolfl.learners.registry import what_of
from tolfl.runs.baselines import PLAIN_BASELINES
from tolfl.runs.directory import models_sha256
from tolfl.runs.evaluation import Scores, mean_loss, train_loss
from tolfl.runs.failure_history import FailureHistory
from tolfl.runs.ledger import Ledger


def summarise(
    spec: RunSpec,
    data: FederatedDataset,
    models: Mapping[str, Scorer],
    holders: Mapping[str, int],
    scores: Scores,
    records: list[AnyRecord],
    ledger: Ledger,
) -> dict[str, object]:
    """Return everything there is to say of a finished run, but for how long it took to compute."""
    ending = records[-1]
    closed = [record for record in records if isinstance(record, RoundClosed)]
    return {
        "scheme": spec.scheme,
        "data": data.name,
        "n_devices": spec.devices,
        "n_clusters": 1 if is_plain(spec) else layout(spec).n_clusters,
        "rounds": spec.rounds,
        "rounds_done": max(((record.round or 0) + 1 for record in closed), default=0),
        "seed": spec.seed,
        "on_head_failure": "" if is_plain(spec) else policy(spec),
        "fail": spec.fail,
        "defence": str(spec.defence),
        "liars": spec.liars,
        "auroc": scores.auroc,
        "average_precision": scores.average_precision,
        "auroc_per_model": scores.auroc_per_model,
        "auroc_all_models": scores.auroc_all_models,
        "auroc_best": scores.auroc_best,
        "auroc_chosen": scores.auroc_chosen,
        "chosen_model": scores.chosen_model,
        "chosen_by": scores.chosen_by,
        "baselines": baseline_scores(data),
        "train_loss": train_loss(models, data, holders),
        "validation_loss": mean_loss(models, data.validation, holders),
        "survivors": list(ending.survivors) if isinstance(ending, RunEnded) else [],
        "failures": _failures(records),
        "ended": ending.reason if isinstance(ending, RunEnded) else "",
        "messages": ledger.totals(),
        "bytes": ledger.total_bytes,
        "control_messages": ledger.control_messages,
        "control_bytes": ledger.control_bytes,
        "stall_s": FailureHistory.of(records).stall_s,
        "virtual_s": ending.time_s,
        "model_sha256": models_sha256(models),
        "metrics": {name: value for record in closed for name, value in record.metrics.items()},
    }


_AVERAGED = (
    "auroc",
    "average_precision",
    "auroc_all_models",
    "auroc_best",
    "auroc_chosen",
    "clusters_in_use",
    "devices_in_last_round",
    "devices_lost_with_head",
    "train_loss",
    "validation_loss",
    "stall_s",
    "virtual_s",
    "bytes",
)
_WITHOUT_MEAN = (
    "survivors",
    "failures",
    "ended",
    "metrics",
    "model_sha256",
    "state_digest",
    "auroc_per_model",
    "chosen_model",
    "rounds_lost",
    "rounds_done",
)


def in_the_end(records: Sequence[AnyRecord], last_round: str | None, n_dropped: int) -> dict[str, object]:
    """Return who trained in the last round of the scored models (devices on their own: in the last of all).

    `clusters_in_use` is None where there is one model for everybody; `devices_lost_with_head` are live.
    """
    closed = [record for record in records if isinstance(record, RoundClosed)]
    scored = [record for record in closed if last_round is not None and str(record.version).endswith(f".{last_round}")]
    if not closed:
        return {"clusters_in_use": None, "devices_in_last_round": 0, "devices_lost_with_head": n_dropped}
    last = (scored or closed)[-1]
    return {
        "clusters_in_use": len(last.groups) if any(record.groups for record in closed) else None,
        "devices_in_last_round": len(last.included),
        "devices_lost_with_head": n_dropped + list(last.missing.values()).count("orphaned"),
    }


def what_was_learned(spec: RunSpec, learner: Learner, state: State | None) -> dict[str, object]:
    """Return what the fleet learned, in how many rounds, and a name of the state that it ends with."""
    return {
        "learn": what_of(spec),
        "rounds": learner.rounds,
        "stages": [list(stage) for stage in learner.all_stages()],
        "state_digest": None if state is None else digest_of(state),
    }


def scores_of(summary: Mapping[str, Any], ending: AnyRecord) -> Scored:
    """Return the last line of a run's records: what its models are worth in the end."""
    names = ("auroc", "average_precision", "auroc_per_model", "auroc_best", "auroc_chosen", "auroc_all_models")
    return Scored(time_s=ending.time_s, **{name: summary[name] for name in (*names, "train_loss")})


def summarise_repetitions(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the summary of repetitions: means where a mean makes sense, the spread of AUROC, and each run."""
    together: dict[str, Any] = dict(summaries[0])
    for key in _AVERAGED:
        together[key] = _mean([summary[key] for summary in summaries])
    for key in ("messages", "baselines"):
        names = summaries[0][key]
        together[key] = {name: _mean([summary[key][name] for summary in summaries]) for name in names}
    for key in _WITHOUT_MEAN:
        together[key] = None
    aurocs = [summary["auroc"] for summary in summaries if summary["auroc"] is not None]
    together["auroc_std"] = statistics.stdev(aurocs) if len(aurocs) > 1 else None
    together["repetitions"] = [dict(summary) for summary in summaries]
    return together


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


#: A comparison asks once per scheme, and each answer takes an eigendecomposition.
_baseline_scores: WeakKeyDictionary[FederatedDataset, dict[str, float]] = WeakKeyDictionary()


def baseline_scores(data: FederatedDataset) -> dict[str, float]:
    """Return the AUROC of every plain baseline that makes sense on the data; they belong into every table."""
    if data.test is None or data.is_anomalous is None:
        return {}
    if data not in _baseline_scores:
        fitted = {name: baseline(data.pool) for name, baseline in PLAIN_BASELINES.items() if _fits(name, data)}
        _baseline_scores[data] = {name: auroc(score(data.test), data.is_anomalous) for name, score in fitted.items()}
    return dict(_baseline_scores[data])


def plain_scores(scheme: str, data: FederatedDataset) -> Scores:
    """Return the scores of one plain baseline, as of a run's only model."""
    if data.test is None or data.is_anomalous is None:
        return Scores()
    values = PLAIN_BASELINES[scheme](data.pool)(data.test)
    value = auroc(values, data.is_anomalous)
    return Scores(value, average_precision(values, data.is_anomalous), {scheme: value}, value)


def _fits(name: str, data: FederatedDataset) -> bool:
    """Tell whether a baseline makes sense: PCA with all components reconstructs everything."""
    n_components = int(name.removeprefix("pca-")) if name.startswith("pca-") else 0
    return n_components < min(data.n_features, len(data.pool))


def _failures(records: list[AnyRecord]) -> list[dict[str, object]]:
    return [
        {"device": record.device, "round": record.round, "what": record.what, "time_s": record.time_s}
        for record in records
        if isinstance(record, FailureHappened)
    ]
