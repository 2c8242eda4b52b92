"""Pictures of recordings: what is where, and that a short burst is never averaged away."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tolfl.core.errors import SpecError
from tolfl.signals.sigmf import Annotation, Recording, open_recording, write_recording
from tolfl.signals.spectrograms import plot_spectrogram, spectrogram

RATE_HZ = 1e6


def recording(folder: Path, samples: np.ndarray, notes: list[Annotation] | None = None) -> Recording:
    path = write_recording(folder / "x", [samples], rate_hz=RATE_HZ, frequency_hz=1e8, annotations=notes or [])
    return open_recording(path)


def test_a_tone_has_its_power_in_its_own_row(tmp_path: Path) -> None:
    tone = 0.1 * np.exp(2j * np.pi * 0.25 * np.arange(25_600))
    found = recording(tmp_path, tone)
    picture = spectrogram(found, found.segments[0], 0, found.n_samples)

    assert picture.shape == (256, 100)
    assert set(picture.argmax(axis=0).tolist()) == {128 + 64}
    assert picture.max() == pytest.approx(-20.0, abs=0.01)


def test_a_burst_shows_in_a_long_recording(tmp_path: Path) -> None:
    samples = np.full(2_000_000, 1e-6, np.complex64)
    samples[700_032:700_300] = 0.5
    found = recording(tmp_path, samples)
    picture = spectrogram(found, found.segments[0], 0, found.n_samples)

    assert picture.shape[1] == 1200
    assert picture[128].argmax() / 1200 == pytest.approx(0.35, abs=2 / 1200)


def test_a_picture_has_a_box_for_each_annotation_and_a_legend(tmp_path: Path) -> None:
    notes = [
        Annotation(1000, 5000, 99.9e6, 100.1e6, "wifi"),
        Annotation(8000, 3000, None, None, "bluetooth"),
        Annotation(20_000, 10, 99.9e6, 100.1e6, "wifi"),
        Annotation(15_000, None),
    ]
    samples = np.random.default_rng(0).normal(size=(25_600, 2)).astype(np.float32).view(np.complex64)[:, 0]
    (axis, _) = plot_spectrogram(recording(tmp_path, 0.1 * samples, notes)).axes

    assert len(axis.patches) == 3  # and one that is too narrow for its sides
    legend = axis.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["wifi (2)", "bluetooth (1)", "annotation (1)"]
    assert axis.get_ylim() == pytest.approx((99.5, 100.5))
    assert axis.get_xlabel() == "time, ms"


@pytest.mark.parametrize(("from_s", "seconds"), [(-1.0, None), (1.0, None), (0.0, 0.0), (0.0, -1.0)])
def test_a_part_that_is_not_there_gets_one_sentence(tmp_path: Path, from_s: float, seconds: float | None) -> None:
    found = recording(tmp_path, np.ones(25_600, np.complex64))

    with pytest.raises(SpecError, match=r"the recording lasts 0\.0256 s"):
        plot_spectrogram(found, from_s, seconds)
