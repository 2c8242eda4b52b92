from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.record_lines import adopted, closed, collected, lost_head, real_devices, started, write
from tolfl.core.errors import RunDirectoryError, TolFLError
from tolfl.core.records import (
    AnyRecord,
    Evaluated,
    FailureHappened,
    RosterChanged,
    RoundClosed,
    RunEnded,
    RunStarted,
    TakenOver,
    encode_records,
)
from tolfl.runs.descriptions import describe, samples_lost, what_failed, who_came_back
from tolfl.runs.failure_history import FailureHistory
from tolfl.runs.merged_records import merged_records
from tolfl.runs.run_folder import RunFolder, read_run, readers_of
from tolfl.runs.run_reader import RunReader


def shown(reader: RunReader) -> list[AnyRecord]:
    reader.read()
    return reader.news


def test_a_recorded_run_is_told_line_by_line(tmp_path: Path) -> None:
    reader = RunReader(write(tmp_path / "run", lost_head()))

    assert shown(reader) == lost_head()
    assert (reader.name, reader.is_over, reader.n_unreadable) == ("run", True, 0)


@given(st.lists(st.integers(min_value=0, max_value=4000), max_size=6))
def test_a_file_that_grows_in_pieces_tells_the_same_as_the_whole(
    tmp_path_factory: pytest.TempPathFactory, places: list[int]
) -> None:
    content = encode_records(lost_head())
    file = tmp_path_factory.mktemp("growing") / "records.jsonl"
    reader = RunReader(file)
    for place in [*sorted(places), len(content)]:
        file.write_bytes(content[:place])
        reader.read()

    assert reader.news == lost_head()


def test_a_line_that_is_no_record_is_counted_and_hides_no_other(tmp_path: Path) -> None:
    lines = encode_records(lost_head()).splitlines(keepends=True)
    file = tmp_path / "records.jsonl"
    file.write_bytes(b"".join([lines[0], b'{"kind":"of tomorrow"}\n', b"nonsense\n", *lines[1:]]))
    reader = RunReader(tmp_path)

    assert shown(reader) == lost_head()
    assert reader.n_unreadable == 2


def test_a_run_that_began_anew_is_told_anew(tmp_path: Path) -> None:
    reader = RunReader(write(tmp_path, lost_head()))
    reader.read()
    write(tmp_path, lost_head()[:3])

    assert shown(reader) == lost_head()[:3]
    assert (reader.n_starts, reader.is_over) == (2, False)


def test_real_devices_tell_one_story_in_the_order_of_time(tmp_path: Path) -> None:
    real_devices(tmp_path)
    reader = RunReader(tmp_path)
    records = shown(reader)

    assert [line.time_s for line in records] == [0.1, 0.9, 1.0, 1.1, 1.5, 1.6, 2.0]
    assert [line.device for line in records if isinstance(line, RunStarted)] == [None]
    assert [line.what for line in records if isinstance(line, FailureHappened)] == [
        "died (killed by signal 9)",
        "found dead: connection refused",
    ]
    assert not reader.is_over, "a device's own end is not the run's"


def test_the_counts_of_real_devices_come_when_they_have_ended(tmp_path: Path) -> None:
    real_devices(tmp_path)
    reader = RunReader(tmp_path)
    n_before = len(shown(reader))
    write(tmp_path, collected())
    news = shown(reader)[n_before:]

    assert news == collected()[1:]
    assert reader.is_over
    assert len(shown(reader)) == n_before + 3, "a further look finds nothing new"


def test_two_closers_of_one_round_are_one_line(tmp_path: Path) -> None:
    line = closed(1.0, 0, [0, 1], [0], 200, bytes=0, messages={})
    write(tmp_path / "devices" / "0", [line])
    write(tmp_path / "devices" / "1", [line])

    assert [type(one) for one in shown(RunReader(tmp_path))] == [RoundClosed]


@pytest.mark.parametrize(("gap_s", "n_told"), [(9.9, 1), (10.1, 2)], ids=["one-death", "two-deaths"])
def test_what_several_say_of_one_death_is_one_line(tmp_path: Path, gap_s: float, n_told: int) -> None:
    for by, time_s in ((1, 5.0), (2, 5.0 + gap_s)):
        said = FailureHappened(time_s=time_s, device=0, round=1, what="found dead: silent for 1 s", by=by)
        write(tmp_path / "devices" / str(by), [said])

    assert len(shown(RunReader(tmp_path))) == n_told


