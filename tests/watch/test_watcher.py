"""One source watched with one detector: what is said, what is kept to learn from, what a restart changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.net.fleet_processes import wait_until
from tests.net.nodes import free_addresses
from tests.signals.capture_files import WLAN, C, D, Frame, beacon, ethernet, ipv4, pcap
from tests.watch.alarms import lines_of
from tolfl.cli.fleet_commands import _watching
from tolfl.core.spec import RunSpec
from tolfl.detect import DetectorSpec, fit_detector
from tolfl.detect.features import Features
from tolfl.net.node_config import NodeConfig, WatchConfig
from tolfl.net.prepare import prepare
from tolfl.signals.capture_rows import CAPTURE_GRID, feature_names, window_rows
from tolfl.signals.windows import UDP
from tolfl.signals.wlan import WlanRows, networks_in
from tolfl.watch.fleet_watch import FleetWatch
from tolfl.watch.kept_rows import kept_rows
from tolfl.watch.sinks import JSONFile
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
    rows = np.concatenate([part.features[part.is_whole] for part in parts]).astype(np.float32)
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
    assert 'tolfl_watch_alarms_total{device="x"} 3' in first.metrics({"device": "x"})


def test_rows_are_kept_before_an_alarm_after_them_is_stored(tmp_path: Path, model: Path) -> None:
    kept_at_alarms: list[bool] = []
    (tmp_path / "now.pcap").write_bytes(pcap([*seconds(100, 20, 20), *seconds(120, 3, 400)]))
    watcher = Watcher(
        str(tmp_path / "now.pcap"), tmp_path, [], keeps=1000,
        on_event=lambda _: kept_at_alarms.append(kept_rows(tmp_path) is not None),
    )  # fmt: skip
    watcher.load(model)
    watcher.run()
    watcher.close()

    assert kept_at_alarms
    assert all(kept_at_alarms)


def test_sigterm_before_the_device_listens_keeps_every_row_once(tmp_path: Path, model: Path) -> None:
    now, state = tmp_path / "now.pcap", tmp_path / "state"
    state.mkdir()
    (state / "detector.tolfl").write_bytes(model.read_bytes())
    (tmp_path / "spec.toml").write_text(RunSpec(devices=2, clusters=1).to_toml())
    watch = WatchConfig(source=str(now), follow=True)
    spec = str(tmp_path / "spec.toml")
    config = NodeConfig(device=0, listen="127.0.0.1:1", state=str(state), spec=spec, insecure=True, watch=watch)
    frames = [*seconds(100, 20, 20), *seconds(120, 3, 400), *seconds(123, 20, 20)]
    kept = []
    for n_more in (0, 5, 10):
        now.write_bytes(pcap([*frames, *seconds(143, n_more, 20)]))
        with pytest.raises(SystemExit), _watching(config, False, lambda _: None) as (watching, _):  # noqa: PT012
            assert watching is not None
            watcher = watching.watcher
            # Silence closes the last window, too.
            wait_until(lambda: watcher.n_known + watcher.n_rows == 43 + n_more, "the last window")  # noqa: B023
            os.kill(os.getpid(), signal.SIGTERM)
        kept.append(counted(state))

    # 20 windows before the flood and 11 behind its group; 3 of the flood and 9 more until its group is over.
    assert kept == [(31, 12), (36, 12), (41, 12)]


FOLLOW = """
import sys
from pathlib import Path
from tolfl.watch.watcher import Watcher
watcher = Watcher(sys.argv[1], Path(sys.argv[2]), [], follow=sys.argv[4] == "follow", keeps=1000)
watcher.load(Path(sys.argv[3]))
watcher.run()
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("how", "kills"),
    [
        ("follow", {129: (20, 9), 143: (31, 12), 148: (36, 12), 149: (37, 12)}),  # silence closes the last window, too
        ("read", {143: (30, 12), 148: (35, 12), 149: (36, 12)}),  # no group is open where the file ends
    ],
)
def test_sigkill_keeps_every_row_once(tmp_path: Path, model: Path, how: str, kills: dict[int, tuple[int, int]]) -> None:
    now, state = tmp_path / "now.pcap", tmp_path / "state"
    # 20 windows before the flood, 3 of it, and 9 more until its group is over.
    frames = [*seconds(100, 20, 20), *seconds(120, 3, 400), *seconds(123, 40, 20)]
    kept = {}
    for last, expected in kills.items():
        now.write_bytes(pcap([frame for frame in frames if frame.time_ns < (START + last) * SECOND]))
        process = subprocess.Popen([sys.executable, "-c", FOLLOW, now, state, model, how])
        try:
            wait_until(lambda: counted(state) >= expected, f"rows of the windows before {last}")  # noqa: B023
        finally:
            process.kill()
            process.communicate()
        kept[last] = counted(state)

    assert kept == kills


def counted(state: Path) -> tuple[int, int]:
    found = kept_rows(state)
    return (0, 0) if found is None else (len(found[1]), found[2])


def test_a_clock_that_is_set_back_is_said_and_watching_goes_on(
    tmp_path: Path, model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watcher = watched(tmp_path, model, [*seconds(100, 30, 20), *seconds(40, 30, 20)])

    assert "now.pcap: the clock of the capture stepped by -89.950 s" in caplog.text
    assert watcher.n_rows >= 57
    assert watcher.n_alarms == 0


def test_a_device_of_a_fleet_keeps_the_networks_that_it_learned_from_and_tells_others_from_them(tmp_path: Path) -> None:
    def air(first: int, n_seconds: int, sender: bytes) -> list[Frame]:
        return [
            Frame(beacon(tenth * 10**5, sender), START * SECOND + tenth * SECOND // 10)
            for tenth in range(10 * first, 10 * (first + n_seconds))
        ]

    usual, now, state = tmp_path / "usual.pcap", tmp_path / "now.pcap", tmp_path / "state"
    usual.write_bytes(pcap(air(0, 90, C), WLAN))
    now.write_bytes(pcap([*air(100, 20, C), *air(120, 5, D), *air(125, 10, C)], WLAN))
    learn = {"what": "detector", "columns": list(feature_names(WlanRows.features))}
    (tmp_path / "spec.toml").write_text(RunSpec(devices=2, clusters=1, learn=learn).to_toml())
    config = NodeConfig(
        device=0,
        listen=free_addresses(1)[0],
        state=str(state),
        spec=str(tmp_path / "spec.toml"),
        data=str(usual),
        insecure=True,
        watch=WatchConfig(source=str(now), json=str(tmp_path / "alarms.jsonl")),
    )
    prepare(config)
    heard = networks_in([usual], CAPTURE_GRID)
    assert heard is not None
    parts = list(window_rows([usual], known=heard.of_several_windows))
    rows = np.concatenate([part.features[part.is_whole] for part in parts]).astype(np.float32)
    fit_detector({"0": rows}, DetectorSpec(), Features.named(parts[0].names)).save(state / "detector.tolfl")
    watch = FleetWatch(config, 1, "0")
    try:
        watch.start()
        wait_until(lambda: "has ended" in watch.watcher.trouble, "the end of the capture")
    finally:
        watch.close()
    alarm = next(one for one in lines_of(tmp_path / "alarms.jsonl") if one["severity"] == "high")

    assert (state / "known.networks").read_bytes() == heard.all.tobytes()
    assert heard.all.tobytes() not in (state / "detector.tolfl").read_bytes()
    assert (alarm["event"], alarm["start"]) == ("open", "2023-11-14T22:15:20Z")
    assert {one["name"] for one in alarm["features"]} == {"new_network_frames", "new_network_frames_10s"}
