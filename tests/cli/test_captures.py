"""Captures on the command line: generated, trained on, scored; what they cannot do is said."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Command
from tests.signals.capture_files import WLAN, A, B, C, D, Frame, beacon, ethernet, ipv4, pcap, read
from tests.signals.files import sampling_file, sim_file, written
from tolfl.signals.windows import TCP, UDP

SECOND = 10**9
FAST = ("--model", "mahalanobis", "--format", "json")


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def traffic(
    path: Path, seed: int, n_seconds: int = 400, flood_at: int | None = None, start_s: int = 1_700_000_000
) -> Path:
    """Write a few packets a second, some of them TCP; in a flood, many short ones from many senders."""
    rng = np.random.default_rng(seed)
    frames = []
    for second in range(n_seconds):
        for offset in sorted(rng.uniform(0, 0.99, 3 + rng.poisson(4)).tolist()):
            protocol = TCP if rng.random() < 0.6 else UDP
            data = ethernet(
                0x0800, ipv4(protocol, bytes(int(rng.integers(20, 900)))), *((A, B) if offset < 0.5 else (C, A))
            )
            frames.append(Frame(data, (start_s + second) * SECOND + int(offset * SECOND)))
        if second == flood_at:
            start = (start_s + second) * SECOND + 990_000_000
            senders = [bytes.fromhex(f"0200000001{number:02x}") for number in range(200)]
            frames += [
                Frame(ethernet(0x0800, ipv4(UDP, bytes(8)), one), start + place) for place, one in enumerate(senders)
            ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pcap(frames))
    return path


def test_a_detector_trained_on_a_capture_finds_the_flood_in_another(tolfl: Command, tmp_path: Path) -> None:
    traffic(tmp_path / "monday.pcap", 1)
    traffic(tmp_path / "tuesday.pcap", 2, flood_at=123)
    code, out, err = tolfl("fit", "monday.pcap", *FAST, "--out", "model")
    scored, lines, _ = tolfl("score", "model", "tuesday.pcap", "--time-column", "time", "--format", "jsonl")
    rows = [json.loads(line) for line in lines.splitlines()]
    worst = max(rows, key=lambda row: row["score"])

    assert (code, scored) == (0, 0)
    assert "wire_mean_bytes" in out
    assert len(rows) == 400  # the first and the last second are partial
    assert worst["row"] == 124
    assert worst["time"].startswith("2023-11-14 22:15:2")
    assert worst["verdict"] == "alarm"
    assert "Traceback" not in err


def test_a_network_in_place_of_a_known_one_is_found_where_the_detector_was_fitted_alone(
    tolfl: Command, tmp_path: Path
) -> None:
    def air(second: int, sender: bytes) -> list[Frame]:
        start = (1_700_000_000 + second) * SECOND
        return [
            Frame(beacon(second * 10**6 + place * 10**5, sender), start + place * SECOND // 10) for place in range(10)
        ]

    (tmp_path / "usual.pcap").write_bytes(pcap([one for second in range(120) for one in air(second, C)], WLAN))
    now = [one for second in range(200, 240) for one in air(second, D if second == 220 else C)]
    (tmp_path / "now.pcap").write_bytes(pcap(now, WLAN))
    code, _, err = tolfl("fit", "usual.pcap", *FAST, "--out", "model")
    assert code == 0, err

    def first_alarm() -> tuple[int, list[str]]:
        lines = [json.loads(line) for line in tolfl("score", "model", "now.pcap", "--format", "jsonl")[1].splitlines()]
        found = next((line for line in lines if line["verdict"] == "alarm" and not line["partial"]), None)
        return (0, []) if found is None else (found["row"], [one["name"] for one in found["features"]])

    row, names = first_alarm()
    assert row == 21
    assert "new_network_frames" in names
    assert (tmp_path / "model.networks").stat().st_size == 8
    (tmp_path / "model.networks").unlink()  # as on a device that was given the detector alone
    assert first_alarm() == (0, [])


def test_a_folder_of_captures_is_a_fleet_and_rotated_files_are_one_device(tolfl: Command, tmp_path: Path) -> None:
    for place, name in enumerate(("north", "south_00001_20231114221320", "south_00002_20231114221640")):
        traffic(tmp_path / "site" / f"{name}.pcap", place, 200, start_s=1_700_000_000 + (place == 2) * 200)
    code, out, _ = tolfl("data", "describe", "site", "-n", "2", "--format", "json")
    trained, fitted, _ = tolfl("fit", "site", *FAST, "--out", "model")
    scored, lines, _ = tolfl("score", "model", "site", "--format", "jsonl")
    devices = Counter(json.loads(line)["device"] for line in lines.splitlines())
    ran, run, _ = tolfl(
        "simulate", "--data", "site", "--devices", "2", "--clusters", "2", "--rounds", "2", "--format", "json"
    )

    assert (code, trained, scored, ran) == (0, 0, 0, 0)
    assert [sum(counts.values()) > 100 for counts in json.loads(out)["per_device"]] == [True, True]
    assert devices == {"north": 200, "south": 400}
    assert "north" in fitted
    assert json.loads(run)["data"] == "site/"


def test_generated_captures_go_straight_in(tolfl: Command, tmp_path: Path) -> None:
    code, out, _ = tolfl(
        "data", "generate", "comms-ml", "--pcap", "--out", "made",
        "--set", "comms_ml.windows_per_region=3",
    )  # fmt: skip
    trained, _, _ = tolfl("fit", "made/captures/typical", *FAST, "--out", "model")
    scored, lines, _ = tolfl("score", "model", "made/captures/rate", "--format", "jsonl")
    again, _, err = tolfl(
        "data", "generate", "comms-ml", "--pcap", "--out", "made", "--set", "comms_ml.windows_per_region=3"
    )
    kinds = sorted(path.name for path in (tmp_path / "made" / "captures").iterdir())
    devices = {json.loads(line)["device"] for line in lines.splitlines()}

    assert (code, trained, scored) == (0, 0, 0)
    assert "made/samples.npz: 18 samples of 112 features" in out
    assert kinds == ["bluetooth", "rate", "region-4", "typical"]
    assert devices == {"region-1", "region-2", "region-3"}
    assert again == 1
    assert "has captures already; choose another --out" in err


def test_a_configuration_of_the_original_project_gives_its_samples(tolfl: Command, tmp_path: Path) -> None:
    sim = written(tmp_path, sim_file(7200), "sim.json")
    sampling = written(tmp_path, sampling_file(), "sampling.json")
    files = ("--sim-config", str(sim), "--sampling-config", str(sampling), "--out", "d")
    code, out, _ = tolfl("data", "generate", "comms-ml", *files)
    refused, _, err = tolfl("data", "generate", "comms-ml", *files, "--pcap")

    assert (code, refused) == (0, 2)
    assert out.startswith("d/samples.npz: ")
    assert "leave out --sim-config" in err


def test_what_was_not_understood_is_said_on_standard_error(
    tolfl: Command, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = traffic(tmp_path / "x.pcap", 1, 100)
    path.write_bytes(path.read_bytes() + pcap([Frame(ethernet(0x0806, bytes(46)), (1_700_000_000 + 99) * SECOND)])[24:])
    code, out, _ = tolfl("fit", "x.pcap", *FAST, "--out", "model")

    assert code == 0
    assert json.loads(out)
    assert [record.getMessage() for record in caplog.records] == [
        f"x.pcap: 1 of {n_packets(path)} packets count, but neither as TCP nor as UDP (1 without IP)"
    ]


def n_packets(path: Path) -> int:
    return read(path)[1].n_packets


def test_a_detector_remembers_its_windows(tolfl: Command, tmp_path: Path) -> None:
    traffic(tmp_path / "monday.pcap", 1)
    code, out, _ = tolfl("fit", "monday.pcap", "--window", "2", "--step", "4", *FAST, "--out", "model")
    _, lines, _ = tolfl("score", "model", "monday.pcap", "--format", "jsonl")

    assert code == 0
    assert "packets (2 s every 4 s)" in out
    assert len(lines.splitlines()) == 100  # of 400 seconds
