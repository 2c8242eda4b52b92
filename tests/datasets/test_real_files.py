"""The real files, where `TOLFL_DATA` says they are: counts, classes and published checksums."""

from __future__ import annotations

import gzip
import hashlib
import os
import time
from collections import Counter

import pytest

from tolfl.core.errors import MissingDataError
from tolfl.datasets.federated import RawData
from tolfl.datasets.public_sets import PUBLIC_SETS, find, load_public

pytestmark = pytest.mark.skipif(not os.environ.get("TOLFL_DATA"), reason="TOLFL_DATA does not name a folder with data")

TEN = {str(number) for number in range(10)}


def real(name: str, colour: bool = False, fine: bool = False) -> RawData:
    try:
        return load_public(name, colour=colour, fine=fine)
    except MissingDataError:
        pytest.skip(f"{name} is not in the folder that TOLFL_DATA names")


#: MD5 sums of what is packed in the published files, in their order: copies are packed anew.
UNPACKED = {
    "mnist": (
        "6bbc9ace898e44ae57da46a324031adb",
        "a25bea736e30d166cdddb491f175f624",
        "2646ac647ad5339dbf082846283269ea",
        "27ae3e4e09519cfbb04c329615203637",
    ),
    "fashion-mnist": (
        "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "9018921c3c673c538a1fc5bad174d6f9",
        "8181f5470baa50b63fa0f6fddb340f0a",
        "15d484375f8d13e6eb1aabb0c3f46965",
    ),
}


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_seventy_thousand_pictures(name: str) -> None:
    started = time.perf_counter()
    raw = real(name)
    seconds = time.perf_counter() - started

    assert raw.samples.shape == (70_000, 784)
    assert raw.is_test is not None
    assert raw.is_test.sum() == 10_000
    assert raw.is_test[60_000:].all()
    assert set(raw.classes) == TEN
    assert raw.samples.max() == 255
    assert seconds < 5  # about half a second on an idle core
    if name == "fashion-mnist":
        assert set(Counter(raw.labels.tolist()).values()) == {7_000}


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_the_files_are_those_of_the_published_checksums(name: str) -> None:
    real(name)

    for (file, md5), unpacked in zip(PUBLIC_SETS[name].md5.items(), UNPACKED[name], strict=True):
        data = (find(name) / file).read_bytes()
        assert hashlib.md5(data).hexdigest() == md5 or hashlib.md5(gzip.decompress(data)).hexdigest() == unpacked


@pytest.mark.parametrize(
    ("name", "fine", "n_classes"), [("cifar-10", False, 10), ("cifar-100", False, 20), ("cifar-100", True, 100)]
)
def test_cifar_has_as_many_pictures_of_every_class(name: str, fine: bool, n_classes: int) -> None:
    raw = real(name, fine=fine)

    assert raw.samples.shape[1] == 1024
    assert raw.classes == tuple(str(number) for number in range(n_classes))
    assert raw.is_test is not None
    for part in (raw.is_test, ~raw.is_test):
        assert len(set(Counter(raw.labels[part].tolist()).values())) == 1


def test_cifar_in_colour() -> None:
    assert real("cifar-10", colour=True).samples.shape[1] == 3072


def test_wsn_ds_has_a_hundred_nodes_and_four_attacks() -> None:
    raw = real("wsn-ds")

    assert raw.samples.shape == (374_661, 15)
    assert raw.missing is None
    assert Counter(raw.labels.tolist()) == {
        "Normal": 340_066,
        "Grayhole": 14_596,
        "Blackhole": 10_049,
        "TDMA": 6_638,
        "Flooding": 3_312,
    }
    assert raw.owners is not None
    assert set(raw.owners.tolist()) == {str(number) for number in range(100)}
    assert raw.times is not None
    assert (raw.times.min(), raw.times.max()) == (50, 3600)