def test_a_take_over_that_is_recorded_in_two_rounds_is_one_line(tmp_path: Path) -> None:
    # The head's last model came late: its heir takes over in round 0, and says so again in round 1.
    over = [TakenOver(time_s=n + 0.5, device=1, round=n, version=f"{n}", cluster=0, previous=0) for n in (0, 1, 4)]
    together, apart = [closed(float(n), n, [0, 1, 2], [0], 200) for n in (0, 3)], closed(2.0, 1, [1, 2], [1], 100)
    write(tmp_path / "devices" / "1", [over[0], together[0], over[1], apart, together[1], over[2]])

    assert [one.round for one in shown(RunReader(tmp_path)) if isinstance(one, TakenOver)] == [0, 4]


def test_repetitions_are_shown_side_by_side(tmp_path: Path) -> None:
    for number in (10, 2, 0):
        write(tmp_path / "runs" / f"repetition-{number}", lost_head())

    names = [reader.name for reader in readers_of(tmp_path / "runs", is_following=False)]
    assert names == ["runs/repetition-0", "runs/repetition-2", "runs/repetition-10"]


def test_a_folder_without_records_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="does not exist"):
        readers_of(tmp_path / "nowhere", is_following=True)
    with pytest.raises(RunDirectoryError, match="--follow"):
        readers_of(tmp_path, is_following=False)
    (reader,) = readers_of(tmp_path, is_following=True)
    assert shown(reader) == []
    write(tmp_path, lost_head()[:1])
    assert len(shown(reader)) == 1


# -- devices on machines of their own ---------------------------------------------------------------------------


def own_lines(device: int, start_s: float = 0.0, unix_s: float | None = None) -> list[AnyRecord]:
    """Return what a device of three writes by its own clock when every device keeps every round; 0 dies in round 2."""
    begun = msgspec.structs.replace(started([[0, 1, 2]], 0.0, device), unix_s=unix_s)
    rounds = [closed(1.0, 0, [0, 1, 2], [0], 300), closed(2.0, 1, [0, 1, 2], [0], 600)]
    rounds.append(closed(3.5, 2, [1, 2], [1], 800, missing={"0": "failed"}, stall_s=0.5))
    over = RosterChanged(time_s=4.0, device=1, round=3, version="800.3.1.r", parent="h2", devices=(1, 2), is_over=True)
    end = RunEnded(time_s=4.1, device=device, reason="over", survivors=(1, 2))
    found = FailureHappened(time_s=2.75, device=0, round=2, what="found dead: connection refused", by=1)
    taken = TakenOver(time_s=3.0, device=1, round=2, version="600.2.0.h1", cluster=0, previous=0)
    written: dict[int, Sequence[AnyRecord]] = {
        0: rounds[:2],
        1: [*rounds[:2], found, taken, rounds[2], over, end],
        2: [*rounds, over, end],
    }
    shifted = [msgspec.structs.replace(line, time_s=line.time_s - start_s) for line in written[device]]
    return [begun, *shifted]


def facts_of(run: RunFolder) -> tuple[object, ...]:
    """Return what every device of the fleet must know of its run."""
    history = FailureHistory.of(run.records)
    (incident,) = history.incidents
    takeovers = [(line.device, line.previous, line.cluster) for line in incident.takeovers]
    closers = [(line.round, line.device, line.loss) for line in run.records if isinstance(line, RoundClosed)]
    return closers, incident.round, incident.devices, takeovers, history.stall_s, samples_lost(incident)


@pytest.mark.parametrize("device", [1, 2])
def test_any_devices_folder_alone_tells_the_whole_run(device: int, tmp_path: Path) -> None:
    alone = read_run(write(tmp_path / "state", own_lines(device)))
    for other in range(3):
        write(tmp_path / "all" / f"machine-{other}", own_lines(other))
    together = read_run(tmp_path / "all")

    assert facts_of(alone) == facts_of(together)
    assert facts_of(alone)[1:] == (2, [0], [(1, 0, 0)], 0.5, "100 of 300")
    assert (alone.rounds_done, alone.is_over, alone.has_spec, alone.spec.devices) == (3, True, False, 3)
    assert [line.reason for line in alone.records if isinstance(line, RunEnded)] == ["over"]


