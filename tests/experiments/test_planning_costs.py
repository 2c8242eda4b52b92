"""What a plan says of bytes, times and stalls is what the simulator gives."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.sim.fleets import FULL_BATCH, closed, simulated, some_data
from tolfl.core.errors import SpecError
from tolfl.core.spec import LinkModel, ModelSpec, RunSpec, Timing
from tolfl.core.topology import Topology
from tolfl.experiments.planning.costs import (
    Network,
    messages_per_round,
    model_bytes,
    round_seconds,
    share_cut_off,
    stall_seconds,
    usual_clusters,
)
from tolfl.learners.autoencoder import Autoencoder
from tolfl.runs.ledger import Kind
from tolfl.sim.simulation import Result

Uplink = Literal["serial", "parallel"]
UPLINKS: tuple[Uplink, Uplink] = ("serial", "parallel")
MODEL_BYTES = 24  #: three features in float64


def network_of(sizes: list[int], links: LinkModel) -> Network:
    detection_s = Timing.localhost().crash_detection_s
    train_s = tuple(links.seconds_per_sample * size for size in sizes)
    return Network(train_s, MODEL_BYTES, (links.bandwidth_bps,) * len(sizes), links.latency_s, detection_s)


def run(sizes: list[int], links: LinkModel, **fields: object) -> Result:
    spec = RunSpec(data="blobs", devices=len(sizes), rounds=3, train=FULL_BATCH, links=links)
    return simulated(msgspec.structs.replace(spec, **fields), some_data(sizes))


@settings(max_examples=25)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=2, max_size=7),
    k=st.integers(1, 7),
    uplink=st.sampled_from(UPLINKS),
    latency_s=st.sampled_from([0.0, 0.25, 3.0]),
    seconds_per_sample=st.sampled_from([0.0, 0.3, 2.0]),
)
@example(sizes=[1, 9, 1], k=1, uplink="serial", latency_s=0.0, seconds_per_sample=2.0)  # the last one reports first
@example(sizes=[3, 1, 1, 1, 9], k=2, uplink="serial", latency_s=0.0, seconds_per_sample=2.0)  # the mean before a member
def test_a_round_lasts_as_long_as_in_the_simulator_whatever_the_sizes(
    sizes: list[int], k: int, uplink: Uplink, latency_s: float, seconds_per_sample: float
) -> None:
    k = min(k, len(sizes))
    links = LinkModel(latency_s, bandwidth_bps=192.0, uplink=uplink, seconds_per_sample=seconds_per_sample)
    times = [record.time_s for record in closed(run(sizes, links, clusters=k))]
    planned = round_seconds(Topology.contiguous(len(sizes), k), network_of(sizes, links), uplink)

    assert [later - earlier for earlier, later in pairwise(times)] == pytest.approx([planned] * 2, rel=1e-9)


@pytest.mark.parametrize("k", [1, 2, 4, 6])
def test_a_run_moves_as_many_bytes_and_takes_as_long_as_planned(k: int) -> None:
    links = LinkModel(latency_s=0.01, bandwidth_bps=1e6, seconds_per_sample=0.5)
    sizes = [4] * 6
    summary = run(sizes, links, clusters=k).summary
    planned_s = 3 * round_seconds(Topology.contiguous(6, k), network_of(sizes, links), "serial")

    messages = messages_per_round("tol-fl", 6, k)
    assert summary["messages"] == {name: 3 * count for name, count in messages.items()}
    assert summary["bytes"] == 3 * messages["unicast"] * MODEL_BYTES
    # A run has an end, too: one more round of small messages, in which nobody trains.
    small_hop_s = 0.01 + 64 * 8 / 1e6
    end_s = float(str(summary["virtual_s"])) - planned_s
    assert 0.0 <= end_s <= (k + 3) * small_hop_s


@pytest.mark.parametrize("scheme", ["fl", "sbt"])
def test_star_and_chain_are_counted_as_the_ledger_counts_them(scheme: str) -> None:
    summary = run([3] * 5, LinkModel(), scheme=scheme).summary
    messages = messages_per_round(scheme, 5, 1 if scheme == "fl" else 5)

    assert summary["messages"] == {name: 3 * count for name, count in messages.items()}


def test_the_papers_messages_for_ten_devices_in_five_clusters() -> None:
    in_papers_accounting = [
        messages_per_round(*of)["paper"] for of in (("fl", 10, 1), ("sbt", 10, 10), ("tol-fl", 10, 5))
    ]

    assert in_papers_accounting == [20, 9, 15]


@pytest.mark.parametrize("uplink", UPLINKS)
@pytest.mark.parametrize("k", [1, 2, 3, 6, 12])
def test_a_head_that_dies_with_contributions_in_hand_stalls_the_fleet_for_no_longer_than_planned(
    k: int, uplink: Uplink
) -> None:
    links = LinkModel(latency_s=0.25, bandwidth_bps=192.0, uplink=uplink, seconds_per_sample=1.0)
    topology, sizes = Topology.contiguous(12, k), [4] * 12
    stalls = []
    for head, *_ in topology.clusters:
        result = run(sizes, links, clusters=k, fail=f"device:{head}@1/chain", on_head_failure="elect")
        stalls.append(float(str(result.summary["stall_s"])))
    planned = stall_seconds(topology, network_of(sizes, links), uplink, "elect")

    assert sum(stalls) / len(stalls) <= planned["server"] + 1e-9
    if k == 1:
        assert stalls == pytest.approx([planned["server"]])
    assert planned["client"] == Timing.localhost().crash_detection_s


def test_hand_worked_times() -> None:
    # Training 4 s, a model 1 s on its way, latency 0.25 s; six devices.
    network = Network((4.0,) * 6, 24, (192.0,) * 6, 0.25, 0.5)
    times = {
        (k, uplink): round_seconds(Topology.contiguous(6, k), network, uplink) for k in (1, 2, 6) for uplink in UPLINKS
    }

    assert times[1, "serial"] == 1.25 + 4 + 5 * 1 + 0.25
    assert times[1, "parallel"] == 1.25 + 4 + 1.25
    assert times[2, "serial"] == 2 * 1.25 + 4 + 2 * 1 + 0.25 + 1.25
    assert times[2, "parallel"] == 2 * 1.25 + 4 + 1.25 + 1.25
    assert times[6, "serial"] == times[6, "parallel"] == 1.25 + 4 + 5 * 1.25
    # Two of the three members are left to report again, one to the other; the head before sends its mean again.
    assert stall_seconds(Topology.contiguous(6, 2), network, "serial", "elect")["server"] == 0.5 + (1.25 + 2.25) / 2
    assert stall_seconds(Topology.contiguous(6, 2), network, "serial", "drop")["server"] == 0.5


def test_a_slow_link_slows_down_what_goes_over_it() -> None:
    fast = Network((1.0,) * 4, 24, (192.0,) * 4, 0.0, 0.5)
    slow_member = Network((1.0,) * 4, 24, (192.0, 192.0, 192.0, 96.0), 0.0, 0.5)

    # To device 3 and back each transfer takes 2 s instead of 1 s.
    assert round_seconds(Topology.contiguous(4, 2), fast, "parallel") == 1 + 2 + 1 + 1
    assert round_seconds(Topology.contiguous(4, 1), fast, "parallel") == 1 + 1 + 1
    assert round_seconds(Topology.contiguous(4, 1), slow_member, "parallel") == 2 + 1 + 2


@pytest.mark.parametrize("bandwidth_bps", [(0.0, 1.0), (1.0,), (float("nan"), 1.0), (float("inf"), 1.0)], ids=str)
def test_a_bandwidth_that_cannot_be_is_refused(bandwidth_bps: tuple[float, ...]) -> None:
    with pytest.raises(SpecError, match="bandwidth"):
        Network((1.0, 1.0), 24, bandwidth_bps, 0.0, 0.5)


@pytest.mark.parametrize("model", [ModelSpec(), ModelSpec(hidden=(), code=3), ModelSpec(hidden=(7, 5, 3), code=2)])
def test_the_model_that_travels_has_the_size_of_the_autoencoder(model: ModelSpec) -> None:
    assert model_bytes(11, model) == Autoencoder(11, model.hidden, model.code).initial(0).nbytes


@given(n=st.integers(2, 50), k=st.integers(1, 50))
def test_who_is_cut_off_is_a_share_of_the_survivors(n: int, k: int) -> None:
    k = min(n, k)
    clusters = Topology.contiguous(n, k).clusters
    by_hand = sum(len(members) for _, *members in clusters) / k / (n - 1)

    assert share_cut_off(n, k, "drop") == pytest.approx(by_hand)
    assert share_cut_off(n, k, "elect") == 0.0


@given(st.integers(2, 2000))
def test_the_usual_clusters_go_from_star_to_chain(n_devices: int) -> None:
    clusters = usual_clusters(n_devices)

    assert clusters[0] == 1
    assert clusters[-1] == n_devices
    assert all(1 <= k <= n_devices for k in clusters)


def test_every_kind_of_message_is_in_the_formulas() -> None:
    ledger = run([3] * 6, LinkModel(), clusters=3).ledger
    by_kind = {kind: sum(entry.kind is kind for entry in ledger.entries) / 3 for kind in Kind}

    assert by_kind == {Kind.REPORT: 6 - 3, Kind.MEAN: 3 - 1, Kind.MODEL: 6 - 1}
