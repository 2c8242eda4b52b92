"""Tables as they are scored: which columns have the roles of training, and what stands in an alarm."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from tests.detect.test_frames import frame
from tolfl.detect import FederatedDetector
from tolfl.detect.scoring import ScoreRequest, TableScorer, score_stream
from tolfl.tables import blocks_of


def test_devices_of_training_are_taken_where_a_table_has_their_column() -> None:
    detector = FederatedDetector().fit(frame(), devices="site").detector_
    with_devices, without = TableScorer(detector), TableScorer(detector)

    rows = [with_devices.rows(block) for block in blocks_of(frame(seed=1))]
    fleet_only = [without.rows(block) for block in blocks_of(frame(seed=1).drop_columns("site"))]

    assert rows[0].devices is not None
    assert rows[0].devices[:4].tolist() == ["s0", "s1", "s2", "s0"]
    assert not any("'site'" in note for note in with_devices.notes)
    assert fleet_only[0].devices is None
    lost = (
        "there is no column 'site', which was the device in training: each row is compared with the fleet's threshold"
    )
    assert lost in without.notes


def test_a_stream_with_ever_new_devices_keeps_the_names_that_it_will_show() -> None:
    scorer = TableScorer(FederatedDetector().fit(frame(), devices="site").detector_)
    new = frame(seed=1).slice(0, 3).drop_columns("site")
    for number in range(100):
        names = [f"{number}-{row}" for row in range(3)]
        next(scorer.score(blocks_of(new.append_column("site", pa.array(names)))))

    assert len(scorer._unknown) == 6
    assert "the fleet's is used: 0-0, 0-1, 0-2, 1-0, 1-1, ..." in scorer.notes[-1]


def test_alarms_of_a_device_that_follow_each_other_are_one_group(tmp_path: Path) -> None:
    detector = FederatedDetector().fit(frame(), devices="site").detector_
    table = frame(seed=2).slice(0, 30)
    flow = np.array([2 * value for value in table["warm"].to_pylist()])
    flow[[6, 9]] = -500.0  # of device s0
    odd = table.set_column(table.column_names.index("flow"), "flow", pa.array(flow))
    pacsv.write_csv(odd, tmp_path / "new.csv")
    out = io.BytesIO()

    n_bad = score_stream(
        detector, ScoreRequest(str(tmp_path / "new.csv"), group=5.0, format="jsonl"), out, io.StringIO()
    )

    groups = [json.loads(line) for line in out.getvalue().splitlines()]
    (odd_one,) = [group for group in groups if group["alarms"] == 2]
    assert n_bad == 0
    assert odd_one["device"] == "s0"