def test_a_look_at_a_state_folder_in_which_nothing_is_new_merges_nothing(tmp_path: Path) -> None:
    reader = RunReader(write(tmp_path, own_lines(1)))
    reader.read()
    known = reader.news

    assert reader.read() == []
    assert reader.news is known  # a page looks seven times a second, at runs of many thousand rounds


@pytest.mark.parametrize("is_closer_there", [True, False])
def test_a_round_that_was_adopted_stands_there_once(is_closer_there: bool, tmp_path: Path) -> None:
    rounds = [closed(1.0, 0, [0, 1, 2], [0], 300), closed(2.0, 1, [0, 1, 2], [0], 600)]
    for device in (1, 2):
        lines: list[AnyRecord] = [started([[0, 1, 2]], 0.0, device), *(adopted(one, device) for one in rounds)]
        write(tmp_path / str(device), lines)
    if is_closer_there:
        write(tmp_path / "0", [started([[0, 1, 2]], 0.0, 0), *rounds])
    found = [line for line in read_run(tmp_path).records if isinstance(line, RoundClosed)]

    assert [(line.round, line.device, line.included) for line in found] == [(0, 0, (0, 1, 2)), (1, 0, (0, 1, 2))]
    assert [line.loss for line in found] == [4.0, 2.0]


def test_a_closer_that_is_read_late_is_believed(tmp_path: Path) -> None:
    line = closed(1.0, 0, [0, 1], [0], 200, bytes=0, messages={})
    (tmp_path / "launcher.jsonl").write_bytes(b"")
    write(tmp_path / "devices" / "1", [started([[0, 1]], 0.0, 1), adopted(line, 1)])
    reader = RunReader(tmp_path)
    reader.read()
    write(tmp_path / "devices" / "0", [started([[0, 1]], 0.0, 0), line])

    assert reader.read() == [line]
    assert [one.loss for one in reader.records if isinstance(one, RoundClosed)] == [4.0]


@pytest.mark.parametrize("error_s", [3600.0, -3600.0])
def test_clocks_that_are_an_hour_apart_are_brought_together(error_s: float, tmp_path: Path) -> None:
    write(tmp_path / "good" / "a", own_lines(1))
    write(tmp_path / "good" / "b", own_lines(2))
    write(tmp_path / "bad" / "a", own_lines(1))
    write(tmp_path / "bad" / "b", own_lines(2, start_s=0.5, unix_s=error_s))
    right, wrong = read_run(tmp_path / "good"), read_run(tmp_path / "bad")

    assert [type(line) for line in wrong.records] == [type(line) for line in right.records]
    assert wrong.records[-1].time_s - wrong.records[0].time_s < 10.0
    assert facts_of(wrong) == facts_of(right)


def test_a_device_that_was_started_again_goes_on_with_its_clock(tmp_path: Path) -> None:
    again = [msgspec.structs.replace(line, unix_s=5000.0) for line in own_lines(2)[:1]]
    later = [closed(1.0, 3, [1, 2], [1], 1000)]
    first = [msgspec.structs.replace(one, unix_s=1000.0) for one in own_lines(2)[:1]]
    run = read_run(write(tmp_path / "x", [*first, *own_lines(2)[1:4], *again, *later]))

    assert [line.time_s for line in run.records] == [0.0, 1.0, 2.0, 3.5, 4001.0]


def test_a_start_with_a_wrong_clock_is_put_right_by_the_rounds_of_others(tmp_path: Path) -> None:
    begun, *others = (msgspec.structs.replace(line, time_s=line.time_s + 100.0) for line in own_lines(2, unix_s=0.0))
    # As a board without a battery: after the last round but one it starts again, and takes it for 1970.
    again = [msgspec.structs.replace(begun, unix_s=-9e8, time_s=0.25), *others[2:]]
    again[1:] = [msgspec.structs.replace(line, time_s=line.time_s - 102.25) for line in again[1:]]
    write(tmp_path / "both" / "1", own_lines(1, unix_s=50.0))
    write(tmp_path / "both" / "2", [begun, *others[:2], *again])
    write(tmp_path / "right" / "1", own_lines(1, unix_s=50.0))
    both, right = read_run(tmp_path / "both"), read_run(tmp_path / "right")

    assert [line.time_s for line in both.records] == pytest.approx([line.time_s for line in right.records])
    assert facts_of(both) == facts_of(right)


