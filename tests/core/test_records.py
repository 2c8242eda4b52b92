"""Record lines: what is written can be read, and a bad line is named."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tolfl.core.errors import TolFLError
from tolfl.core.records import (
    SCHEMA,
    AnyRecord,
    Evaluated,
    FailureHappened,
    Joined,
    RoundClosed,
    RunEnded,
    RunStarted,
    Scored,
    TakenOver,
    decode_records,
    encode_records,
    how_far,
    stage_of,
)

ONE_OF_EACH: list[AnyRecord] = [
    RunStarted(
        time_s=0.0,
        scheme="tol-fl",
        data="blobs",
        seed=3,
        clusters=((0, 1), (2,)),
        model_bytes=400,
        learn="autoencoder",
        stages=(("scaling", 2), ("training", 100)),
    ),
    RoundClosed(
        time_s=1.25,
        device=2,
        round=0,
        version="6.1.0.abc",
        parent="",
        included=(0, 2),
        missing={"1": "failed"},
        n_samples=6,
        loss=0.1 + 0.2,
        bytes=1200,
        messages={"unicast": 3},
        heads=(0, 2),
        stall_s=0.2,
        stage="scaling",
        digest="5f2c",
    ),
    FailureHappened(time_s=1.0, device=1, round=0, what="died (train)"),
    FailureHappened(time_s=1.0, round=0, what="cut 0 | 1,2"),
    TakenOver(time_s=1.2, device=1, round=0, version="0.0.0.", cluster=0, previous=0),
    Joined(time_s=2.0, device=1, round=2, version="12.2.0.def", incarnation=1),
    Evaluated(time_s=2.0, device=2, round=1, auroc=0.75),
    RunEnded(time_s=3.0, reason="over", survivors=(0, 2)),
    Scored(
        time_s=3.0,
        auroc=0.7,
        average_precision=None,
        auroc_per_model={"global": 0.7},
        auroc_best=0.7,
        auroc_chosen=0.7,
        auroc_all_models=0.7,
        train_loss=1.5,
    ),
]


def test_records_come_back_as_they_were() -> None:
    assert list(decode_records(encode_records(ONE_OF_EACH).splitlines())) == ONE_OF_EACH


def test_every_line_is_one_json_object_with_its_kind_and_schema() -> None:
    lines = [json.loads(line) for line in encode_records(ONE_OF_EACH).splitlines()]

    assert [line["kind"] for line in lines] == [
        "run_started", "round_closed", "failure", "failure", "takeover", "join", "evaluation", "run_ended",
        "scores",
    ]  # fmt: skip
    assert {line["schema"] for line in lines} == {SCHEMA}


def test_empty_lines_and_text_are_read_too() -> None:
    text = encode_records(ONE_OF_EACH[:2]).decode().splitlines()

    assert list(decode_records([text[0], "", "  ", text[1]])) == ONE_OF_EACH[:2]


@pytest.mark.parametrize(
    "bad",
    [
        b"not json",
        b'{"kind":"dance","time_s":0}',
        b'{"time_s":0}',
        b'{"kind":"run_ended","time_s":"soon","reason":"over","survivors":[]}',
        b'{"kind":"run_ended","time_s":1.0}',
        encode_records(ONE_OF_EACH)[:40],
    ],
)
def test_a_line_that_is_no_record_is_named_by_its_number(bad: bytes) -> None:
    good = encode_records(ONE_OF_EACH[:2]).splitlines()

    with pytest.raises(TolFLError, match=r"^runs/a, line 4: "):
        list(decode_records([good[0], b"", good[1], bad], source="runs/a"))


def test_a_reader_may_stop_before_a_bad_line() -> None:
    lines = decode_records([encode_records(ONE_OF_EACH[:1]), b"broken"])

    assert next(lines) == ONE_OF_EACH[0]


#: As lines were before rounds had stages.
OLD_LINES = [
    b'{"kind":"run_started","time_s":0.0,"device":null,"round":null,"version":null,"schema":1,"scheme":"tol-fl",'
    b'"data":"blobs","seed":3,"clusters":[[0,1],[2]],"model_bytes":400,"hosts":[],"defence":"","liars":""}',
    b'{"kind":"round_closed","time_s":1.25,"device":2,"round":0,"version":"6.1.0.abc","schema":1,"parent":"",'
    b'"included":[0,2],"missing":{"1":"failed"},"n_samples":6,"loss":0.5,"bytes":1200,"messages":{"unicast":3},'
    b'"heads":[0,2],"stall_s":0.2,"groups":{}}',
]


def test_lines_without_a_stage_are_read_with_none() -> None:
    started, closed = decode_records(OLD_LINES)

    assert isinstance(started, RunStarted)
    assert isinstance(closed, RoundClosed)
    assert (started.learn, started.stages, started.model_bytes) == ("", (), 400)
    assert (closed.stage, closed.digest, closed.included) == ("", "", (0, 2))


@given(st.lists(st.tuples(st.sampled_from(["scaling", "training", "thresholds"]), st.integers(1, 5)), min_size=1))
def test_every_round_is_in_the_stage_that_the_rounds_before_it_leave_it_in(stages: list[tuple[str, int]]) -> None:
    names = [name for name, of in stages for _ in range(of)]
    # A stage that comes again goes on where it was.
    rounds = [(name, names[:place].count(name), names.count(name)) for place, name in enumerate(names)]
    last = stages[-1][0]

    assert [stage_of(stages, index) for index in range(len(rounds))] == rounds
    assert stage_of(stages, len(rounds)) == (last, names.count(last), names.count(last))


def test_a_run_without_stages_is_at_a_round_and_nothing_else() -> None:
    assert stage_of((), 3) == ("", 3, 0)
    assert how_far((), 0, 8) == "0 of 8 rounds"


def test_a_run_that_has_closed_no_round_is_at_the_start_of_its_first_stage() -> None:
    stages = [("scaling", 1), ("thresholds", 6)]

    assert [how_far(stages, done, 7) for done in (0, 1, 2, 7)] == [
        "scaling 0/1 (0 of 7 rounds)",
        "scaling 1/1 (1 of 7 rounds)",
        "thresholds 1/6 (2 of 7 rounds)",
        "thresholds 6/6 (7 of 7 rounds)",
    ]
