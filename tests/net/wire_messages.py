"""Any message of any fleet, to be sent and to be spoilt; and what makes two of them the same."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from hypothesis import strategies as st

from tolfl.core.contribution import Contribution, Part, Vector
from tolfl.core.device_set import DeviceSet
from tolfl.core.topology import Topology
from tolfl.net.codec import Expected
from tolfl.protocol import messages
from tolfl.protocol.history import ClosedRound, Life, Roster, Version
from tolfl.protocol.messages import AnyMessage, Payload

COUNTS = st.one_of(st.integers(0, 5), st.integers(0, 2**62 - 1))
REASONS = st.sampled_from(["failed", "left", "late", "dropped"])
LOSSES = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Return clusters of any order and size."""
    ids = draw(st.permutations(range(draw(st.integers(1, 12)))))
    ends = sorted(draw(st.sets(st.integers(1, len(ids)))) | {len(ids)})
    return Topology(tuple(tuple(ids[first:last]) for first, last in zip([0, *ends], ends, strict=False)))


@st.composite
def fleets(draw: st.DrawFn, most_params: int = 20) -> Expected:
    """Return what messages of one fleet must fit."""
    keys = draw(st.sampled_from([("global",), ("a", "b"), ("group-0", "group-1", "group-2")]))
    n_params = draw(st.integers(1, most_params))
    return Expected(draw(topologies()), keys, n_params, np.dtype(draw(st.sampled_from([np.float32, np.float64]))))


def vectors(expected: Expected) -> st.SearchStrategy[Vector]:
    """Return strategies for finite vectors of all magnitudes, signs of zero included."""

    def make(seed: int) -> Vector:
        rng = np.random.default_rng(seed)
        vector = rng.standard_normal(expected.n_params) * 10.0 ** rng.integers(-40, 17, expected.n_params)
        vector[rng.random(expected.n_params) < 0.1] = -0.0
        return vector.astype(expected.dtype)

    return st.integers(0, 2**32 - 1).map(make)


def device_sets(ids: list[int]) -> st.SearchStrategy[DeviceSet]:
    return st.sets(st.sampled_from(ids)).map(DeviceSet.of) if ids else st.just(DeviceSet())


def lives(expected: Expected) -> st.SearchStrategy[dict[int, int]]:
    return st.dictionaries(st.sampled_from(sorted(expected.topology.cluster_of)), COUNTS)


def dead_sets(expected: Expected) -> st.SearchStrategy[frozenset[Life]]:
    life = st.tuples(st.sampled_from(sorted(expected.topology.cluster_of)), COUNTS)
    return st.frozensets(life, max_size=20)


def versions() -> st.SearchStrategy[Version]:
    history = st.text("0123456789abcdef", max_size=64)
    return st.builds(Version, COUNTS, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), history)


def missing(expected: Expected) -> st.SearchStrategy[dict[int, str]]:
    return st.dictionaries(st.sampled_from(sorted(expected.topology.cluster_of)), REASONS)


@st.composite
def contributions(draw: st.DrawFn, expected: Expected, included: DeviceSet) -> Contribution:
    """Return a contribution of these devices, with some of the models."""
    inside = device_sets(list(included))
    positive = st.integers(1, 2**40 - 1)
    part = st.builds(Part, positive, vectors(expected), positive, inside, LOSSES, COUNTS)
    parts = {key: draw(part) for key in expected.keys if draw(st.booleans())}
    return Contribution(included, draw(COUNTS), parts)


@st.composite
def any_message(draw: st.DrawFn, expected: Expected, kind: type[AnyMessage] | None = None) -> AnyMessage:
    """Return a message that a device of this fleet may send."""
    cluster_of = expected.topology.cluster_of
    sender = draw(st.sampled_from(sorted(cluster_of)))
    version = draw(versions())
    header = (sender, draw(COUNTS), version, draw(dead_sets(expected)))
    kind = draw(st.sampled_from(KINDS)) if kind is None else kind
    everybody = device_sets(sorted(cluster_of))
    if kind is messages.Report:
        contribution = draw(contributions(expected, DeviceSet.of([sender])))
        return messages.Report(*header, contribution, draw(lives(expected)))
    if kind is messages.Mean:
        upstream = [device for device in cluster_of if cluster_of[device] <= cluster_of[sender]]
        total = draw(contributions(expected, draw(device_sets(upstream))))
        return messages.Mean(*header, total, draw(missing(expected)), draw(lives(expected)))
    if kind is messages.Closed:
        models = {key: draw(vectors(expected)) for key in expected.keys}
        roster, parent = Roster(draw(lives(expected))), draw(versions()).history
        rest = (parent, draw(everybody), draw(missing(expected)), draw(COUNTS), draw(st.booleans()))
        return messages.Closed(*header, ClosedRound(version, roster, models, *rest))
    if kind in (messages.Offer, messages.Want, messages.Ack):
        return kind(*header, draw(st.sampled_from(Payload)), draw(everybody))
    return kind(*header)  # type: ignore[call-arg]


KINDS: tuple[type[AnyMessage], ...] = (
    messages.Report,
    messages.Mean,
    messages.Closed,
    messages.Offer,
    messages.Want,
    messages.Ack,
    messages.Heartbeat,
    messages.Pull,
    messages.Join,
    messages.Goodbye,
)


def plain(value: object) -> Any:
    """Return a value such that two are equal if and only if they are the same, arrays bit for bit."""
    match value:
        case msgspec.Struct():
            fields = {name: plain(getattr(value, name)) for name in value.__struct_fields__}
            return type(value).__name__, fields
        case np.ndarray():
            return value.dtype.str, value.shape, value.tobytes()
        case dict():
            return sorted((key, plain(item)) for key, item in value.items())
        case frozenset():
            return sorted(value)
        case float():
            return value.hex()
    return value