def restarted_head(device: int) -> list[AnyRecord]:
    """Return what a device of three writes of six rounds; 0 is away in rounds 2 and 3, and 1 leads them."""
    everybody, others = [0, 1, 2], [1, 2]
    lines = [closed(1.0 + index, index, everybody, [0], 300 * (index + 1)) for index in (0, 1)]
    lines += [closed(1.0 + index, index, others, [1], 600 + 200 * (index - 1)) for index in (2, 3)]
    lines += [closed(1.0 + index, index, everybody, [0], 1000 + 300 * (index - 3)) for index in (4, 5)]
    lines[2] = msgspec.structs.replace(lines[2], missing={"0": "failed"}, stall_s=0.5)
    own = [line if line.device == device else adopted(line, device) for line in lines]
    begun = msgspec.structs.replace(started([everybody], 0.0, device), unix_s=1000.0)
    end = RunEnded(time_s=7.0, device=device, reason="over", survivors=(0, 1, 2))
    if device:
        return [begun, *own, end]
    again = msgspec.structs.replace(begun, unix_s=1004.5, time_s=0.0)
    later = [msgspec.structs.replace(line, time_s=line.time_s - 4.5) for line in [*own[4:], end]]
    return [begun, *own[:2], again, *later]


@pytest.mark.parametrize("devices", [(1,), (2,), (0,), (0, 1), (1, 2), (0, 1, 2)])
def test_every_folder_tells_of_a_head_that_came_back(devices: Sequence[int], tmp_path: Path) -> None:
    for device in devices:
        write(tmp_path / str(device), restarted_head(device))
    run = read_run(tmp_path)
    history = FailureHistory.of(run.records)

    (incident,) = history.incidents
    assert (incident.round, incident.devices, who_came_back(incident)) == (2, [0], "device 0, round 4")
    assert (history.dead, run.rounds_done, run.is_over) == (set(), 6, True)
    is_alone = devices == (0,)
    assert samples_lost(incident) == ("0 of 300" if is_alone else "100 of 300")
    assert what_failed(incident).endswith("later" if 0 in devices else "missing from the round")
    assert bool(incident.takeovers) is not is_alone  # it was away, and leads again


def test_who_failed_while_a_device_was_away_is_missing_in_its_folder(tmp_path: Path) -> None:
    *lines, last, end = restarted_head(0)
    gone = msgspec.structs.replace(last, included=(0, 2), n_samples=200, round=9, parent="h8", version="3000.10.0.h9")
    del lines[-1]
    (incident,) = FailureHistory.of(read_run(write(tmp_path, [*lines, gone, end])).records).incidents

    assert what_failed(incident) == (
        "device 0, head of cluster 0, stopped, and started again later; "
        "device 1 is missing after a gap in these records"
    )
    assert (who_came_back(incident), samples_lost(incident)) == ("device 0, round 9", "100 of 300")
    told = [describe(line) for line in read_run(tmp_path).records if isinstance(line, FailureHappened)]
    assert told == ["device 0 stopped, and started again later"]


def test_the_folder_of_a_killed_device_does_not_keep_a_run_open(tmp_path: Path) -> None:
    for device in range(3):
        write(tmp_path / str(device), own_lines(device))

    assert read_run(tmp_path).is_over
    write(tmp_path / "2", own_lines(2)[:-1])
    assert not read_run(tmp_path).is_over  # it was not killed, and may go on


def test_folders_of_devices_are_read_beside_their_specification(tmp_path: Path) -> None:
    for device in (1, 2):
        write(tmp_path / str(device), own_lines(device))
    alone = read_run(tmp_path)
    (tmp_path / "spec.toml").write_text("data = 'blobs'\ndevices = 3\nclusters = 1\nrounds = 8\n")
    run = read_run(tmp_path)

    assert (run.records, run.is_real, run.is_over) == (alone.records, True, True)
    assert (alone.has_spec, run.has_spec, run.rounds) == (False, True, 8)


