"""Samples of a receiver: the same windows at any gain, silence without numbers, streams as files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tolfl.core.errors import DataError, SpecError
from tolfl.signals.receiver import Tuning, hertz, raw_rows, receiver_names, stream_rows, tuned
from tolfl.tables import blocks

RATE_HZ = 250_000.0
NAMES = [name.split(" (")[0] for name in receiver_names(RATE_HZ)]


def pulses(gain: float = 1.0, n_seconds: float = 1.0) -> NDArray[np.complex64]:
    """Return noise with a pulse of 2 ms at +25 kHz in every tenth window."""
    rng = np.random.default_rng(0)
    n = round(RATE_HZ * n_seconds)
    samples = 0.01 * (rng.standard_normal(n) + 1j * rng.standard_normal(n))
    for start in range(1000, n - 500, 80_000):
        samples[start : start + 500] += 0.3 * np.exp(2j * np.pi * 0.1 * np.arange(500))
    return (gain * samples).astype(np.complex64)


def rows(path: Path, asked: Tuning | None = None) -> NDArray[np.float64]:
    return np.concatenate([one.features for one in raw_rows(path, asked or Tuning(), [])])


def written(folder: Path, samples: NDArray[np.complex64], ending: str = "cf32") -> Path:
    path = folder / f"g001_433.92M_250k.{ending}"
    parts = samples.view(np.float32)
    content = {
        "cf32": parts,
        "cs16": np.rint(parts * 32768).astype("<i2"),
        "cs8": np.rint(parts * 128).astype("i1"),
        "cu8": np.clip(np.rint(parts * 128 + 127.5), 0, 255).astype("u1"),
    }[ending]
    path.write_bytes(content.tobytes())
    return path


@pytest.mark.parametrize("gain", [0.25, 4.0])
def test_another_gain_changes_no_feature(tmp_path: Path, gain: float) -> None:
    before, after = (rows(written(tmp_path, pulses(one))) for one in (1.0, gain))

    assert np.allclose(before, after, rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("ending", ["cf32", "cs16", "cs8", "cu8"])
def test_a_pulse_is_found_in_every_format_and_silence_has_no_more_than_its_strength(
    tmp_path: Path, ending: str
) -> None:
    found = rows(written(tmp_path, pulses(), ending))
    first, silent = (dict(zip(NAMES, row, strict=True)) for row in found[:2])

    assert first["pulses"] == 1
    assert first["pulse width"] == pytest.approx(0.002, rel=0.05)
    assert first["centre"] == pytest.approx(25.0, abs=1.0)
    assert silent["pulses"] == silent["duty"] == 0
    assert silent["excess"] == pytest.approx(0.0, abs=0.5)
    assert np.isnan([silent[name] for name in NAMES if name not in ("excess", "duty", "pulses")]).all()


def test_a_stream_gives_the_windows_of_its_file(tmp_path: Path) -> None:
    path = written(tmp_path, pulses(n_seconds=3.0))
    content = path.read_bytes()
    chunks = (content[first : first + 1000] for first in range(0, len(content), 1000))
    stream = stream_rows(chunks, Tuning(RATE_HZ, 0.0, "cf32"), [])
    found, expected = np.concatenate([one.features for one in stream]), rows(path)

    # The floor of a stream is that of what has come so far.
    assert len(found) == len(expected)
    assert np.array_equal(found[:, 3], expected[:, 3])
    assert np.nanmax(np.abs(found[:, 0] - expected[:, 0])) < 0.5


def test_windows_that_clip_are_said(tmp_path: Path) -> None:
    notes: list[str] = []
    for _ in raw_rows(written(tmp_path, pulses(4.0), "cu8"), Tuning(), notes):
        pass

    assert notes == ["4 of 31 windows clip; lower the gain of the receiver"]


def test_offsets_count_from_the_centre_that_is_asked_for(tmp_path: Path) -> None:
    plain, moved = (rows(written(tmp_path, pulses()), Tuning(centre_hz=one))[0, 8] for one in (0.0, 433.9e6))

    assert moved - plain == pytest.approx(20.0)


def test_the_rate_is_in_the_name_or_said(tmp_path: Path) -> None:
    assert tuned(Path("x_868.3M_1000k.cu8"), Tuning(250e3)) == (1e6, 868.3e6)
    assert tuned(Path("gfile018.cu8"), Tuning(hertz("250k"))) == (250e3, 0.0)
    with pytest.raises(DataError, match="give one with --rate 250k"):
        tuned(Path("gfile018.cu8"), Tuning())
    with pytest.raises(SpecError, match="is no frequency"):
        hertz("fast")
    (tmp_path / "g_1M_250k.cu8").write_bytes(b"")
    with pytest.raises(DataError, match="it is empty"):
        list(blocks(tmp_path / "g_1M_250k.cu8"))
