"""Where data sets are looked for, and what is said when they are nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.datasets.written import write_cifar_10, write_cifar_100, write_idx
from tolfl.core.errors import DataError, UnknownNameError
from tolfl.datasets.public_sets import cache_dir, find, load_public, search_order


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TOLFL_DATA", raising=False)
    monkeypatch.setattr("tolfl.datasets.public_sets._DEBIAN", tmp_path / "debian")


def test_the_named_folder_comes_first_then_the_environment_the_cache_and_debian(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOLFL_DATA", str(tmp_path / "env"))
    ordered = [tmp_path / "named", tmp_path / "env", tmp_path / "cache" / "tolfl", tmp_path / "debian"]
    for place in ordered:
        write_idx(place / "mnist")

    assert search_order(str(tmp_path / "named")) == ordered
    for place in ordered:
        assert find("mnist", str(tmp_path / "named")) == place / "mnist"
        for file in (place / "mnist").iterdir():
            file.unlink()


@pytest.mark.parametrize("folder", ["fashion-mnist", "FashionMNIST/raw", ""])
def test_folders_of_other_programs_and_the_files_themselves_are_found(tmp_path: Path, folder: str) -> None:
    write_idx(tmp_path / "data" / folder)

    assert find("fashion-mnist", str(tmp_path / "data")) == tmp_path / "data" / folder


def test_mnist_is_not_taken_for_fashion_mnist(tmp_path: Path) -> None:
    write_idx(tmp_path / "mnist")
    write_idx(tmp_path / "MNIST" / "raw")

    for folder in ("mnist", "MNIST/raw"):
        with pytest.raises(DataError, match="fashion-mnist is in none of"):
            find("fashion-mnist", str(tmp_path / folder))
    assert find("mnist", str(tmp_path / "mnist")) == tmp_path / "mnist"


def test_the_cache_is_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", str(tmp_path))

    assert cache_dir() == tmp_path / ".cache" / "tolfl"


def test_what_is_nowhere_is_said_with_all_places_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "named").mkdir()

    with pytest.raises(FileNotFoundError) as caught:
        find("mnist", str(tmp_path / "named"))

    said = str(caught.value)
    for part in (
        str(tmp_path / "named"),
        str(tmp_path / "cache" / "tolfl"),
        str(tmp_path / "debian"),
        "`tolfl data get mnist`",
        f"put train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte "
        f"(plain or .gz) into {tmp_path / 'named' / 'mnist'}",
    ):
        assert part in said


def test_wsn_ds_has_no_command_but_an_address() -> None:
    with pytest.raises(DataError) as caught:
        find("wsn-ds")

    assert "https://www.kaggle.com/datasets/bassamkasasbeh1/wsnds" in str(caught.value)
    assert "tolfl data get" not in str(caught.value)


def test_an_incomplete_folder_is_named(tmp_path: Path) -> None:
    (write_idx(tmp_path / "mnist") / "t10k-labels-idx1-ubyte.gz").unlink()

    with pytest.raises(DataError, match="lacks t10k-labels-idx1-ubyte"):
        find("mnist", str(tmp_path))


def test_the_pickled_version_is_named(tmp_path: Path) -> None:
    (tmp_path / "cifar-10-batches-py").mkdir()

    with pytest.raises(DataError, match="is pickled and never read: the binary version is needed"):
        find("cifar-10", str(tmp_path))


def test_a_folder_that_does_not_exist_is_a_mistake_not_a_hint(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such folder"):
        find("mnist", str(tmp_path / "typo"))


def test_an_unknown_name_lists_those_that_exist() -> None:
    with pytest.raises(UnknownNameError, match="cifar-10, cifar-100, fashion-mnist, mnist, wsn-ds"):
        find("imagenet")


def test_public_sets_are_loaded_by_name(tmp_path: Path) -> None:
    write_idx(tmp_path / "fashion-mnist")
    write_cifar_10(tmp_path / "cifar-10-batches-bin")
    write_cifar_100(tmp_path / "cifar-100-binary")

    assert load_public("fashion-mnist", str(tmp_path)).samples.shape == (8, 9)
    assert load_public("cifar-10", str(tmp_path), colour=True).samples.shape == (11, 3072)
    assert load_public("cifar-100", str(tmp_path), fine=True).classes == ("0", "1", "71", "99")