def test_of_two_copies_of_one_folder_the_longer_one_counts(tmp_path: Path) -> None:
    write(tmp_path / "monday", own_lines(2)[:3])
    write(tmp_path / "tuesday", own_lines(2))
    before = (tmp_path / "monday" / "records.jsonl").read_bytes()

    assert read_run(tmp_path).rounds_done == 3
    assert (tmp_path / "monday" / "records.jsonl").read_bytes() == before


def test_two_runs_of_one_device_in_one_folder_are_refused(tmp_path: Path) -> None:
    other = [msgspec.structs.replace(line, time_s=line.time_s + 0.25) for line in own_lines(2)]
    write(tmp_path / "a", own_lines(2))
    write(tmp_path / "b", other)

    with pytest.raises(RunDirectoryError, match=r"two different runs of device 2 \(a/records.jsonl and b/records"):
        read_run(tmp_path)


#: Of each device, in each of two runs of one specification.
FIRST, SECOND = ((0, 0, 70), (1, 0, 71), (2, 0, 72)), ((0, 0, 80), (1, 0, 81), (2, 0, 82))


def of_run(device: int, *processes: tuple[int, int, int]) -> list[AnyRecord]:
    """Return the lines of a device that was connected with these processes when it began; itself is one of them."""
    begun, *others = own_lines(device)
    return [msgspec.structs.replace(begun, processes=processes), *others]


def test_folders_of_two_runs_of_one_specification_are_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path / "monday-1", of_run(1, *FIRST))
    write(tmp_path / "monday-2", of_run(2, *FIRST))
    write(tmp_path / "tuesday-2", of_run(0, *SECOND))

    with pytest.raises(TolFLError, match=r"two runs \(monday-1; tuesday-2\): device 0 was not the same process; keep"):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([FIRST[1], (0, 3, 75)], [FIRST[2], FIRST[0]]),  # 0 was started again before 1 met it, and 2 knows neither
        ([FIRST[1], FIRST[2]], [(2, 0, 77), FIRST[1]]),  # 2 lost its disk, and began as what it had been before
        ([FIRST[1], (2, 0, 77)], [FIRST[2], (2, 0, 77)]),  # the same, and its first folder was kept
        ([], []),  # an older version
        ([FIRST[1]], [FIRST[2]]),  # they never met
    ],
    ids=["restart", "lost-disk", "kept-folder", "older", "apart"],
)
def test_folders_that_may_be_of_one_run_are_read_together(
    one: list[tuple[int, int, int]], other: list[tuple[int, int, int]], tmp_path: Path
) -> None:
    write(tmp_path / "a", of_run(1, *one))
    write(tmp_path / "b", of_run(2, *other))

    assert facts_of(read_run(tmp_path))[1:] == (2, [0], [(1, 0, 0)], 0.5, "100 of 300")


def test_a_third_folder_shows_that_two_are_of_one_run(tmp_path: Path) -> None:
    before, after = (0, 0, 70), (0, 0, 75)
    write(tmp_path / "a", of_run(1, FIRST[1], before))
    write(tmp_path / "b", of_run(2, FIRST[2], after))
    with pytest.raises(TolFLError, match="two runs"):
        read_run(tmp_path)

    write(tmp_path / "c", of_run(0, after, FIRST[1]))
    assert read_run(tmp_path).rounds_done == 3


def test_times_count_from_the_first_training_and_say_by_whose_clock(tmp_path: Path) -> None:
    waited = [msgspec.structs.replace(line, time_s=line.time_s + 30.0) for line in own_lines(1, unix_s=86_400.0)]
    alone = read_run(write(tmp_path / "alone", waited))
    write(tmp_path / "both" / "1", waited)
    write(tmp_path / "both" / "2", own_lines(2, unix_s=90_000.0))
    together = read_run(tmp_path / "both")

    assert alone.clock == together.clock == "times by the clock of device 1, from 1970-01-02 00:00:30 UTC"
    assert [line.time_s for line in alone.records] == pytest.approx([0.0, 1.0, 2.0, 2.75, 3.0, 3.5, 4.0, 4.1])
    assert [line.time_s for line in together.records] == pytest.approx([line.time_s for line in alone.records])
    assert read_run(write(tmp_path / "simulated", lost_head())).clock == ""


