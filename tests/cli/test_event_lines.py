"""What `tolfl node` and `tolfl up` print where nothing can be drawn."""

from __future__ import annotations

import pytest

from tolfl.cli.event_lines import EventLines
from tolfl.core.records import AnyRecord, FailureHappened, Joined, RoundAdopted, TakenOver


def adopted(
    round_index: int, included: tuple[int, ...], missing: dict[str, str], loss: float | None = None
) -> RoundAdopted:
    return RoundAdopted(
        time_s=float(round_index), device=0, round=round_index, version=f"{round_index}", parent="", included=included,
        missing=missing, n_samples=1, heads=included, stall_s=0.0, loss=loss, devices=included,
    )  # fmt: skip


def printed(records: list[AnyRecord], capsys: pytest.CaptureFixture[str]) -> list[str]:
    lines = EventLines(lambda record: f"{record.time_s:g}", now_s=lambda: 0.0)
    for record in records:
        lines.print_event(record)
    return capsys.readouterr().err.splitlines()


def test_a_device_that_only_rounds_tell_of_is_named_once_and_again_when_it_fails_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole, without = (0, 1, 2), (0, 2)
    rounds = [adopted(0, whole, {}), *(adopted(n, without, {"1": "failed"}) for n in (1, 2))]
    again = [adopted(3, whole, {}), adopted(4, without, {"1": "failed"})]

    assert printed([*rounds, *again], capsys) == [
        "0 round 0: 3 devices inside",
        "1 device 1 missing from round 1",
        "4 device 1 missing from round 4",
    ]


def test_a_death_is_one_line_however_many_find_out(capsys: pytest.CaptureFixture[str]) -> None:
    found = [
        FailureHappened(time_s=1.5, device=1, round=1, what="found dead: connection refused", by=by) for by in (0, 2)
    ]
    late = adopted(0, (0, 1, 2), {})  # of a device whose file is read later
    back = Joined(time_s=3.0, device=1, round=3, incarnation=1)

    assert printed([*found, late, adopted(1, (0, 2), {"1": "failed"}), back], capsys) == [
        "1.5 device 1 is gone (connection refused), reported by device 0",
        "0 round 0: 3 devices inside",
        "3 device 1 is part of the fleet again",
    ]


def test_whoever_leaves_in_good_order_has_left(capsys: pytest.CaptureFixture[str]) -> None:
    back = Joined(time_s=3.0, device=1, round=3, incarnation=1)
    rounds: list[AnyRecord] = [adopted(0, (0, 1, 2), {}), adopted(1, (0, 2), {}), adopted(2, (0, 2), {}), back]

    assert printed(rounds, capsys) == [
        "0 round 0: 3 devices inside",
        "1 device 1 left before round 1",
        "3 device 1 is part of the fleet again",
    ]


def test_a_take_over_is_one_line_until_the_head_was_back(capsys: pytest.CaptureFixture[str]) -> None:
    over = [TakenOver(time_s=1.0 + n, device=1, round=n, version=str(n), cluster=0, previous=0) for n in (1, 2, 5)]
    without = adopted(2, (1, 2), {"0": "failed"})
    back = adopted(4, (0, 1, 2), {})

    assert printed([adopted(0, (0, 1, 2), {}), over[0], over[1], without, back, over[2]], capsys) == [
        "0 round 0: 3 devices inside",
        "2 device 1 takes over cluster 0 from device 0",
        "2 device 0 missing from round 2",
        "6 device 1 takes over cluster 0 from device 0",
    ]


def test_a_member_prints_the_loss_of_the_round(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed([adopted(0, (0, 1), {}, loss=0.5)], capsys) == ["0 round 0: 2 devices inside, loss 0.5"]
