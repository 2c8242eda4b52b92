from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from tests.watch.alarms import event, lines_of, odd_rows, saved_model, watching
from tolfl.watch.alarm_events import Memory
from tolfl.watch.alarm_queue import AlarmQueue


def numbers(queue: AlarmQueue, sink: str) -> list[str]:
    return [found.id for _, found in queue.waiting(sink, 10_000)]


def test_an_event_goes_when_every_sink_has_it(tmp_path: Path) -> None:
    queue = AlarmQueue(tmp_path, ["a", "b"])
    queue.put([event(1), event(2)], "lo", Memory(n_judged=7))
    queue.done("a", queue.waiting("a")[-1][0])

    assert numbers(queue, "a") == []
    assert numbers(AlarmQueue(tmp_path, ["a", "b"]), "b") == [event(1).id, event(2).id]
    assert queue.n_waiting() == {"a": 0, "b": 2}
    assert queue.memory("lo").n_judged == 7


def test_the_same_event_twice_is_one(tmp_path: Path) -> None:
    queue = AlarmQueue(tmp_path, ["a"])
    queue.put([event(1)], "lo", Memory())
    queue.put([event(1)], "lo", Memory())

    assert queue.n_waiting() == {"a": 1}


def test_a_full_queue_drops_the_oldest_of_the_least_severity_and_counts_it(tmp_path: Path) -> None:
    queue = AlarmQueue(tmp_path, ["a"], max_events=3)
    queue.put([event(1, "high"), event(2, "notice"), event(3), event(4), event(5)], "lo", Memory())

    assert numbers(queue, "a") == [event(1, "high").id, event(4).id, event(5).id]
    assert queue.n_dropped() == {"a": 2}


def test_on_a_full_disk_events_wait_in_memory_until_there_is_room(tmp_path: Path) -> None:
    queue = AlarmQueue(tmp_path, ["a"], max_pages=12)
    for number in range(400):
        queue.put([event(number)], "lo", Memory())
    assert "make room" in queue.trouble
    queue._max_pages = None
    queue.retry("lo", Memory())

    assert queue.trouble == ""
    assert len(numbers(queue, "a")) == 400


def test_the_last_twenty_events_are_kept_to_be_shown(tmp_path: Path) -> None:
    queue = AlarmQueue(tmp_path, ["a"])
    queue.put([event(number) for number in range(30)], "lo", Memory())
    queue.done("a", queue.waiting("a")[-1][0])

    assert [found.id for _, found in queue.latest()] == [event(number).id for number in range(29, 9, -1)]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("n_places", "n_kills"),
    [(60, 2), pytest.param(1500, 40, marks=[pytest.mark.slow, pytest.mark.timeout(900)])],
    ids=["few", "3000 events, 40 kills"],
)
def test_no_alarm_is_lost_by_sigkill(tmp_path: Path, n_places: int, n_kills: int) -> None:
    model, rows = saved_model(tmp_path), odd_rows(tmp_path / "rows.csv", n_places)
    out, rng = tmp_path / "alarms.jsonl", random.Random(0)
    words = (model, rows, "--device-column", "place", "--json", out, "--state", tmp_path / "state")
    step = int(1.6 * n_places) // n_kills  # the last kill comes well before the end
    n_killed = 0
    for turn in range(n_kills):
        process = watching(*words)
        wanted = step * turn + 1 + rng.randrange(max(1, step // 2))
        while process.poll() is None and len(lines_of(out)) < wanted:
            time.sleep(0.002)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            n_killed += 1
        process.communicate()
    last = watching(*words)
    said = last.communicate()[1]
    found = lines_of(out)
    opened = {line["key"] for line in found if line["event"] == "open"}
    closed = {line["key"] for line in found if line["event"] == "close"}

    assert last.returncode == 0, said
    assert n_killed == n_kills
    assert opened == closed == {f"p{place}" for place in range(n_places)}
    assert len({line["id"] for line in found}) == 2 * n_places
