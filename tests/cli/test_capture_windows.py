"""Windows of one's own: chosen when a detector is trained, remembered when it scores."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.cli.test_captures import FAST, traffic


def test_a_detector_remembers_its_windows(tolfl: Command, tmp_path: Path) -> None:
    traffic(tmp_path / "monday.pcap", 1)
    code, out, _ = tolfl("fit", "monday.pcap", "--window", "2", "--step", "4", *FAST, "--out", "model")
    _, lines, _ = tolfl("score", "model", "monday.pcap", "--format", "jsonl")

    assert code == 0
    assert "packets (2 s every 4 s)" in out
    assert len(lines.splitlines()) == 100  # of 400 seconds


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("fit", "x.pcap", "--window", "2", "--step", "1"), "the step must be at least the window"),
        (("fit", "x.pcap", "--window", "0"), "dataset window_s 0; use a number above 0"),
        (("evaluate", "model", "x.pcap"), "there is no truth to compare with"),
        (("evaluate", "model", "folder"), "there is no truth to compare with"),
    ],
)
def test_what_cannot_be_gets_one_sentence(
    tolfl: Command, tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    traffic(tmp_path / "x.pcap", 1, 60)
    traffic(tmp_path / "folder" / "x.pcap", 1, 60)
    if "model" in arguments:
        assert tolfl("fit", "x.pcap", *FAST, "--out", "model")[0] == 0
    code, _, err = tolfl(*arguments)

    assert code in (1, 2)
    assert sentence in err
