"""Comms-ML samples from a recording: the transcript's statistics, and readings of the router's frames."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tolfl.signals.network import simulate
from tolfl.signals.radio.air import AirSettings
from tolfl.signals.radio.region_recording import Scene, write_scene
from tolfl.signals.recordings.metadata import RecordingError
from tolfl.signals.recordings.reading import open_recording
from tolfl.signals.recordings.transcript_samples import has_transcript_names, transcript_samples
from tolfl.signals.recordings.writing import write_recording
from tolfl.signals.regions import default_regions
from tolfl.signals.statistics import STATISTICS, window_statistics
from tolfl.signals.windows import WindowGrid, windows_of

REGION = default_regions()[0]
#: Slow enough that hardly a packet waits for another one.
AIR = AirSettings(time_lapse=100.0)


def test_statistics_are_those_of_the_simulation_and_readings_those_of_the_router(tmp_path: Path) -> None:
    recording = open_recording(write_scene(tmp_path / "one", Scene(REGION, 0.3, 1, air=AIR)))
    samples = transcript_samples(recording)
    windows = windows_of(simulate(REGION, 30.0, 1), WindowGrid(1.0, 1.0))
    expected = window_statistics(windows.select(windows.have(windows.packets.source == REGION.router)))

    assert samples.features.shape == (len(expected), 112)
    assert has_transcript_names(samples.names)
    counts = [STATISTICS.index(name) for name in ("packets", "wire_min_bytes", "wire_max_bytes", "unique_sources")]
    assert np.array_equal(samples.features[:, counts], expected[:, counts])
    # A frame waits at most for another one: half a millisecond, by the transcript's clock a twentieth of a second.
    assert np.abs(samples.features[:, 2] - expected[:, 2]).max() < 0.06
    # A training field of period 16 repeats itself; noise would not.
    readings = samples.features[:, 12 + 20 :]
    likeness = [np.corrcoef(row[:-16], row[16:])[0, 1] for row in readings]
    assert min(likeness) > 0.9
    assert (samples.features[:, 12:] ** 2).mean() == pytest.approx(1.0)


def test_without_a_transcript_there_is_one_sentence(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "x", [np.zeros(2000, np.complex64)], rate_hz=1e6, frequency_hz=1e9)

    with pytest.raises(RecordingError, match="there is no transcript of packets"):
        transcript_samples(open_recording(path))


def test_names_of_the_data_set_are_known() -> None:
    assert has_transcript_names((*STATISTICS, "reading_0"))
    assert not has_transcript_names(("power", "peak over power"))