def test_two_runs_in_one_file_are_refused(tmp_path: Path) -> None:
    second = msgspec.structs.replace(started([[0, 1]]), seed=7)
    with pytest.raises(TolFLError, match=r"two runs \(tol-fl on blobs, seed 0; tol-fl on blobs, seed 7\)"):
        RunReader(write(tmp_path, [*lost_head()[:3], second])).read()


def test_two_runs_of_one_device_in_one_file_are_refused(tmp_path: Path) -> None:
    again = [(1, 0, 95), *SECOND[1:]]  # it began as what it had been before, among others
    with pytest.raises(TolFLError, match=r"two runs \(records.jsonl; further on in it\): device 1 was not the same"):
        RunReader(write(tmp_path / "a", [*of_run(1, *FIRST), *of_run(1, *again)]) / "records.jsonl").read()
    restarted = [*of_run(1, *FIRST), *of_run(1, (1, 1, 95), *FIRST[:1])]

    assert read_run(write(tmp_path / "b", restarted)).rounds_done == 3


def test_two_runs_that_are_called_the_same_are_told_apart(tmp_path: Path) -> None:
    write(tmp_path / "a", own_lines(1))
    write(tmp_path / "b", [started([[0, 1], [2]], 0.0, 2), *own_lines(2)[1:]])

    with pytest.raises(TolFLError, match=r"two runs \(a: .*, seed 0; b: .*, seed 0\): they differ in clusters; keep"):
        read_run(tmp_path)


@given(st.integers(min_value=0, max_value=3000))
def test_a_folder_that_was_copied_while_it_grew_is_read_as_far_as_it_goes(
    tmp_path_factory: pytest.TempPathFactory, n_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("copied")
    content = encode_records(own_lines(1))[:n_bytes]
    (folder / "records.jsonl").write_bytes(content)
    run = read_run(folder)

    assert run.rounds_done <= content.count(b'"round_closed"')
    assert run.is_over == (content == encode_records(own_lines(1)))


def test_two_devices_in_one_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"records of devices 1 and 2; keep each in a folder of its own"):
        read_run(write(tmp_path, [*own_lines(1), *own_lines(2)]))


def test_a_copied_folder_without_any_record_is_counted(tmp_path: Path) -> None:
    write(tmp_path / "a", own_lines(1))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "records.jsonl").write_text("a page of an error message\n")

    assert facts_of(read_run(tmp_path)) == facts_of(read_run(tmp_path / "a"))
    assert read_run(tmp_path).n_unreadable == 1


@pytest.mark.parametrize("line", [b'{"kind":"run_begun"', b'{"kind":"join","incarnation":1,"device":2'])
def test_records_of_a_newer_version_are_named(line: bytes, tmp_path: Path) -> None:
    (tmp_path / "records.jsonl").write_bytes(line + b',"time_s":0.0,"schema":2}\n')
    with pytest.raises(RunDirectoryError, match="newer version of tolfl: schema 2, this one reads 1"):
        RunReader(tmp_path).read()


# -- the lines of many devices as those of one run --------------------------------------------------------------

ROUNDS = (3, 7, 11)
CLOSED = [closed(float(index), index, [0, 1], [0], 100 * index) for index in range(12)]


def scored(index: int, time_s: float) -> Evaluated:
    return Evaluated(time_s=time_s, round=index, version=CLOSED[index].version, auroc=index / 100)


@pytest.mark.parametrize("order", list(itertools.permutations(ROUNDS)))
def test_an_evaluation_stands_behind_its_round_whenever_it_was_scored(order: tuple[int, ...]) -> None:
    late = [scored(index, 20.0 + place) for place, index in enumerate(order)]

    expected: list[AnyRecord] = []
    for line in CLOSED:
        expected += [line, scored(line.round, line.time_s)] if line.round in ROUNDS else [line]
    assert merged_records([*CLOSED, *late]) == expected


def test_a_model_that_two_devices_kept_is_evaluated_once() -> None:
    merged = merged_records([CLOSED[3], scored(3, 4.5), scored(3, 4.6)])

    assert [type(line) for line in merged] == [RoundClosed, Evaluated]


def test_an_evaluation_whose_round_nobody_wrote_down_keeps_its_place() -> None:
    lines: list[AnyRecord] = [CLOSED[2], scored(3, 3.5), CLOSED[4]]

    assert merged_records(lines) == lines
