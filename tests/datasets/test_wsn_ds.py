"""WSN-DS: nodes are owners, whatever blanks a copy has in its header."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.datasets.written import csv
from tolfl.core.errors import DataError
from tolfl.datasets.public_sets import read_wsn_ds

NAMES = (
    "id,Time,Is_CH,who_CH,Dist_To_CH,ADV_S,ADV_R,JOIN_S,JOIN_R,SCH_S,SCH_R,Rank,DATA_S,DATA_R,Data_Sent_To_BS,"
    "dist_CH_To_BS,send_code,Expaned_Energy,Attack_type"
)
#: As in the copy on Kaggle.
BLANKS = (
    " id, Time, Is_CH, who CH, Dist_To_CH, ADV_S, ADV_R, JOIN_S, JOIN_R, SCH_S, SCH_R,Rank, DATA_S, DATA_R,"
    " Data_Sent_To_BS, dist_CH_To_BS, send_code ,Expaned Energy,Attack type"
)
ROWS = """
101000,50,1,101000,0.0,1,0,0,25,1,0,0,0,1200,48,130.08535,0,2.4694,Normal
101007,53,0,101044,15.5081,0,6,1,0,0,1,19,49,0,0,0.0,3,0.07863,Normal
602007,103,0,101044,75.5,0,6,1,0,0,1,19,49,0,0,0.0,3,0.07863,Grayhole
"""


@pytest.mark.parametrize("header", [NAMES, BLANKS, NAMES.upper()])
@pytest.mark.parametrize("name", ["wsn_ds.csv.gz", "WSN-DS.csv"])
def test_nodes_classes_and_times(tmp_path: Path, header: str, name: str) -> None:
    csv(tmp_path / name, header + ROWS)
    raw = read_wsn_ds(tmp_path)

    assert raw.name == "wsn-ds"
    assert raw.owners is not None
    assert raw.owners.tolist() == ["0", "7", "7"]
    assert raw.labels.tolist() == ["Normal", "Normal", "Grayhole"]
    assert raw.times is not None
    assert raw.times.tolist() == [50, 53, 103]
    assert raw.samples.shape == (3, 15)
    assert [name.lower() for name in raw.feature_names[:3]] == ["is_ch", "dist_to_ch", "adv_s"]
    assert raw.feature_names[-1].lower() == "expaned_energy"
    assert raw.samples[0, 8:].tolist() == pytest.approx([0, 0, 1200, 48, 130.08535, 0, 2.4694])


def test_another_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no column 'who_ch', so this is not WSN-DS"):
        read_wsn_ds(csv(tmp_path / "wsn_ds.csv", "id,a\n1,2\n"))


@pytest.mark.parametrize("wrong", ["", "abc"])
def test_a_row_without_a_node_is_refused(tmp_path: Path, wrong: str) -> None:
    text = f"id,Time,who_CH,Rank,Attack_type\n1001,1,1001,2,Normal\n{wrong},1,1001,2,Normal\n"

    with pytest.raises(DataError, match="column 'id' is not a whole number in every row"):
        read_wsn_ds(csv(tmp_path / "wsn_ds.csv", text))
