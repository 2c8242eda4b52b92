"""The grammar of failure plans: every form, and one clear sentence for every form that is wrong."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tolfl.core.errors import PlanError, SpecError
from tolfl.core.failures import Cut, Failure, FailurePlan, Phase
from tolfl.core.topology import Topology

SIX = Topology.contiguous(6, 3)  # 0,1 | 2,3 | 4,5


STAGES = (("scaling", 2), ("training", 90), ("thresholds", 8))


def plan(
    text: str,
    topology: Topology = SIX,
    n_rounds: int = 100,
    seed: int = 0,
    stages: Sequence[tuple[str, int]] = (),
) -> FailurePlan:
    return FailurePlan.parse(text, topology, n_rounds, seed, stages)


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
        ("head@50/chain", [Failure(0, 50, Phase.CHAIN)]),
        ("head:0@50", [Failure(0, 50)]),
        ("head:1@50-60", [Failure(2, 50, returns_at=60)]),
        ("closer@50/distribute", [Failure(4, 50, Phase.DISTRIBUTE)]),
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
    assert plan("head@1; head:1@2; closer@3", layout).failures == (Failure(5, 1), Failure(3, 2), Failure(1, 3))


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
        ("head:3@5", "there is no cluster 3; ids go from 0 to 2"),
        ("head:@5", "'' is not a cluster id"),
        ("head:one@5", "'one' is not a cluster id"),
        ("closer:2@5", "closer takes no id; for another device write device:2"),
        ("server:3@1", "server takes no id; for another device write device:3"),
        (f"device:{'9' * 5000}@5", "is not a device id"),
        (f"server@{'9' * 5000}", "say when"),
        ("cut:0|1|2@5", "name two sides"),
        ("cut:0,1|1,2@5", "name two sides"),
        ("cut:0|9@5", "there is no device 9"),
        ("cut:0|1", "say when"),
        ("random:2", "probability"),
        ("random:-0.1", "probability"),
        ("random:nan", "probability"),
        ("random:often", "probability"),
        ("random:0.1@5", "probability"),
        ("cut:0|1@1/chain", "a cut has no phase"),
        ("device:3@2-200", "round 200 never comes in a run of 100 rounds; leave out the return"),
        ("head@thresholds:2", "no stage 'thresholds', this run has none; name the round by its number, as in @50"),
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


def test_a_plan_knows_who_is_cut_off_and_when() -> None:
    cut = plan("cut:3|4,5@50-55; cut:0@90")

    assert [at for at in range(100) if cut.is_cut(5, 3, at)] == [50, 51, 52, 53, 54]
    assert [at for at in range(100) if cut.is_cut(0, 1, at)] == list(range(90, 100))
    assert not any(cut.is_cut(4, 5, at) for at in range(100))


# -- rounds by stage --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "failures"),
    [
        ("head@scaling:0", [Failure(0, 0)]),
        ("head@training:0", [Failure(0, 2)]),
        ("closer@thresholds:2", [Failure(4, 94)]),
        ("device:3@scaling:0-thresholds:1/chain", [Failure(3, 0, Phase.CHAIN, 93)]),
        ("device:3@5-thresholds:7", [Failure(3, 5, returns_at=99)]),
        ("device:3@scaling:1-100", [Failure(3, 1, returns_at=100)]),
    ],
)
def test_a_round_may_be_named_by_its_stage(text: str, failures: list[Failure]) -> None:
    assert list(plan(text, stages=STAGES).failures) == failures


def test_a_cut_may_last_for_a_stage() -> None:
    assert plan("cut:0,1@training:0-thresholds:0", stages=STAGES).cuts == (Cut((0, 1), (2, 3, 4, 5), 2, 92),)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("head@treshold:1", "no stage 'treshold'; choose one of: scaling (2 rounds), training (90 rounds), thresholds"),
        ("head@treshold:1", "did you mean 'thresholds'?"),
        (
            "head@scaling:2",
            "stage scaling has no round 2; rounds of a stage count from 0: scaling (2 rounds), training",
        ),
        ("head@scaling:1-scaling:2", "stage scaling has no round 2"),
        ("head@thresholds:0-training:5", "a return at 7 is not after the failure at 92"),
        ("head@thresholds", "say when, as in @50 or @50-60 or @scaling:0"),
        ("head@thresholds:", "say when"),
        ("head@Thresholds:1", "say when"),
    ],
)
def test_a_stage_or_round_that_does_not_exist_gets_a_sentence_with_those_that_do(text: str, problem: str) -> None:
    with pytest.raises(PlanError) as caught:
        plan(text, stages=STAGES)

    assert problem in str(caught.value)
    assert str(caught.value).startswith(f"failure plan {text!r}: ")


def test_one_round_is_not_called_rounds() -> None:
    with pytest.raises(PlanError, match=r"choose one of: scaling \(1 round\)$"):
        plan("head@x:0", stages=[("scaling", 1)])


names = st.from_regex(r"[a-z][a-z_]{0,9}", fullmatch=True)
staged = st.lists(st.tuples(names, st.integers(1, 9)), min_size=1, max_size=4, unique_by=lambda stage: stage[0])
devices = st.integers(0, 5)
who = st.one_of(
    st.sampled_from(["server", "client", "head", "closer", "head:1", "cluster:2"]),
    st.lists(devices, min_size=1, max_size=3).map(lambda ids: f"device:{','.join(map(str, ids))}"),
    st.lists(devices, min_size=1, max_size=5, unique=True).map(lambda ids: f"cut:{','.join(map(str, ids))}"),
    st.tuples(devices, devices).filter(lambda ids: ids[0] != ids[1]).map(lambda ids: f"cut:{ids[0]}|{ids[1]}"),
)


@st.composite
def written_twice(draw: st.DrawFn) -> tuple[str, str, list[tuple[str, int]]]:
    """Return a plan with rounds by stage, the same with rounds of the run, and the stages."""
    stages = draw(staged)
    rounds = [f"{name}:{index}" for name, n_rounds in stages for index in range(n_rounds)]
    by_stage, by_number = [], []
    for one in draw(st.lists(who, max_size=5)):
        first = draw(st.integers(0, len(rounds) - 1))
        last = draw(st.none() | st.integers(first + 1, len(rounds) - 1)) if first + 1 < len(rounds) else None
        phase = (
            "" if one.startswith("cut") else draw(st.sampled_from(["", "/train", "/report", "/chain", "/distribute"]))
        )
        by_stage.append(f"{one}@{rounds[first]}{'' if last is None else f'-{rounds[last]}'}{phase}")
        by_number.append(f"{one}@{first}{'' if last is None else f'-{last}'}{phase}")
    return "; ".join(by_stage), "; ".join(by_number), stages


@given(written_twice())
def test_a_plan_by_stages_is_the_plan_by_rounds_of_the_run(written: tuple[str, str, list[tuple[str, int]]]) -> None:
    by_stage, by_number, stages = written
    n_rounds = sum(n for _, n in stages)

    assert plan(by_stage, n_rounds=n_rounds, stages=stages) == plan(by_number, n_rounds=n_rounds)


@given(written_twice(), st.sampled_from(["", "random:0.2", "random:0.05/chain"]), st.integers(0, 99))
def test_a_plan_is_written_as_it_can_be_read(
    written: tuple[str, str, list[tuple[str, int]]], random: str, seed: int
) -> None:
    by_stage, _, stages = written
    n_rounds = sum(n for _, n in stages)
    once = plan(f"{by_stage}; {random}", n_rounds=n_rounds, seed=seed, stages=stages)

    assert plan(str(once), n_rounds=n_rounds, seed=seed + 1) == once


@given(st.text("servhad:@0123-/|,;x ", max_size=20))
def test_any_text_is_a_plan_or_gets_a_sentence(text: str) -> None:
    try:
        found = plan(text, stages=STAGES)
    except PlanError as error:
        assert str(error).startswith("failure plan ")  # noqa: PT017  (reading it is as good)
    else:
        assert plan(str(found)) == found


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
