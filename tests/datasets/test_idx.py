"""MNIST and Fashion-MNIST: four IDX files become flat bytes, or one sentence says which of them is wrong."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from tests.datasets.written import idx, idx_files, write_idx
from tolfl.core.errors import DataError
from tolfl.datasets.public_sets import PUBLIC_SETS, read_idx_pictures


def test_pictures_stay_bytes_and_the_publishers_test_set_is_marked(tmp_path: Path) -> None:
    raw = read_idx_pictures(write_idx(tmp_path), "mnist")

    assert raw.name == "mnist"
    assert raw.samples.dtype == np.uint8
    assert (raw.samples.shape, raw.scale) == ((8, 9), 1 / 255)
    assert raw.samples[1].tolist() == list(range(9, 18))
    assert raw.labels.tolist() == ["0", "1", "2", "3", "4", "5", "6", "7"]
    assert raw.is_test is not None
    assert raw.is_test.tolist() == [False] * 6 + [True] * 2


@pytest.mark.parametrize("spelling", ["{}", "{}.gz", "dots", "dots.gz", "plain under the name of gzip"])
def test_files_are_found_however_they_are_spelled(tmp_path: Path, spelling: str) -> None:
    for name, data in idx_files().items():
        dotted = name.replace("-idx", ".idx") if "dots" in spelling else name
        ends = ".gz" if "gz" in spelling or "gzip" in spelling else ""
        is_packed = spelling.endswith(".gz")
        (tmp_path / f"{dotted}{ends}").write_bytes(gzip.compress(data, mtime=0) if is_packed else data)

    assert read_idx_pictures(tmp_path, "mnist").n_samples == 8


PICTURES = np.zeros((6, 3, 3), np.uint8)
GOOD = idx(PICTURES)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"train_images": GOOD[:-5]}, "49 bytes of data, its header promises 54"),
        ({"train_images": GOOD + b"!"}, "55 bytes of data, its header promises 54"),
        ({"train_images": GOOD[:9]}, "no IDX file"),
        ({"train_images": b"PNG" + GOOD[3:]}, "no IDX file"),
        ({"train_images": b"\0\0\x0d\x03" + GOOD[4:]}, "type 13 with 3 dimensions"),
        ({"train_images": idx(np.zeros(60, np.uint8))}, "with 1 dimensions, expected bytes (type 8) with 3"),
        ({"train_images": idx(np.zeros((0, 3, 3), np.uint8)), "train_labels": idx(PICTURES[:0, 0, 0])}, "no picture"),
        ({"train_images": b"\0\0\x08\x03" + b"\xff" * 12}, "0 bytes of data, its header promises 7922"),
        ({"train_labels": idx(np.zeros(5, np.uint8))}, "5 labels for the 6 pictures"),
        ({"train_labels": idx(np.full(6, 10, np.uint8))}, "label 1 is 10, the classes are 0 to 9"),
        ({"t10k_images": idx(np.zeros((2, 4, 4), np.uint8))}, "training pictures are 3 x 3, test pictures 4 x 4"),
    ],
)
def test_a_malformed_file_is_named(tmp_path: Path, changed: dict[str, bytes], sentence: str) -> None:
    folder = write_idx(tmp_path, **changed)

    with pytest.raises(DataError) as caught:
        read_idx_pictures(folder, "mnist")

    assert sentence in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "the file is empty"),
        (gzip.compress(GOOD, mtime=0)[:-12], "damaged or cut short"),
        (gzip.compress(GOOD, mtime=0)[:15] + b"garbage", "damaged or cut short"),
        (b"this is not a gzip file at all", "no IDX file, plain or gzip"),
    ],
)
def test_a_broken_gzip_is_named(tmp_path: Path, data: bytes, sentence: str) -> None:
    folder = write_idx(tmp_path)
    (folder / "train-images-idx3-ubyte.gz").write_bytes(data)

    with pytest.raises(DataError, match=sentence):
        read_idx_pictures(folder, "mnist")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    (write_idx(tmp_path) / "t10k-labels-idx1-ubyte.gz").unlink()

    with pytest.raises(FileNotFoundError, match="there is no t10k-labels-idx1-ubyte in it"):
        read_idx_pictures(tmp_path, "mnist")


def test_every_numbered_class_has_a_name() -> None:
    class_names = {name: known.class_names for name, known in PUBLIC_SETS.items() if known.class_names}

    assert {name: len(names) for name, names in class_names.items()} == {
        "mnist": 10,
        "fashion-mnist": 10,
        "cifar-10": 10,
        "cifar-100": 20,
    }
    assert all(len(set(names)) == len(names) for names in class_names.values())
