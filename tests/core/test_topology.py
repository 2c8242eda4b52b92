"""Clusters, the chain of their heads, and layouts that cannot be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tolfl.core.errors import SpecError
from tolfl.core.topology import Topology


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))))
def test_contiguous_clusters_cover_every_device_once_in_sizes_that_differ_by_at_most_one(
    shape: tuple[int, int],
) -> None:
    n_devices, n_clusters = shape
    topology = Topology.contiguous(n_devices, n_clusters)

    sizes = [len(cluster) for cluster in topology.clusters]
    assert [device for cluster in topology.clusters for device in cluster] == list(range(n_devices))
    assert (topology.n_devices, topology.n_clusters) == (n_devices, n_clusters)
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


def test_a_written_layout_keeps_its_order() -> None:
    topology = Topology.parse("2, 0|1 ,3", n_devices=4)

    assert topology.clusters == ((2, 0), (1, 3))
    assert (topology.server, topology.client) == (2, 0)
    assert topology.cluster_of == {2: 0, 0: 0, 1: 1, 3: 1}


def test_the_client_is_the_device_after_the_server_even_if_it_heads_a_cluster_of_its_own() -> None:
    assert Topology.contiguous(3, 3).client == 1
    assert Topology.contiguous(3, 1).client == 1
    assert Topology.contiguous(1, 1).client is None


def test_the_first_live_device_of_a_cluster_is_its_head() -> None:
    topology = Topology.parse("2,0|1,3|4", n_devices=5)

    assert topology.heads(range(5)) == [2, 1, 4]
    assert topology.heads({0, 1, 3}) == [0, 1]
    assert topology.heads([3]) == [3]
    assert topology.heads(set()) == []


@pytest.mark.parametrize(
    "text",
    ["0,1", "0,1|1,2", "0|1|3", "0,1,2,3", "a|b", "", "0,1|", "0;1;2", "-1,0|1"],
    ids=lambda text: text or "empty",
)
def test_a_layout_that_does_not_name_every_device_once_is_refused_by_its_text(text: str) -> None:
    with pytest.raises(SpecError, match="topology ") as caught:
        Topology.parse(text, n_devices=3)

    assert repr(text) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_more_clusters_than_devices_are_refused_with_both_numbers() -> None:
    with pytest.raises(SpecError, match=r"^5 clusters for 4 devices; use at most 4$"):
        Topology.contiguous(n_devices=4, n_clusters=5)


@pytest.mark.parametrize(("n_devices", "n_clusters"), [(0, 1), (-1, 1), (3, 0), (3, -2)])
def test_a_fleet_needs_a_device_and_a_cluster(n_devices: int, n_clusters: int) -> None:
    with pytest.raises(SpecError, match="at least 1 is needed"):
        Topology.contiguous(n_devices, n_clusters)
