"""What a round of a layout costs, found by playing the protocol without training: seconds, bytes, stalls."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from tolfl.core.deferred_sum import deferred_merge
from tolfl.core.spec import ModelSpec, RunSpec, Timing
from tolfl.learners.autoencoder import Autoencoder
from tolfl.learners.layouts import failure_plan, layout, protocol_policy, wiring
from tolfl.protocol.device import Rules
from tolfl.runs.ledger import Ledger
from tolfl.sim.deferred import DeferredState
from tolfl.sim.timeline import ClosedStep, Timeline
from tolfl.sim.world import World, training_speeds

#: How many rounds are played, and how many heads are tried as the one that fails.
_PLAYED, _SAMPLED_HEADS = 4, 3


@dataclass(frozen=True)
class Costs:
    """What a round costs in one layout, and how long a failure keeps the others waiting."""

    round_s: float
    n_bytes: int  #: per round, each message counted
    client_stall_s: float
    head_stall_s: float  #: mean over heads that fail holding their cluster's contributions


def layout_costs(spec: RunSpec, sizes: Sequence[int], model_bytes: int) -> Costs:
    """Return seconds and bytes per round and the stall after a failure, by playing; nothing is trained."""
    closed, ledger = _play(spec, sizes, model_bytes)
    heads = [head for head, *_ in layout(spec).clusters]
    members = [member for _, *cluster in layout(spec).clusters for member in cluster]
    sampled = heads[:: max(1, len(heads) // _SAMPLED_HEADS)]
    return Costs(
        closed[-1].time_s - closed[-2].time_s,
        ledger.total_bytes // _PLAYED,
        _stall_s(spec, f"device:{members[0]}@1/report", sizes, model_bytes) if members else 0.0,
        statistics.fmean(_stall_s(spec, f"device:{head}@1/chain", sizes, model_bytes) for head in sampled),
    )


def _stall_s(spec: RunSpec, fail: str, sizes: Sequence[int], model_bytes: int) -> float:
    """Return how much longer a round takes because of a failure; where training stops, the time to detect it."""
    closed, _ = _play(msgspec.structs.replace(spec, fail=fail), sizes, model_bytes)
    return max((one.stall_s for one in closed if one.stall_s), default=Timing.preset(spec.timing).crash_detection_s)


def _play(spec: RunSpec, sizes: Sequence[int], model_bytes: int) -> tuple[list[ClosedStep], Ledger]:
    """Play a few rounds of the protocol; return the closed ones and every message."""
    spec = msgspec.structs.replace(spec, rounds=_PLAYED)
    per_sample = spec.links.seconds_per_sample * spec.train.epochs
    speeds = training_speeds(spec.links, spec.devices, spec.seed)
    world = World(
        Rules(wiring(spec), spec.rounds, deferred_merge(spec.defence), protocol_policy(spec)),
        tuple(sizes),
        tuple(sizes),
        tuple(per_sample * size / speed for size, speed in zip(sizes, speeds, strict=True)),
        ((model_bytes, model_bytes),) * spec.rounds,
        spec.links,
        Timing.preset(spec.timing),
        spec.scheme,
    )
    timeline = Timeline(world, failure_plan(spec), DeferredState(None, None, None))
    return [item for item in timeline.play() if isinstance(item, ClosedStep)], timeline.ledger


def model_bytes_of(n_features: int, model: ModelSpec) -> int:
    """Return the size of the autoencoder that travels, in float32.

    >>> model_bytes_of(112, ModelSpec())
    198720
    """
    return 4 * Autoencoder(n_features, model.hidden, model.code).n_params
