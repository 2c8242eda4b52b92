"""Recordings through the commands, as a person types them; and the tutorial about them."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sigmf

from tests.cli.conftest import Command
from tolfl.signals.sigmf import open_recording, write_recording

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "tutorials" / "bluetooth-intruder.md").read_text()
TINY = ("--set", "comms_ml.windows_per_region=3")


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TOLFL_DATA", raising=False)


def noise_recording(path: Path, seed: int, n_windows: int = 60, tone_from: int | None = None) -> Path:
    """Write noise at a million samples a second, in windows of 1024; from a window on with a tone in it."""
    rng = np.random.default_rng(seed)
    n_samples = 1024 * n_windows
    samples = 0.01 * (rng.standard_normal(n_samples) + 1j * rng.standard_normal(n_samples))
    if tone_from is not None:
        samples[1024 * tone_from :] += 0.01 * np.exp(0.7j * np.arange(n_samples - 1024 * tone_from))
    return write_recording(path, [samples.astype(np.complex64)], rate_hz=1e6, frequency_hz=1e9)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_every_command_of_the_tutorial_runs_and_the_intruder_is_found(tolfl: Command, tmp_path: Path) -> None:
    commands = re.findall(r"^tolfl (.*)$", PAGE, flags=re.MULTILINE)
    shown = {command: tolfl(*shlex.split(command)) for command in commands}

    assert len(commands) == 6
    assert {command: err for command, (code, _, err) in shown.items() if code} == {}
    (alarms,) = [out for command, (_, out, _) in shown.items() if "--alert-only" in command]
    times = [float(line.split()[1]) for line in alarms.splitlines()[1:-1]]
    assert sum(time >= 0.099 for time in times) > 10 * sum(time < 0.099 for time in times)
    assert "spectrum flatness" in alarms
    found = json.loads((tmp_path / "pictures" / "evaluation.json").read_text())
    # What the page says.
    assert found["fleet"]["auroc"] == pytest.approx(0.97, abs=0.01)
    assert found["fleet"]["false_alarm_rate"] < 0.01
    assert found["fleet"]["detection_rate"] == pytest.approx(0.69, abs=0.01)


def test_the_example_of_the_reference_page_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "recordings.md").read_text()
    (example,) = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    subprocess.run([sys.executable, "-W", "error", "-c", example], cwd=tmp_path, check=True, timeout=100)

    assert sigmf.fromfile(tmp_path / "wide.sigmf-meta").sample_rate == 40e6


def test_one_window_that_is_no_numbers_spoils_no_other(tolfl: Command, tmp_path: Path) -> None:
    good = noise_recording(tmp_path / "good", 0)
    tolfl("fit", "good.sigmf-meta", "--model", "pca", "--out", "model")
    (segment,) = open_recording(good).segments
    samples = open_recording(good).read(segment, 0, segment.n_samples)
    samples[1500], samples[3000] = np.nan, np.inf
    write_recording(tmp_path / "broken", [samples], rate_hz=1e6, frequency_hz=0.0)
    code, out, err = tolfl("score", "model", "broken.sigmf-meta", "--format", "json")
    verdicts = [row["verdict"] for row in json.loads(out)]

    assert code == 1
    assert [place for place, verdict in enumerate(verdicts) if verdict == "not scored"] == [1, 2]
    assert err.count("it is not scored") == 2


@pytest.mark.parametrize("name", ["bluetooth-intruder-spectrogram.png", "bluetooth-intruder-timeline.png"])
def test_pictures_of_the_tutorial_are_there_and_small(name: str) -> None:
    picture = ROOT / "docs" / "tutorials" / name

    assert name in PAGE
    assert 10_000 < picture.stat().st_size < 200_000


def test_generated_recordings_are_valid_and_the_same_again(tolfl: Command, tmp_path: Path) -> None:
    code, out, _ = tolfl("data", "generate", "comms-ml", "--iq", "--seconds", "0.02", "--out", "one", *TINY)
    tolfl("data", "generate", "comms-ml", "--iq", "--seconds", "0.02", "--out", "two", *TINY)
    made = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*.sigmf-*"))

    assert code == 0
    assert len(made) == 12
    assert re.search(r"one/recordings/bluetooth/region-3\.sigmf-meta: 0\.02 s, \d+ emissions, 1\.6 MB", out)
    for name in made:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    for name in made[1::2]:
        sigmf.fromfile(tmp_path / "one" / name).validate()
    labels = {
        note.label for note in open_recording(tmp_path / "one/recordings/bluetooth/region-1.sigmf-meta").annotations
    }
    assert "bluetooth" in labels
    typical = {
        note.label for note in open_recording(tmp_path / "one/recordings/typical/region-2.sigmf-meta").annotations
    }
    assert typical == {"wifi"}


def test_a_detector_for_recordings_of_ones_own_finds_a_tone(tolfl: Command, tmp_path: Path) -> None:
    for seed, name in enumerate(("hall", "yard")):
        noise_recording(tmp_path / "fleet" / name, seed)
    (tmp_path / "fleet" / "README.md").write_text("Two receivers.")
    noise_recording(tmp_path / "today", 7, tone_from=40)
    fitted, _, err = tolfl("fit", "fleet", "--model", "pca", "--out", "model")
    code, out, _ = tolfl("score", "model", "today.sigmf-meta", "--time-column", "time", "--format", "json")
    rows = json.loads(out)

    assert (fitted, code) == (0, 0), err
    assert [row["verdict"] for row in rows[40:]] == ["alarm"] * 20
    assert sum(row["verdict"] == "alarm" for row in rows[:40]) <= 4
    assert rows[1]["time"] == "0.001024"
    assert rows[50]["features"][0]["unit"] in ("dBFS", "dB", "kHz")


def test_a_spectrogram_is_drawn(tolfl: Command, tmp_path: Path) -> None:
    noise_recording(tmp_path / "today", 7, tone_from=10)
    code, out, _ = tolfl("data", "spectrogram", "today.sigmf-meta", "--out", "pictures/all.png")
    tolfl("data", "spectrogram", "today.sigmf-meta", "--from", "0.01", "--seconds", "0.001", "--out", "part.svg")

    assert code == 0
    assert out == "picture: pictures/all.png\n"
    assert (tmp_path / "pictures" / "all.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "part.svg").is_file()
