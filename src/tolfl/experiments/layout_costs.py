"""What a round of a layout costs, found by playing the protocol without training: seconds and bytes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tolfl.core.deferred_sum import deferred_merge
from tolfl.core.spec import ModelSpec, RunSpec, Timing
from tolfl.learners.autoencoder import Autoencoder
from tolfl.learners.layouts import failure_plan, protocol_policy, wiring
from tolfl.protocol.device import Rules
from tolfl.sim.deferred import DeferredState
from tolfl.sim.timeline import ClosedStep, Timeline
from tolfl.sim.world import World, training_speeds

_PLAYED = 4  #: rounds


def layout_costs(spec: RunSpec, sizes: Sequence[int], model_bytes: int) -> tuple[float, int]:
    """Return the seconds and the bytes of a round; nothing is trained."""
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
    closed = [item for item in timeline.play() if isinstance(item, ClosedStep)]
    return closed[-1].time_s - closed[-2].time_s, timeline.ledger.total_bytes // _PLAYED


def model_bytes_of(n_features: int, model: ModelSpec) -> int:
    """Return the size of the autoencoder that travels, in float32.

    >>> model_bytes_of(112, ModelSpec())
    198720
    """
    return 4 * Autoencoder(n_features, model.hidden, model.code).n_params
