"""Summaries: the one dictionary that tables, `summary.json` and `--format json` show."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tolfl.core.records import AnyRecord, FailureHappened, RoundClosed, RunEnded, Scored
from tolfl.core.spec import RunSpec
from tolfl.datasets import FederatedDataset
from tolfl.learners import Learner
from tolfl.learners.layouts import is_plain, layout, policy
from tolfl.learners.learner import digest_of
from tolfl.learners.registry import what_of
from tolfl.runs.baselines import baseline_scores, plain_scores
from tolfl.runs.directory import models_sha256
from tolfl.runs.evaluation import mean_loss, score_models
from tolfl.runs.failure_history import FailureHistory
from tolfl.runs.ledger import Ledger
from tolfl.runs.outcome import Held, Outcome, last_update, lost_rounds, outcome_of
from tolfl.runs.run_folder import rounds_done


def summarise(
    spec: RunSpec,
    data: FederatedDataset,
    learner: Learner | None,
    held: Sequence[Held],
    records: Sequence[AnyRecord],
    ledger: Ledger,
) -> tuple[Outcome, dict[str, Any]]:
    """Return what live devices leave, and everything there is to say of a finished run but how long it took to compute.

    `learner`: None for a plain baseline, which has no rounds.
    """
    outcome = Outcome({}, {}, None, None, 0) if learner is None else outcome_of(learner, held)
    models, holders = outcome.results, outcome.holders
    scores = plain_scores(spec.scheme, data) if learner is None else score_models(models, data, holders)
    ending = records[-1]
    closed = [record for record in records if isinstance(record, RoundClosed)]
    return outcome, {
        "scheme": spec.scheme,
        "data": data.name,
        "n_devices": spec.devices,
        "n_clusters": 1 if is_plain(spec) else layout(spec).n_clusters,
        "learn": spec.scheme if learner is None else what_of(spec),
        "rounds": 0 if learner is None else learner.rounds,
        "stages": [] if learner is None else [list(stage) for stage in learner.all_stages()],
        "rounds_done": rounds_done(closed),
        "rounds_lost": lost_rounds([one.history for one in held], records),
        "seed": spec.seed,
        "on_head_failure": "" if is_plain(spec) else policy(spec),
        "fail": spec.fail,
        "defence": str(spec.defence),
        "liars": spec.liars,
        **asdict(scores),
        "baselines": baseline_scores(data),
        "train_loss": mean_loss(models, data.pool, holders),
        "validation_loss": mean_loss(models, data.validation, holders),
        "survivors": list(ending.survivors) if isinstance(ending, RunEnded) else [],
        **_in_last_round(closed, last_update(outcome.history, records), outcome.n_dropped),
        "failures": [
            {"device": record.device, "round": record.round, "what": record.what, "time_s": record.time_s}
            for record in records
            if isinstance(record, FailureHappened)
        ],
        "ended": ending.reason if isinstance(ending, RunEnded) else "",
        "messages": ledger.totals(),
        "bytes": ledger.total_bytes,
        "control_messages": ledger.control_messages,
        "control_bytes": ledger.control_bytes,
        "stall_s": FailureHistory.of(records).stall_s,
        "virtual_s": ending.time_s,
        "model_sha256": models_sha256(models),
        "state_digest": None if outcome.state is None else digest_of(outcome.state),
        "metrics": {name: value for record in closed for name, value in record.metrics.items()},
    }


def _in_last_round(closed: Sequence[RoundClosed], last_round: str | None, n_dropped: int) -> dict[str, object]:
    """Return which devices trained in the last round of the scored models (isolated devices: in the last of all).

    `clusters_in_use` is None where there is one model for everybody; `devices_lost_with_head` are live.
    """
    if not closed:
        return {"clusters_in_use": None, "devices_in_last_round": 0, "devices_lost_with_head": n_dropped}
    scored = [record for record in closed if last_round is not None and str(record.version).endswith(f".{last_round}")]
    last = (scored or closed)[-1]
    return {
        "clusters_in_use": len(last.groups) if any(record.groups for record in closed) else None,
        "devices_in_last_round": len(last.included),
        "devices_lost_with_head": n_dropped + list(last.missing.values()).count("orphaned"),
    }


def scores_of(summary: Mapping[str, Any], ending: AnyRecord) -> Scored:
    """Return the last line of a run's records: what its models are worth in the end."""
    names = ("auroc", "average_precision", "auroc_per_model", "auroc_best", "auroc_chosen", "auroc_all_models")
    return Scored(time_s=ending.time_s, **{name: summary[name] for name in (*names, "train_loss")})


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
