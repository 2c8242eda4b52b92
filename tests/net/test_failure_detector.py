"""The failure detector suspects: never for a peer that answers, in time for one that does not."""

from __future__ import annotations

from itertools import cycle, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tolfl.core.spec import Timing
from tolfl.net.failure_detector import FailureDetector

TIMINGS = [Timing.localhost(), Timing.lan(), Timing.wireless()]
#: Sums of floating-point steps may miss a limit by this much.
CLOSE_S = 1e-6

timings = st.sampled_from(TIMINGS)
#: Pauses between two looks at the clock, in heartbeats: a busy loop is late, up to the two that are counted.
punctual = st.lists(st.floats(0.5, 2.0), min_size=1, max_size=10)
N_TICKS = 100


def ticks(pauses: list[float], timing: Timing) -> list[float]:
    now_s, times = 5.0, []
    for pause in islice(cycle(pauses), N_TICKS):
        now_s += pause * timing.heartbeat_s
        times.append(now_s)
    return times


@given(timings, punctual, st.floats(0.1, 0.999), st.floats(0, 1))
def test_a_peer_heard_more_often_than_the_limit_is_never_given_up(
    timing: Timing, pauses: list[float], share: float, first: float
) -> None:
    detector, every_s = FailureDetector(timing), share * timing.silence_detection_s
    detector.tick(5.0)
    detector.watch(1)
    detector.note_answer(1)
    next_s = 5.0 + first * every_s
    for now_s in ticks(pauses, timing):
        while next_s <= now_s:
            detector.note_answer(1)
            next_s += every_s
        assert detector.tick(now_s) == []


@given(timings, punctual, st.integers(0, 30))
def test_a_silent_peer_is_named_in_time_and_from_then_on(timing: Timing, pauses: list[float], last_heard: int) -> None:
    detector, limit_s = FailureDetector(timing), timing.silence_detection_s
    detector.tick(5.0)
    detector.watch(1)
    since_s, named = 5.0, []
    for index, now_s in enumerate(ticks(pauses, timing)):
        if detector.tick(now_s):
            named.append(now_s)
        if index < last_heard:
            detector.note_answer(1)
            since_s, named = now_s, []
        if not named:
            assert now_s - since_s < limit_s + 4 * timing.heartbeat_s
        else:
            assert named[-1] == now_s
    if named:
        assert named[0] - since_s >= limit_s - CLOSE_S


@pytest.mark.parametrize("timing", TIMINGS, ids=["localhost", "lan", "wireless"])
def test_with_a_beat_on_time_silence_is_noticed_within_two_beats_of_the_limit(timing: Timing) -> None:
    detector, beat_s = FailureDetector(timing), timing.heartbeat_s
    detector.watch(1)
    named = [k * beat_s for k in range(200) if detector.tick(k * beat_s)]

    assert len(named) > 1
    assert timing.silence_detection_s - CLOSE_S <= named[0] <= timing.silence_detection_s + 2 * beat_s + CLOSE_S


@given(timings, st.lists(st.floats(0.01, 1e5), min_size=1, max_size=20))
def test_a_device_that_slept_itself_gives_nobody_up(timing: Timing, sleeps_s: list[float]) -> None:
    detector = FailureDetector(timing)
    detector.watch(1)
    now_s = 0.0
    detector.tick(now_s)
    for sleep_s in sleeps_s:
        now_s += sleep_s
        assert detector.tick(now_s) == []  # awake for a moment: what came in meanwhile has not been read yet
        detector.note_answer(1)


def test_a_peer_that_is_heard_again_can_be_given_up_again() -> None:
    detector, named = FailureDetector(Timing.localhost()), []
    detector.watch(7)
    for k in range(60):
        if k == 30:
            detector.note_answer(7)
        named += [k] * len(detector.tick(k * 0.1))

    first, again = named[0], min(k for k in named if k > 30)
    assert 10 <= first <= 12
    assert 40 <= again <= 42  # counted from the next tick, the 31st
    assert 31 not in named


def test_only_watched_peers_are_named() -> None:
    detector = FailureDetector(Timing.localhost())
    detector.watch(1)
    detector.watch(2)
    detector.unwatch(2)
    detector.unwatch(3)
    detector.note_answer(3)
    named = [peer for k in range(60) for peer in detector.tick(k * 0.1)]

    assert set(named) == {1}
    assert detector.silent_s(1) == pytest.approx(5.9, abs=0.11)
    assert detector.silent_s(2) == detector.silent_s(3) == 0.0


def test_the_clock_may_stand_still() -> None:
    detector = FailureDetector(Timing.localhost())
    detector.watch(1)

    assert not any(detector.tick(3.0) for _ in range(1000))
