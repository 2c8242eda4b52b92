"""The grammar of failure plans: every form, and one clear sentence for every form that is wrong."""

from __future__ import annotations

import pytest

from tolfl.core.errors import PlanError, SpecError
from tolfl.core.failures import Cut, Failure, FailurePlan, Phase
from tolfl.core.topology import Topology

SIX = Topology.contiguous(6, 3)  # 0,1 | 2,3 | 4,5


def plan(text: str, topology: Topology = SIX, n_rounds: int = 100, seed: int = 0) -> FailurePlan:
    return FailurePlan.parse(text, topology, n_rounds, seed)


@pytest.mark.parametrize(
    ("text", "failures"),
    [
        ("", []),
        (" ; ;", []),
        ("client@50", [Failure(1, 50)]),
        ("server@50", [Failure(0, 50)]),
        ("server@0/train", [Failure(0, 0, Phase.TRAIN)]),
        ("server@50/report", [Failure(0, 50, Phase.REPORT)]),
        ("server@50/chain", [Failure(0, 50, Phase.CHAIN)]),
        ("server@50/distribute", [Failure(0, 50, Phase.DISTRIBUTE)]),
        ("device:3@50", [Failure(3, 50)]),
        ("device:3@50-60", [Failure(3, 50, returns_at=60)]),
        ("device:3,5@50-60/chain", [Failure(3, 50, Phase.CHAIN, 60), Failure(5, 50, Phase.CHAIN, 60)]),
        ("cluster:2@7", [Failure(4, 7), Failure(5, 7)]),
        (" server @ 9 ; client@3 ", [Failure(1, 3), Failure(0, 9)]),
        ("random:0", []),
    ],
)
def test_every_form_of_a_failure_is_read(text: str, failures: list[Failure]) -> None:
    assert list(plan(text).failures) == failures
    assert plan(text).cuts == ()


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("cut:3|4,5@50-55", Cut((3,), (4, 5), 50, 55)),
        ("cut:0,1|2@3", Cut((0, 1), (2,), 3)),
        ("cut:0,1@3-4", Cut((0, 1), (2, 3, 4, 5), 3, 4)),
    ],
)
def test_every_form_of_a_cut_is_read(text: str, cut: Cut) -> None:
    assert plan(text).cuts == (cut,)
    assert plan(text).failures == ()


def test_a_cut_separates_its_sides_and_nobody_else() -> None:
    cut = Cut((3,), (4, 5), 0)

    assert cut.separates(3, 4)
    assert cut.separates(5, 3)
    assert not cut.separates(4, 5)
    assert not cut.separates(3, 0)


def test_names_follow_the_layout() -> None:
    layout = Topology.parse("5,4|3,2|1,0", n_devices=6)

    assert plan("server@1; client@1", layout).failures == (Failure(4, 1), Failure(5, 1))
    assert [failure.device for failure in plan("cluster:2@1", layout).failures] == [0, 1]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("server", "say when"),
        ("server@", "say when"),
        ("server@x", "say when"),
        ("server@-3", "say when"),
        ("server@3-", "say when"),
        ("server@1.5", "say when"),
        ("server@100", "round 100 never comes in a run of 100 rounds"),
        ("server@5-5", "a return at 5 is not after the failure at 5"),
        ("server@5-4", "a return at 4 is not after the failure at 5"),
        ("server@5/lunch", "no phase 'lunch'; use one of train, report, chain, distribute"),
        ("device:6@5", "there is no device 6; ids go from 0 to 5"),
        ("device:@5", "'' is not a device id"),
        ("device:-1@5", "'-1' is not a device id"),
        ("device:one@5", "'one' is not a device id"),
        ("device:1,,2@5", "'' is not a device id"),
        ("cluster:3@5", "there is no cluster 3; ids go from 0 to 2"),
        ("cut:0|1|2@5", "name two sides"),
        ("cut:0,1|1,2@5", "name two sides"),
        ("cut:0|9@5", "there is no device 9"),
        ("cut:0|1", "say when"),
        ("random:2", "probability"),
        ("random:-0.1", "probability"),
        ("random:nan", "probability"),
        ("random:often", "probability"),
        ("random:0.1@5", "probability"),
        ("meteor@5", "start with client, server, device:ID"),
        ("@5", "start with client, server, device:ID"),
    ],
)
def test_a_plan_that_cannot_be_read_is_named_with_what_is_wrong(text: str, problem: str) -> None:
    with pytest.raises(PlanError) as caught:
        plan(text)

    assert problem in str(caught.value)
    assert str(caught.value).startswith(f"failure plan {text!r}: ")
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, SpecError | ValueError)


def test_only_the_entry_at_fault_is_named() -> None:
    with pytest.raises(PlanError, match=r"^failure plan 'device:9@5': "):
        plan("server@3; device:9@5; client@1")


def test_one_device_has_no_client() -> None:
    with pytest.raises(PlanError, match="no client in a run with one device"):
        plan("client@1", Topology.contiguous(1, 1))


def test_a_cut_needs_somebody_on_both_sides() -> None:
    with pytest.raises(PlanError):
        plan("cut:0@1", Topology.contiguous(1, 1))


def test_a_device_dies_once_per_life() -> None:
    twice = plan("device:3@5; device:3@9; device:4@5-8; device:4@6; device:4@8")

    assert twice.of_device(3) == (Failure(3, 5),)
    assert twice.of_device(4) == (Failure(4, 5, returns_at=8), Failure(4, 8))


def test_the_first_round_that_is_disturbed_is_known() -> None:
    assert plan("").first_round is None
    assert plan("server@9; cut:0|1@4; device:3@6").first_round == 4
    assert plan("random:1").first_round == 0


# -- random failures --------------------------------------------------------------------------------------------------

MANY = Topology.contiguous(4000, 10)


def test_random_failures_come_at_the_rate_asked_for() -> None:
    rounds = [failure.round_index for failure in plan("random:0.1", MANY, n_rounds=1000).failures]

    assert len(rounds) == 4000  # 0.9 ** 1000 is nothing
    assert sum(rounds) / 4000 == pytest.approx(9.0, abs=0.5)  # mean of rounds survived: (1 - q) / q
    assert sum(at == 0 for at in rounds) / 4000 == pytest.approx(0.1, abs=0.02)


def test_random_failures_depend_on_seed_and_device_but_not_on_rounds_or_layout() -> None:
    short = plan("random:0.1/chain", MANY, n_rounds=5).failures
    long = plan("random:0.1/chain", Topology.contiguous(4000, 1), n_rounds=50).failures

    assert short == tuple(failure for failure in long if failure.round_index < 5)
    assert short != plan("random:0.1/chain", MANY, n_rounds=5, seed=1).failures
    assert {failure.phase for failure in short} == {Phase.CHAIN}


def test_certain_failures_hit_everybody_in_the_first_round() -> None:
    assert [(f.device, f.round_index) for f in plan("random:1").failures] == [(device, 0) for device in range(6)]
