"""What the names of schemes say: clusters, wiring, hosts, policies and failure plans."""

from __future__ import annotations

import msgspec
import pytest

from tests.sim.fleets import FULL_BATCH
from tolfl.core.errors import SpecError, UnknownNameError
from tolfl.core.spec import POLICIES, RunSpec
from tolfl.learners.layouts import (
    PLAIN,
    SCHEMES,
    check_scheme,
    failure_plan,
    hosts,
    is_plain,
    layout,
    n_clusters,
    policy,
    protocol_policy,
    scheme_of,
    wiring,
)

SIX = RunSpec(data="blobs", devices=6, clusters=3, rounds=5, train=FULL_BATCH)
STARS = ("fedgroup", "ifca", "fesem")

every_scheme = pytest.mark.parametrize("name", SCHEMES)


def changed(**changes: object) -> RunSpec:
    return msgspec.structs.replace(SIX, **changes)


@every_scheme
def test_a_scheme_has_policies_that_exist_and_refuses_others(name: str) -> None:
    known = SCHEMES[name].policies
    unknown = next(one for one in POLICIES if one not in known)

    assert set(known) <= set(POLICIES)
    assert policy(changed(scheme=name)) == known[0]
    assert policy(changed(scheme=name, on_head_failure=known[1])) == known[1]
    with pytest.raises(SpecError, match=f"policy '{unknown}' does not apply to {name}; choose one of: "):
        policy(changed(scheme=name, on_head_failure=unknown))
    with pytest.raises(SpecError, match="does not apply to"):
        check_scheme(changed(scheme=name, on_head_failure=unknown))


@every_scheme
def test_a_scheme_lays_out_every_device_once(name: str) -> None:
    for n_devices in (1, 2, 7):
        spec = changed(scheme=name, devices=n_devices, clusters=min(3, n_devices))

        assert sorted(d for cluster in layout(spec).clusters for d in cluster) == list(range(n_devices))
        assert len(layout(spec).clusters) == n_clusters(spec)


@every_scheme
def test_a_scheme_tells_whom_its_devices_report_to(name: str) -> None:
    spec = changed(scheme=name)
    clusters, wired = layout(spec), wiring(spec)

    assert sorted(wired.cluster_of) == sorted(clusters.cluster_of)
    assert wired.server == clusters.server
    assert (wired == clusters) is (name not in STARS)
    assert protocol_policy(spec) in ("elect", "drop", "isolate", "freeze")


def test_the_policy_of_a_scheme_is_that_of_its_protocol_unless_all_report_to_one_head() -> None:
    assert {name: protocol_policy(changed(scheme=name)) for name in SCHEMES} == {
        "tol-fl": "elect",
        "fl": "isolate",
        "sbt": "elect",
        "batch": "freeze",
        "batch-small": "freeze",
        "fedgroup": "elect",
        "ifca": "elect",
        "fesem": "elect",
    }


def test_heads_of_clusters_host_models_where_there_are_several() -> None:
    assert {name: hosts(changed(scheme=name)) for name in SCHEMES if hosts(changed(scheme=name))} == dict.fromkeys(
        STARS, (0, 2, 4)
    )
    assert hosts(changed(scheme="ifca", topology="1,0|2,5,3|4")) == (1, 2, 4)
    assert wiring(changed(scheme="ifca", topology="1,0|2,5,3|4")).clusters == ((1, 0, 2, 5, 3, 4),)


def test_fl_is_a_star_sbt_a_chain_and_tol_fl_what_is_asked_for() -> None:
    shapes = {
        name: [len(cluster) for cluster in layout(changed(scheme=name)).clusters]
        for name in ("fl", "sbt", "tol-fl", "batch")
    }

    assert shapes == {"fl": [6], "sbt": [1] * 6, "tol-fl": [2, 2, 2], "batch": [6]}


def test_a_layout_of_its_own_is_for_tol_fl_and_for_schemes_whose_shape_it_has() -> None:
    spec = RunSpec(data="blobs", devices=3, topology="2,0|1")

    assert layout(spec).clusters == ((2, 0), (1,))
    assert layout(msgspec.structs.replace(spec, scheme="fl", topology="2,0,1")).server == 2
    assert layout(msgspec.structs.replace(spec, scheme="sbt", topology="2|0|1")).server == 2
    for scheme in ("fl", "sbt", "batch"):
        with pytest.raises(SpecError, match="has a layout of its own; use tol-fl"):
            check_scheme(msgspec.structs.replace(spec, scheme=scheme))


def test_an_unknown_scheme_is_refused_with_those_that_exist() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown scheme 'gossip'; choose one of: batch,.* tol-fl"):
        scheme_of(RunSpec(data="blobs", scheme="gossip"))


def test_baselines_without_rounds_are_no_schemes() -> None:
    assert [is_plain(changed(scheme=name)) for name in PLAIN] == [True] * 3
    assert not any(is_plain(changed(scheme=name)) for name in SCHEMES)
    check_scheme(changed(scheme="pca-16"))


def test_a_failure_plan_follows_the_layout_of_the_scheme() -> None:
    spec = changed(fail="cluster:0@1")

    assert [f.device for f in failure_plan(spec).failures] == [0, 1]
    assert len(failure_plan(msgspec.structs.replace(spec, scheme="fl")).failures) == 6


def test_a_failure_plan_knows_the_rounds_of_all_stages() -> None:
    spec = changed(fail="device:1@7")

    assert failure_plan(spec, (("scaling", 2), ("training", 8))).failures[0].round_index == 7
    with pytest.raises(SpecError):
        check_scheme(spec)
