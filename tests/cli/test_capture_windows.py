"""Windows of one's own: chosen when a detector is trained, remembered when it scores."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Command
from tests.cli.test_captures import FAST, traffic


def test_a_detector_remembers_its_windows(tolfl: Command, tmp_path: Path) -> None:
    traffic(tmp_path / "monday.pcap", 1)
    code, out, _ = tolfl("fit", "monday.pcap", "--window", "2", "--step", "4", *FAST, "--out", "model")
    _, lines, _ = tolfl("score", "model", "monday.pcap", "--format", "jsonl")

    assert code == 0
    assert "packets (2 s every 4 s)" in out
    assert len(lines.splitlines()) == 100  # of 400 seconds
