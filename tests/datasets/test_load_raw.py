"""What `load_raw` remembers: the same files are read once, changed ones again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.datasets.written import idx, write_idx
from tolfl.core.errors import DataFileError
from tolfl.core.spec import RunSpec
from tolfl.datasets import catalog, load_raw
from tolfl.datasets.catalog import _load_raw, are_settled, states_of
from tolfl.signals.sigmf import write_recording


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    _load_raw.cache_clear()


@pytest.fixture(params=["just written", "settled"], autouse=True)
def _age(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files count as settled at once: the times of change are the kernel's and cannot be set back."""
    if request.param == "settled":
        monkeypatch.setattr(catalog, "_SETTLED_S", 0.0)


def write(path: Path, values: list[int], when_s: int) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(["reading", *map(str, values)]) + "\n")
    os.utime(path, (when_s, when_s))
    return path


def readings(name: Path | str) -> list[float]:
    samples: list[float] = load_raw(RunSpec(data=str(name))).samples[:, 0].tolist()
    return samples


@pytest.mark.parametrize("values", [[4, 5, 6], [4, 5]], ids=["same size", "another size"])
def test_a_table_that_was_rewritten_is_read_again(tmp_path: Path, values: list[int]) -> None:
    table = write(tmp_path / "readings.csv", [1, 2, 3], when_s=1000)
    before = readings(table)
    write(table, values, when_s=2000)

    assert before == [1, 2, 3]
    assert readings(table) == values


def test_a_table_that_was_replaced_with_its_times_kept_is_read_again(tmp_path: Path) -> None:
    table = write(tmp_path / "readings.csv", [1, 2, 3], when_s=1000)
    before = readings(table)
    write(tmp_path / "new.csv", [4, 5, 6], when_s=1000).replace(table)

    assert before == [1, 2, 3]
    assert readings(table) == [4, 5, 6]


def test_a_relative_name_means_the_file_in_the_present_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for folder, values in (("north", [1, 2]), ("south", [3, 4])):
        write(tmp_path / folder / "readings.csv", values, when_s=1000)
        monkeypatch.chdir(tmp_path / folder)
        found.append(readings("readings.csv"))

    assert found == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda folder: write(folder / "b.csv", [8, 9], when_s=2000), [1, 2, 8, 9]),
        (lambda folder: write(folder / "c.csv", [5], when_s=1000), [1, 2, 3, 4, 5]),
        (lambda folder: (folder / "a.csv").unlink(), [3, 4]),
    ],
    ids=["changed", "added", "removed"],
)
def test_a_folder_is_read_again_when_a_file_in_it(
    tmp_path: Path, change: Callable[[Path], object], expected: list[int]
) -> None:
    folder = tmp_path / "sites"
    write(folder / "a.csv", [1, 2], when_s=1000)
    write(folder / "b.csv", [3, 4], when_s=1000)
    before = readings(folder)
    change(folder)

    assert before == [1, 2, 3, 4]
    assert readings(folder) == expected


def test_a_recording_is_read_again_when_only_its_samples_change(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).standard_normal(4096).astype(np.complex64)
    meta = write_recording(tmp_path / "air", [noise], rate_hz=1e6, frequency_hz=2.4e9)
    spec = RunSpec(data=str(meta))
    load_raw(spec)
    samples = meta.with_suffix(".sigmf-data")
    samples.write_bytes((3 * noise).tobytes())
    os.utime(samples, (1000, 1000))

    with pytest.raises(DataFileError, match="sha512"):
        load_raw(spec)


def test_a_public_set_is_read_from_where_the_environment_says_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for place, labels in (("one", [0, 1, 2, 3, 4, 5]), ("two", [9, 9, 9, 9, 9, 9])):
        write_idx(tmp_path / place / "mnist", train_labels=idx(np.array(labels, np.uint8)))
        monkeypatch.setenv("TOLFL_DATA", str(tmp_path / place))
        found.append(load_raw(RunSpec(data="mnist")).labels.tolist())

    assert found[0] != found[1]


def test_a_settled_table_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_SETTLED_S", 0.0)
    spec = RunSpec(data=str(write(tmp_path / "readings.csv", [1, 2, 3], when_s=1000)))

    assert load_raw(spec) is load_raw(spec)


def test_a_file_that_was_just_written_is_not_settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_SETTLED_S", 60.0)
    states = states_of(write(tmp_path / "readings.csv", [1], when_s=1000))

    assert len(states) == 1
    assert not are_settled(states)
    assert are_settled(())


def test_what_is_not_there_has_no_state(tmp_path: Path) -> None:
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites" / "gone.csv").symlink_to(tmp_path / "nowhere.csv")

    assert states_of(tmp_path / "missing.csv") == ()
    assert states_of(tmp_path / "sites") == ()
