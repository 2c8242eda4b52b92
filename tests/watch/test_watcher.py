"""One source watched with one detector: what is said, what is kept to learn from, what a restart changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.signals.capture_files import Frame, ethernet, ipv4, pcap
from tests.watch.alarms import lines_of
from tolfl.detect import DetectorSpec, fit_detector
from tolfl.detect.feature_names import Features
from tolfl.signals.captures.windows import window_rows
from tolfl.signals.packets import UDP
from tolfl.watch.kept_rows import kept_rows
from tolfl.watch.sinks import JSONFile
from tolfl.watch.watch_metrics import watch_page
from tolfl.watch.watcher import Watcher

SECOND, START = 10**9, 1_700_000_000
DATA = ethernet(0x0800, ipv4(UDP, bytes(30)))


def seconds(first: int, n: int, per_second: int) -> list[Frame]:
    return [
        Frame(DATA, (START + second) * SECOND + place * SECOND // per_second)
        for second in range(first, first + n)
        for place in range(per_second)
    ]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fit on a minute of twenty packets a second."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "usual.pcap").write_bytes(pcap(seconds(0, 61, 20)))
    parts = list(window_rows([folder / "usual.pcap"]))
    rows = np.concatenate([part.features[~part.is_partial] for part in parts]).astype(np.float32)
    return fit_detector({"0": rows}, DetectorSpec(), Features.named(parts[0].names)).save(folder / "model")


def watched(folder: Path, model: Path, frames: list[Frame]) -> Watcher:
    (folder / "now.pcap").write_bytes(pcap(frames))
    watcher = Watcher(str(folder / "now.pcap"), folder, [JSONFile(str(folder / "alarms.jsonl"))], keeps=1000)
    watcher.load(model)
    try:
        watcher.run()
    finally:
        watcher.close()
    return watcher


def test_a_flood_is_one_group_and_its_rows_are_not_learned_from(tmp_path: Path, model: Path) -> None:
    frames = [*seconds(100, 20, 20), *seconds(120, 3, 400), *seconds(123, 20, 20)]
    first = watched(tmp_path, model, frames)
    again = watched(tmp_path, model, [*frames, *seconds(143, 5, 20)])
    kept, events = kept_rows(tmp_path), lines_of(tmp_path / "alarms.jsonl")

    assert [event["event"] for event in events] == ["open", "close"]
    assert (events[0]["start"], events[1]["end"], events[1]["n_alarms"]) == (
        "2023-11-14T22:15:20Z", "2023-11-14T22:15:22Z", 3,
    )  # fmt: skip
    assert first.n_rows == 42  # the last window is a part of one
    assert again.n_known >= 33  # up to the last event
    assert kept is not None
    assert kept[1][:, 0].max() == 20
    assert kept[2] == 3 + 9  # the flood, and the windows until its group was closed
    assert 'tolfl_watch_alarms_total{device="x"} 3' in watch_page(first, {"device": "x"})


def test_a_clock_that_is_set_back_is_said_and_watching_goes_on(
    tmp_path: Path, model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watcher = watched(tmp_path, model, [*seconds(100, 30, 20), *seconds(40, 30, 20)])

    assert "now.pcap: the clock of the capture stepped by -89.950 s" in caplog.text
    assert watcher.n_rows >= 57
    assert watcher.n_alarms == 0
