from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dashboard.stories import closed, collected, lost_head, real_devices, write
from tolfl.core.errors import RunDirectoryError
from tolfl.core.records import AnyRecord, FailureHappened, RoundClosed, RunStarted, decode_records, encode_records
from tolfl.dashboard.feeds import Feed, feeds_of


def shown(feed: Feed) -> list[AnyRecord]:
    feed.look()
    return list(decode_records(feed.lines))


def test_a_recorded_run_is_told_line_by_line(tmp_path: Path) -> None:
    feed = Feed(write(tmp_path / "run", lost_head()))

    assert shown(feed) == lost_head()
    assert (feed.name, feed.is_over, feed.n_unreadable) == ("run", True, 0)


def test_lines_from_before_there_were_stages_are_shown_without_any(tmp_path: Path) -> None:
    (tmp_path / "records.jsonl").write_bytes(
        b'{"kind":"run_started","time_s":0.0,"device":null,"round":null,"version":null,"schema":1,"scheme":"tol-fl",'
        b'"data":"blobs","seed":0,"clusters":[[0,1]],"model_bytes":400,"hosts":[],"defence":"","liars":""}\n'
        b'{"kind":"round_closed","time_s":1.0,"device":1,"round":0,"version":"6.1.0.abc","schema":1,"parent":"",'
        b'"included":[0,1],"missing":{},"n_samples":6,"loss":0.5,"bytes":9,"messages":{"unicast":3},"heads":[0],'
        b'"stall_s":0.0,"groups":{}}\n'
    )
    feed = Feed(tmp_path)
    begun, first = shown(feed)

    assert isinstance(begun, RunStarted)
    assert isinstance(first, RoundClosed)
    assert (begun.stages, first.stage, first.loss, feed.n_unreadable) == ((), "", 0.5, 0)


@given(st.lists(st.integers(min_value=0, max_value=4000), max_size=6))
def test_a_file_that_grows_in_pieces_tells_the_same_as_the_whole(
    tmp_path_factory: pytest.TempPathFactory, places: list[int]
) -> None:
    content = encode_records(lost_head())
    file = tmp_path_factory.mktemp("growing") / "records.jsonl"
    feed = Feed(file)
    for place in [*sorted(places), len(content)]:
        file.write_bytes(content[:place])
        feed.look()

    assert list(decode_records(feed.lines)) == lost_head()


def test_a_line_that_is_no_record_is_counted_and_hides_no_other(tmp_path: Path) -> None:
    lines = encode_records(lost_head()).splitlines(keepends=True)
    file = tmp_path / "records.jsonl"
    file.write_bytes(b"".join([lines[0], b'{"kind":"of tomorrow"}\n', b"nonsense\n", *lines[1:]]))
    feed = Feed(tmp_path)

    assert shown(feed) == lost_head()
    assert feed.n_unreadable == 2


def test_a_run_that_began_anew_is_told_anew(tmp_path: Path) -> None:
    feed = Feed(write(tmp_path, lost_head()))
    feed.look()
    write(tmp_path, lost_head()[:3])

    assert shown(feed) == lost_head()[:3]
    assert (feed.n_starts, feed.is_over) == (2, False)


def test_real_devices_tell_one_story_in_the_order_of_time(tmp_path: Path) -> None:
    real_devices(tmp_path)
    feed = Feed(tmp_path)
    records = shown(feed)

    assert [line.time_s for line in records] == [0.1, 0.9, 1.0, 1.1, 1.5, 1.6, 2.0]
    assert [line.device for line in records if isinstance(line, RunStarted)] == [None]
    assert [line.what for line in records if isinstance(line, FailureHappened)] == [
        "died (killed by signal 9)",
        "found dead: connection refused",
    ]
    assert not feed.is_over, "a device's own end is not the run's"


def test_the_counts_of_real_devices_come_when_they_have_ended(tmp_path: Path) -> None:
    real_devices(tmp_path)
    feed = Feed(tmp_path)
    n_before = len(shown(feed))
    write(tmp_path, collected())
    news = shown(feed)[n_before:]

    assert news == collected()[1:]
    assert feed.is_over
    assert len(shown(feed)) == n_before + 3, "a further look finds nothing new"


def test_two_closers_of_one_round_are_one_line(tmp_path: Path) -> None:
    line = closed(1.0, 0, [0, 1], [0], 200, bytes=0, messages={})
    write(tmp_path / "devices" / "0", [line])
    write(tmp_path / "devices" / "1", [line])

    assert [type(one) for one in shown(Feed(tmp_path))] == [RoundClosed]


@pytest.mark.parametrize(("gap_s", "n_told"), [(9.9, 1), (10.1, 2)], ids=["one-death", "two-deaths"])
def test_what_several_say_of_one_death_is_one_line(tmp_path: Path, gap_s: float, n_told: int) -> None:
    for by, time_s in ((1, 5.0), (2, 5.0 + gap_s)):
        said = FailureHappened(time_s=time_s, device=0, round=1, what="found dead: silent for 1 s", by=by)
        write(tmp_path / "devices" / str(by), [said])

    assert len(shown(Feed(tmp_path))) == n_told


def test_repetitions_are_shown_side_by_side(tmp_path: Path) -> None:
    for number in (10, 2, 0):
        write(tmp_path / "runs" / f"repetition-{number}", lost_head())

    names = [feed.name for feed in feeds_of(tmp_path / "runs", is_following=False)]
    assert names == ["runs/repetition-0", "runs/repetition-2", "runs/repetition-10"]


def test_a_folder_without_records_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="does not exist"):
        feeds_of(tmp_path / "nowhere", is_following=True)
    with pytest.raises(RunDirectoryError, match="--follow"):
        feeds_of(tmp_path, is_following=False)
    (feed,) = feeds_of(tmp_path, is_following=True)
    assert shown(feed) == []
    write(tmp_path, lost_head()[:1])
    assert len(shown(feed)) == 1
