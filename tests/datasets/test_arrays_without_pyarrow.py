"""Rows from NPY and NPZ files and from captures need NumPy alone, and are those that the reader of tables gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.signals.capture_files import RAW, Frame, ipv4, pcap
from tolfl.core.errors import DataError
from tolfl.core.spec import DatasetSpec, RunSpec
from tolfl.datasets import load_raw
from tolfl.datasets.own_table import own_rows, read_table
from tolfl.signals.windows import UDP
from tolfl.tables import Roles, blocks, settle

_WITHOUT_EXTRAS = """
import sys
for name in ("pyarrow", "sklearn", "matplotlib", "scipy", "torch"):
    sys.modules[name] = None
"""


def some_rows(n_rows: int = 80, n_columns: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n_rows, n_columns))


@st.composite
def array_files(draw: st.DrawFn) -> dict[str, np.ndarray]:
    n_rows, n_columns = draw(st.integers(1, 70)), draw(st.integers(1, 4))
    samples = some_rows(n_rows, n_columns, draw(st.integers(0, 99)))
    if draw(st.booleans()):
        samples[:, 0] = np.arange(n_rows) + draw(st.sampled_from([0.0, 0.25]))  # a counter
    if n_rows > 2 and draw(st.booleans()):
        samples[draw(st.integers(0, n_rows - 1)), -1] = np.nan
    arrays = {"X": samples.astype(draw(st.sampled_from([np.float64, np.float32])))}
    if draw(st.booleans()):
        arrays["names"] = np.array([f"c{place} [m]" if place % 2 else f"c{place}" for place in range(n_columns)])
    words = st.sampled_from(
        [np.array(["a", "b "]), np.array([b"a", b"b"]), np.array([3, 4]), np.array([1.0, 2.5]), np.array([True, False])]
    )
    for key in ("y", "device"):
        if draw(st.booleans()):
            arrays[key] = np.resize(draw(words), n_rows)
    if draw(st.booleans()):
        arrays["time"] = draw(
            st.sampled_from([np.arange(n_rows) / 4, np.datetime64("2024-05-01T00:00:00") + np.arange(n_rows)])
        )
    return arrays


@given(arrays=array_files())
def test_both_readers_give_the_same_rows(
    arrays: dict[str, np.ndarray], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("arrays") / "rows.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    try:
        schema = settle(blocks(path), Roles())
    except DataError:
        with pytest.raises(DataError):
            read_table(str(path), DatasetSpec())
        return
    (rows,) = [schema.rows(block) for block in blocks(path)]

    found = read_table(str(path), DatasetSpec())

    assert found.schema == schema
    assert found.feature_names == schema.features
    is_missing = np.isnan(rows.values)
    np.testing.assert_array_equal(found.samples, np.where(is_missing, 0, rows.values))
    np.testing.assert_array_equal(found.missing if found.missing is not None else np.zeros_like(is_missing), is_missing)
    for mine, theirs in ((found.owners, rows.devices), (found.times, rows.times)):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            np.testing.assert_array_equal(mine, theirs)
    if rows.labels is not None:
        np.testing.assert_array_equal(found.labels, rows.labels)


def test_a_device_finds_the_columns_of_its_fleet_by_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", X=some_rows(), names=np.array(["a", "b [m]", "c"]))
    spec = RunSpec(data=str(tmp_path / "own.npz"))
    raw = read_table(spec.data, spec.dataset)

    np.testing.assert_array_equal(own_rows(raw, spec, ["c", "b [m]"]), some_rows()[:, [2, 1]].astype(np.float32))
    with pytest.raises(DataError, match="no column for 1 of 1 columns: 'd'; it has a, b, c"):
        own_rows(raw, spec, ["d"])


def test_columns_without_names_are_known_by_their_place(tmp_path: Path) -> None:
    np.save(tmp_path / "own.npy", some_rows())
    spec = RunSpec(data=str(tmp_path / "own.npy"))
    raw = load_raw(msgspec.structs.replace(spec, learn={"columns": ["p", "q", "r"]}))

    np.testing.assert_array_equal(own_rows(raw, spec, ["p", "q", "r"]), some_rows().astype(np.float32))
    with pytest.raises(DataError, match="3 features, but the detector was trained on 2 columns"):
        own_rows(raw, spec, ["p", "q"])


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"X": np.array([[1.0, np.inf]])}, "data row 1: the value in column 'x1' is infinite"),
        ({"X": np.array([[1.0, 1e39]])}, "too large for single precision"),
        ({"X": some_rows(3), "y": np.array(["a", "", "b"])}, "data row 2: column 'y' is empty"),
        ({"X": some_rows(3), "y": np.zeros(2)}, "array 'y' has shape"),
        ({"X": np.array([["a"]])}, "not numbers"),
        ({"X": np.full((2, 1), np.nan)}, "no column is left to learn from"),
        ({"Y": some_rows(3)}, "there is no array 'X'"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(arrays: dict[str, np.ndarray], problem: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", **arrays)  # type: ignore[arg-type]

    with pytest.raises(DataError, match=problem):
        read_table(str(tmp_path / "rows.npz"), DatasetSpec())


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """Nine seconds of a few packets, the first and the last of them not whole."""
    path = tmp_path / "own.pcap"
    times_ns = range(1_700_000_000_500_000_000, 1_700_000_008_500_000_000, 250_000_000)
    path.write_bytes(pcap([Frame(ipv4(UDP, bytes(place)), time_ns) for place, time_ns in enumerate(times_ns)], RAW))
    return path


def test_a_device_on_a_capture_finds_the_columns_of_its_fleet(capture: Path) -> None:
    everything = read_table(str(capture), DatasetSpec())
    columns = everything.feature_names[2:0:-1] if everything.feature_names else ()
    ask = (
        "from tolfl.core.spec import RunSpec\nfrom tolfl.datasets.catalog import load_raw\n"
        "from tolfl.datasets.own_table import own_rows\n"
        f"spec = RunSpec(data={str(capture)!r}, learn={{'columns': {list(columns)!r}}})\n"
        f"print(own_rows(load_raw(spec), spec, {columns!r}).tolist())\n"
    )

    done = subprocess.run([sys.executable, "-c", _WITHOUT_EXTRAS + ask], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(everything.samples[:, [2, 1]].tolist())


def test_columns_of_a_capture_are_chosen_by_name(capture: Path) -> None:
    (first, *others) = read_table(str(capture), DatasetSpec()).feature_names or ()
    bare = first.partition(" [")[0]

    without = read_table(str(capture), DatasetSpec(ignore=(bare,)))

    assert without.feature_names == tuple(others)
    assert without.schema is not None
    assert without.schema.left_out == {bare: "as asked"}
    assert read_table(str(capture), DatasetSpec(columns=(first,))).feature_names == (first,)
    with pytest.raises(DataError, match="there is no column 'flow' of --columns; the columns are"):
        read_table(str(capture), DatasetSpec(columns=("flow",)))


def test_a_run_on_arrays_needs_no_reader_of_tables(tmp_path: Path) -> None:
    folder = tmp_path / "devices"
    folder.mkdir()
    for device in range(3):
        np.savez(folder / f"site-{device}.npz", X=some_rows(seed=device))
    run = ("simulate", "--data", str(folder), "-n", "3", "-k", "3", "--rounds", "2", "--out", str(tmp_path / "run"))
    program = f"{_WITHOUT_EXTRAS}\nfrom tolfl.cli import main\nsys.argv = ['tolfl', *{run!r}]\nmain()\n"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "summary.json").is_file()
