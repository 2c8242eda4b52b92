"""CIFAR: records without a header, as many as the size of the file says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.datasets.written import cifar_records, write_cifar_10, write_cifar_100
from tolfl.core.errors import DataError, SpecError
from tolfl.datasets.public_sets import read_cifar, to_grey


def test_pictures_are_grey_and_the_last_file_is_the_test_set(tmp_path: Path) -> None:
    raw = read_cifar(write_cifar_10(tmp_path), "cifar-10")

    assert raw.samples.dtype == np.uint8
    assert (raw.samples.shape, raw.scale) == ((11, 1024), 1 / 255)
    assert raw.labels.tolist() == ["1", "0", "2", "0", "3", "0", "4", "0", "5", "0", "9"]
    assert raw.is_test is not None
    assert raw.is_test.tolist() == [False] * 10 + [True]
    # 0.299 * 10 + 0.587 * 20 + 0.114 * 30 = 18.15; 0.299 * 255 = 76.2
    assert set(raw.samples[0].tolist()) == {18}
    assert set(raw.samples[-1].tolist()) == {76}


def test_colours_come_one_after_the_other(tmp_path: Path) -> None:
    raw = read_cifar(write_cifar_10(tmp_path), "cifar-10", colour=True)

    assert raw.samples.shape == (11, 3072)
    assert raw.samples[0, [0, 1023, 1024, 2047, 2048, 3071]].tolist() == [10, 10, 20, 20, 30, 30]


@pytest.mark.parametrize(("fine", "labels"), [(False, ["4", "1", "19", "10"]), (True, ["0", "1", "99", "71"])])
def test_cifar_100_has_coarse_and_fine_classes(tmp_path: Path, fine: bool, labels: list[str]) -> None:
    raw = read_cifar(write_cifar_100(tmp_path), "cifar-100", fine=fine)

    assert raw.labels.tolist() == labels


def test_grey_is_the_weighted_sum_rounded() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (2100, 3072), dtype=np.uint8)
    red, green, blue = np.split(pixels.astype(np.float64), 3, axis=1)
    exact = 0.299 * red + 0.587 * green + 0.114 * blue

    assert np.abs(to_grey(pixels) - exact).max() < 0.51


def test_black_stays_black_and_white_white() -> None:
    assert to_grey(np.array([[0] * 3072, [255] * 3072], np.uint8))[:, 0].tolist() == [0, 255]


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "the file is empty"),
        (cifar_records([(1,)])[:-1], "3072 bytes are not a whole number of records of 3073 bytes"),
        (cifar_records([(1, 2)]), "3074 bytes are not a whole number"),
        (cifar_records([(1,), (10,)]), "record 2 has label 10, the classes are 0 to 9"),
    ],
)
def test_a_malformed_batch_is_named(tmp_path: Path, data: bytes, sentence: str) -> None:
    (write_cifar_10(tmp_path) / "data_batch_3.bin").write_bytes(data)

    with pytest.raises(DataError, match=sentence) as caught:
        read_cifar(tmp_path, "cifar-10")
    assert "data_batch_3.bin" in str(caught.value)


def test_only_cifar_100_has_fine_classes(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no fine classes"):
        read_cifar(write_cifar_10(tmp_path), "cifar-10", fine=True)
