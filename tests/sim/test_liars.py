"""Liars and defences in a simulated fleet: off changes no bit, on keeps the model near that of honest devices."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from tests.sim.fleets import closed, model_of
from tolfl.core.contribution import Vector
from tolfl.core.records import RunStarted
from tolfl.core.spec import BlobsSpec, DefenceSpec, RunSpec
from tolfl.runs.directory import models_sha256
from tolfl.sim.simulation import Run, run

BLOBS = BlobsSpec(samples_per_device=40, n_test=100, n_validation=0)
SPEC = RunSpec(data="blobs", blobs=BLOBS, devices=6, clusters=2, rounds=4)
#: One of three in the first cluster.
ATTACK = "1:flip,samples=1000"
STRONG = DefenceSpec("median", clip_to_median=1.0, max_samples=40, chain_clip=5.0)


def ran(**fields: object) -> Run:
    (result,) = run(msgspec.structs.replace(SPEC, **fields))
    return result


def sha(result: Run) -> str | None:
    return models_sha256(result.models)


def params(result: Run) -> Vector:
    return np.concatenate([tensor.ravel() for tensor in model_of(result).tensors().values()])


@pytest.mark.parametrize("scheme", ["tol-fl", "fl", "sbt", "ifca", "fesem", "fedgroup"])
def test_limits_that_nobody_reaches_leave_the_model_bit_for_bit(scheme: str) -> None:
    idle = DefenceSpec(clip_norm=1e9, max_samples=10**6)

    plain, defended = ran(scheme=scheme, rounds=3), ran(scheme=scheme, rounds=3, defence=idle)
    assert sha(plain) == sha(defended)
    assert [line.version for line in closed(plain)] == [line.version for line in closed(defended)]


def test_a_limit_on_single_devices_gives_one_model_in_every_layout() -> None:
    limits = DefenceSpec(clip_norm=0.5, max_samples=30)
    found = [ran(clusters=k, defence=limits, liars=ATTACK) for k in (1, 2, 6)]

    assert len({sha(result) for result in found}) == 1
    assert sha(found[0]) != sha(ran(liars=ATTACK, defence=DefenceSpec(max_samples=30)))


def test_a_robust_rule_depends_on_the_clusters_and_the_records_say_so() -> None:
    found = [ran(clusters=k, defence=DefenceSpec("median")) for k in (1, 2)]

    assert sha(found[0]) != sha(found[1])
    started = found[0].records[0]
    assert isinstance(started, RunStarted)
    assert started.defence == found[0].summary["defence"] == "median; the model depends on the clusters"


def test_clusters_of_one_device_have_nobody_to_compare_with() -> None:
    assert sha(ran(scheme="sbt", defence=DefenceSpec("median"))) == sha(ran(scheme="sbt"))


def test_a_lie_spoils_the_model_and_the_defence_holds_it_off() -> None:
    honest, attacked, defended = ran(), ran(liars=ATTACK), ran(liars=ATTACK, defence=STRONG)

    spoilt, kept = (np.linalg.norm(params(one) - params(honest)) for one in (attacked, defended))
    assert kept < 0.2 * spoilt
    assert attacked.summary["liars"] == ATTACK


def test_a_claimed_count_is_in_the_records_unless_it_is_capped() -> None:
    believed, capped = ran(liars=ATTACK), ran(liars=ATTACK, defence=DefenceSpec(max_samples=40))

    assert {line.n_samples for line in closed(believed)} == {5 * 40 + 1000}
    assert {line.n_samples for line in closed(capped)} == {6 * 40}


def test_a_cluster_whose_head_dies_is_defended_by_the_next_one() -> None:
    fields = {"fail": "server@2/chain", "liars": ATTACK, "defence": STRONG}
    attacked, defended = ran(fail="server@2/chain", liars=ATTACK), ran(**fields)
    honest = ran(fail="server@2/chain")

    assert closed(defended)[-1].included == (1, 2, 3, 4, 5)
    # Two are left in the cluster of the liar, and their median is their mean: the other defences hold.
    spoilt, kept = (np.linalg.norm(params(one) - params(honest)) for one in (attacked, defended))
    assert kept < 0.2 * spoilt


def test_a_long_chain_is_resolved_without_recursion() -> None:
    small = BlobsSpec(samples_per_device=2, n_features=2, n_test=4, n_validation=0)
    fields = {"blobs": small, "devices": 1200, "clusters": 1200, "rounds": 1, "defence": DefenceSpec(chain_clip=1.0)}

    assert closed(ran(**fields))[0].n_samples == 2400
