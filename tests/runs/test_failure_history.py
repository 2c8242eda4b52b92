"""What failed, who noticed, who took over, what it cost: numbers worked out by hand, and any order of lines."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runs.recorded_runs import closed, failed, lost_head, started, taken_over
from tolfl.core.records import AnyRecord, Joined, RoundClosed, RunEnded, RunStarted
from tolfl.core.spec import BlobsSpec, RunSpec
from tolfl.runs.descriptions import (
    COLUMNS,
    describe,
    incident_cells,
    samples_lost,
    sentence,
    what_failed,
    who_came_back,
    who_noticed,
    who_took_over,
)
from tolfl.runs.failure_history import FailureHistory, first_states, last_states
from tolfl.runs.run_folder import read_run
from tolfl.runs.run_report import report_context
from tolfl.sim.simulation import run


def test_a_killed_head_is_one_incident_with_all_that_came_of_it() -> None:
    history = FailureHistory.of(lost_head())

    (incident,) = history.incidents
    (failure,) = incident.failures
    assert (failure.device, failure.what, failure.round, failure.head_of) == (0, "died (train)", 1, 0)
    assert (failure.found_after_s, failure.found_by, failure.found_how) == (0.25, 3, "connection refused")
    assert [(line.device, line.previous) for line in incident.takeovers] == [(1, 0)]
    assert (incident.stall_s, incident.samples_before, incident.samples_after) == (0.5, 190, 90)
    assert (incident.samples_lost, history.dead, history.unexplained_stall_s) == (100, {0}, 0.0)


def test_the_incident_reads_as_a_person_would_tell_it() -> None:
    assert sentence(FailureHistory.of(lost_head()).incidents[0]) == (
        "In round 1, 1.5 s into the run: device 0, head of cluster 0, died (train); took over: device 1 for 0 in "
        "cluster 0 after 0.50 s. Device 3 noticed after 0.25 s. It held up the training for 0.50 s. "
        "Samples lost: 100 of 190."
    )


def test_a_round_is_named_by_its_stage_where_the_run_has_stages() -> None:
    lines = lost_head()
    lines[0] = msgspec.structs.replace(started(), learn="detector", stages=(("scaling", 1), ("thresholds", 2)))
    history = FailureHistory.of(lines)

    assert sentence(history.incidents[0], history.stages).startswith("In round 1 (thresholds:0), 1.5 s into the run")
    assert incident_cells(history.incidents[0], history.stages)[0].text == "1 (thresholds:0)"


def test_deaths_between_two_closed_rounds_are_one_incident() -> None:
    lines: list[AnyRecord] = [started(), closed(0, 1.0, (0, 1, 2, 3))]
    lines += [failed(1.1, 3, 1, "died (train)"), failed(1.2, 1, 1, "died (train)"), failed(1.3, 2, 1, "died (chain)")]
    lines += [closed(1, 2.0, (0,), (0,), stall_s=0.25)]

    (incident,) = FailureHistory.of(lines).incidents
    assert incident.devices == [1, 2, 3]
    assert what_failed(incident) == "devices 1 and 3 died (train); device 2, head of cluster 1, died (chain)"
    assert (incident.stall_s, samples_lost(incident)) == (0.25, "90 of 190")


def test_a_second_death_after_a_return_is_another_one() -> None:
    lines: list[AnyRecord] = [started(), closed(0, 1.0, (0, 1, 2, 3)), failed(1.1, 3, 1, "died (train)")]
    lines += [closed(1, 2.0, (0, 1, 2)), failed(2.1, 3, 2, "came back"), closed(2, 3.0, (0, 1, 2))]
    lines += [Joined(time_s=3.0, device=3, round=3, incarnation=1), failed(4.0, 3, 3, "died (report)")]
    history = FailureHistory.of(lines)

    assert [who_came_back(incident) for incident in history.incidents] == ["device 3, round 2", "no"]
    assert [incident.round for incident in history.incidents] == [1, 3]
    assert history.dead == {3}
    assert samples_lost(history.incidents[1]) == "all 150: no round was closed after it"


def test_a_cut_heals_and_nobody_is_dead() -> None:
    lines: list[AnyRecord] = [started(), closed(0, 1.0, (0, 1, 2, 3)), failed(1.1, None, 1, "cut 3 | 0,1")]
    lines += [closed(1, 2.0, (0, 1, 2, 3)), failed(2.1, None, 2, "healed 3 | 0,1"), closed(2, 3.0, (0, 1, 2, 3))]
    history = FailureHistory.of(lines)

    assert what_failed(history.incidents[0]) == "device 3 cut off from devices 0 and 1"
    assert who_came_back(history.incidents[0]) == "the link, round 2"
    assert (history.dead, samples_lost(history.incidents[0])) == (set(), "0 of 190")


def test_a_frozen_device_is_found_dead_and_thaws() -> None:
    lines: list[AnyRecord] = [started(), closed(0, 1.0, (0, 1, 2, 3)), failed(2.0, 1, 1, "frozen")]
    lines += [failed(3.0, 1, 1, "found dead: silent", by=0)]

    assert (FailureHistory.of(lines).frozen, FailureHistory.of(lines).dead) == ({1}, set())
    assert FailureHistory.of(lines).incidents[0].failures[0].found_after_s == 1.0
    thawed = FailureHistory.of([*lines, failed(4.0, 1, 1, "thawed")])
    assert (thawed.frozen, thawed.dead) == (set(), set())


def test_a_device_that_thaws_in_time_costs_no_samples() -> None:
    lines: list[AnyRecord] = [started(), closed(0, 1.0, (0, 1, 2, 3)), failed(1.1, 1, 1, "frozen")]
    lines += [failed(1.5, 1, 1, "thawed"), closed(1, 2.0, (0, 1, 2, 3), stall_s=0.25)]

    assert samples_lost(FailureHistory.of(lines).incidents[0]) == "0 of 190"


def in_halves() -> list[AnyRecord]:
    """Return what four devices write between which a link is cut that no record tells of; each half trains on."""
    both = {
        (0, 1): [("a1", 1, 2.1), ("a2", 2, 3.1), ("a3", 3, 4.1)],
        (2, 3): [("b1", 1, 2.2), ("b2", 2, 3.2), ("b3", 3, 4.2)],
    }
    lines: list[AnyRecord] = [started(), closed(0, 1.0, (0, 1, 2, 3))]
    lines += [failed(1.5, 2, 1, "found dead: silent for 2 s", by=0), failed(1.5, 3, 1, "found dead: silent", by=0)]
    lines += [failed(1.6, 0, 1, "found dead: silent for 2 s", by=3), failed(1.6, 1, 1, "found dead: silent", by=3)]
    for half, rounds in both.items():
        parent = "0-(0, 1, 2, 3)"
        for name, index, time_s in rounds:
            one = closed(index, time_s, half, half[:1], stall_s=0.5 if index == 1 else 0.0)
            work = str(one.version).partition(".")[0]
            lines.append(msgspec.structs.replace(one, version=f"{work}.{index + 1}.0.{name}", parent=parent))
            parent = name
    return sorted(lines, key=lambda line: line.time_s)


def test_two_halves_that_find_each_other_dead_go_on_and_nobody_is_dead() -> None:
    history = FailureHistory.of(in_halves())

    (incident,) = history.incidents
    assert (history.dead, history.stall_s) == (set(), 0.5)
    assert samples_lost(incident) == "70 of 190: 2 models continue separately, the largest with 120"
    assert [history.away_by(one) for one in incident.failures] == [[], [], [], []]


def test_halves_that_train_together_again_are_back() -> None:
    again = msgspec.structs.replace(closed(4, 6.0, (0, 1, 2, 3)), parent="a3")
    history = FailureHistory.of([*in_halves(), again])

    assert {one.back_in_round for one in history.incidents[0].failures} == {4}
    later = FailureHistory.of([*in_halves(), again, failed(7.0, 3, 5, "found dead: silent", by=0)])
    assert later.dead == {3}


def test_whoever_is_left_in_the_end_is_not_dead() -> None:
    lines: list[AnyRecord] = [started(), failed(3.0, 2, 0, "found dead: silent", by=0), closed(0, 4.0, (0, 1, 3))]
    end = RunEnded(time_s=5.0, reason="over", survivors=(0, 1, 2, 3))

    assert FailureHistory.of(lines).dead == {2}
    assert FailureHistory.of([*lines, end]).dead == set()
    assert last_states(FailureHistory.of([*lines, end]))[2].state == "out"


def test_several_with_one_fate_are_named_in_the_plural() -> None:
    lines: list[AnyRecord] = [started(), failed(3.0, 1, 0, "found dead: silent for 2 s", by=0)]
    lines.append(failed(3.0, 3, 0, "found dead: silent for 2 s", by=0))

    (incident,) = FailureHistory.of(lines).incidents
    assert what_failed(incident) == "devices 1 and 3 are silent (for 2 s)"
    assert who_noticed(incident) == "the time of failure is not known, by device 0 (silent for 2 s)"


def test_of_a_device_that_is_only_found_nobody_knows_when_it_fell_silent() -> None:
    lines: list[AnyRecord] = [started(), failed(3.0, 2, 0, "found dead: silent", by=0), taken_over(3.1, 3, 2, 1)]
    (incident,) = FailureHistory.of(lines).incidents

    assert who_noticed(incident) == "the time of failure is not known, by device 0 (silent)"
    assert who_took_over(incident) == "device 3 for 2 in cluster 1"
    assert FailureHistory.of(lines).dead == {2}


def test_a_device_found_dead_before_the_model_with_its_samples_came_failed_after_that_round() -> None:
    first, second, *_ = (line for line in lost_head() if isinstance(line, RoundClosed))
    found = failed(first.time_s, 0, 0, "found dead: silent", by=1)
    late = msgspec.structs.replace(first, time_s=first.time_s + 0.1)
    later = msgspec.structs.replace(found, time_s=first.time_s + 0.1, round=1)
    orders: list[list[AnyRecord]] = [[started(), found, late, second], [started(), first, later, second]]
    orders.append([started(), first, msgspec.structs.replace(later, round=0), second])  # by the folders of both

    for lines in orders:
        (incident,) = FailureHistory.of(lines).incidents
        assert (incident.round, incident.samples_before, samples_lost(incident)) == (1, 190, "100 of 190")


def test_a_model_that_came_late_because_its_head_died_is_a_stall_of_that_death() -> None:
    first, second, third = (line for line in lost_head() if isinstance(line, RoundClosed))
    # As a member of the lost head writes it: the last round with the head's samples came late, by another way.
    late = msgspec.structs.replace(first, time_s=2.4, stall_s=0.5)
    after = msgspec.structs.replace(second, missing={"0": "failed"}, stall_s=0.0)
    history = FailureHistory.of([started(), taken_over(2.3, 1, 0), late, after, third])

    assert [(one.round, one.devices, one.stall_s) for one in history.incidents] == [(1, [0], 0.5)]
    assert history.unexplained_stall_s == 0.0


def test_devices_that_go_on_alone_wait_at_the_same_time() -> None:
    lines: list[AnyRecord] = [started(), closed(0, 1.0, (0, 1, 2, 3)), failed(1.1, 0, 1, "died (train)")]
    lines += [closed(1, 2.0, (device,), (device,), stall_s=0.2) for device in (1, 2, 3)]
    history = FailureHistory.of(lines)

    assert history.stall_s == 0.2
    assert samples_lost(history.incidents[0]) == "150 of 190: 3 models continue separately, the largest with 40"
    after = last_states(history)
    assert [after[device].state for device in range(4)] == ["dead", "alone", "alone", "alone"]


def test_a_round_that_ends_as_the_next_device_dies_was_held_up_by_the_one_before() -> None:
    lines: list[AnyRecord] = [started(), closed(0, 1.0, (0, 1, 2, 3)), failed(1.1, 3, 1, "died (train)")]
    lines += [closed(1, 2.0, (0, 1, 2), stall_s=0.25), failed(2.0, 1, 2, "died (train)"), closed(2, 3.0, (0, 2))]

    assert [one.stall_s for one in FailureHistory.of(lines).incidents] == [0.25, 0.0]


def test_a_stall_before_any_failure_is_nobodys() -> None:
    history = FailureHistory.of(
        [started(), closed(0, 1.0, (0, 1, 2, 3), stall_s=0.5), failed(1.5, 1, 1, "died (train)")]
    )

    assert (history.unexplained_stall_s, history.stall_s) == (0.5, 0.0)


def test_a_simulated_death_is_noticed_as_the_timing_says() -> None:
    lines: list[AnyRecord] = [started(), failed(1.0, 1, 0, "died (train)")]

    assert who_noticed(FailureHistory.of(lines).incidents[0], "lan") == "0.50 s (set by timing lan)"


def test_the_fleet_before_and_after_a_take_over() -> None:
    before, after = first_states(started()), last_states(FailureHistory.of(lost_head()))

    assert [device for device, state in before.items() if state.is_head] == [0, 2]
    assert [device for device, state in after.items() if state.is_head] == [1, 2]
    assert [device for device, state in after.items() if state.is_new] == [1]
    assert after[0].state == "dead"


def test_a_fleet_that_left_in_good_order_is_drawn_as_its_last_round_was() -> None:
    lines = [*lost_head()[:-1], RunEnded(time_s=3.6, reason="left", survivors=(1, 2, 3))]

    assert last_states(FailureHistory.of(lines)) == last_states(FailureHistory.of(lost_head()))


def test_those_who_cannot_go_on_stand_aside() -> None:
    stopped = RunEnded(time_s=3.0, reason="the server is gone, training stopped", survivors=(1, 2, 3))
    lines: list[AnyRecord] = [started(), closed(0, 1.0, (0, 1, 2, 3)), failed(1.1, 0, 1, "died (train)"), stopped]

    after = last_states(FailureHistory.of(lines))
    assert [after[device].state for device in range(4)] == ["dead", "out", "out", "out"]


_LINES = st.one_of(
    st.builds(
        closed,
        st.integers(0, 5),
        st.floats(0, 9),
        st.sampled_from([(0, 1), (1,), (2, 3), (0, 1, 2, 3)]),
        st.just((0, 2)),
        st.floats(0, 5),
    ),
    st.builds(
        failed,
        st.floats(0, 9),
        st.one_of(st.none(), st.integers(0, 9)),
        st.integers(0, 5),
        st.sampled_from(["died (train)", "found dead: x", "frozen", "thawed", "came back", "cut 1", "healed 1", ""]),
        st.one_of(st.none(), st.integers(0, 9)),
    ),
    st.builds(taken_over, st.floats(0, 9), st.integers(0, 9), st.integers(0, 9)),
)


@given(st.lists(_LINES, max_size=30))
def test_any_lines_make_a_story_that_loses_no_stall(lines: list[AnyRecord]) -> None:
    records = [started(), *lines]
    history = FailureHistory.of(records)

    stalls = [line.stall_s for line in lines if isinstance(line, RoundClosed)]
    assert max(stalls, default=0.0) - 1e-5 <= history.stall_s + history.unexplained_stall_s <= sum(stalls) + 1e-5
    assert not history.dead & history.frozen
    for incident in history.incidents:
        assert sentence(incident)
        assert len(incident_cells(incident)) == len(COLUMNS)
        assert (incident.samples_lost or 0) >= 0
    assert set(last_states(history)) == {0, 1, 2, 3}


def test_a_run_whose_devices_go_on_alone_stalls_once_everywhere(tmp_path: Path) -> None:
    small = BlobsSpec(samples_per_device=20, n_features=8, n_test=60)
    spec = RunSpec(
        scheme="fl", data="blobs", devices=6, rounds=6, fail="server@3", on_head_failure="isolate", blobs=small
    )
    (result,) = run(spec, out=tmp_path / "x")
    history = FailureHistory.of(result.records)
    facts = dict(report_context(read_run(tmp_path / "x"))["facts"])

    n_stalled = sum(line.stall_s > 0.1 for line in result.records if isinstance(line, RoundClosed))
    assert n_stalled == 5, "each of those who are left waited for the server"
    assert result.summary["stall_s"] == history.stall_s == pytest.approx(0.2)
    assert facts["stalled by failures"] == "0.20 s"
    assert cast("float", result.summary["virtual_s"]) > 0.2


def test_every_record_is_described_in_words_that_name_its_round() -> None:
    texts = [describe(line, (("scaling", 1), ("thresholds", 4))) for line in lost_head()]

    assert "round 1 (thresholds:0) closed by device 2: 3 devices inside, stalled 0.50 s" in texts
    assert "device 0 is gone (connection refused), reported by device 3" in texts
    assert "device 1 takes over cluster 0 from device 0" in texts
    assert all(texts)


def test_who_took_over_is_known_from_the_rounds_alone() -> None:
    lines = [line for line in lost_head() if isinstance(line, RunStarted | RoundClosed)]
    lines[2] = msgspec.structs.replace(lines[2], missing={"0": "failed"})
    (incident,) = FailureHistory.of(lines).incidents

    assert (incident.round, incident.devices, incident.stall_s) == (1, [0], 0.5)
    assert [(line.device, line.previous, line.cluster) for line in incident.takeovers] == [(1, 0, 0)]
    assert samples_lost(incident) == "100 of 190"
    assert who_noticed(incident) == "not recorded"  # the closer of that round need not have been the first to know


def test_a_head_that_failed_before_the_first_round_is_known_from_that_round_alone() -> None:
    first = msgspec.structs.replace(closed(0, 4.0, (1, 2, 3), (1, 2)), missing={"0": "failed"})
    later = [closed(1, 5.0, (1, 2, 3), (1, 2)), closed(2, 6.0, (0, 1, 2, 3))]
    found = failed(3.0, 0, 0, "found dead: silent for 2 s", by=1)
    (seen,), (inferred,) = (
        FailureHistory.of([started(), *lines]).incidents for lines in ([found, first, *later], [first, *later])
    )

    for incident in (seen, inferred):
        assert (incident.round, incident.devices, who_came_back(incident)) == (0, [0], "device 0, round 2")
        assert samples_lost(incident) == "not known: no round was closed before; 90 go on"
    assert [(line.device, line.previous, line.cluster) for line in inferred.takeovers] == [(1, 0, 0)]


def test_a_head_that_left_in_good_order_is_no_part_of_an_earlier_failure() -> None:
    left = taken_over(3.6, 3, 2, cluster=1)
    (incident,) = FailureHistory.of([*lost_head(), left]).incidents

    assert [(line.device, line.previous) for line in incident.takeovers] == [(1, 0)]
