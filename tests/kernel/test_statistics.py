"""A detector's statistics have the same bits from every compiler, instruction set and processor, and from NumPy."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.kernel.building import Builds, library_in_use
from tests.kernel.cases import numbers
from tests.kernel.test_digests import every_build, library_of
from tolfl.core.logarithm import log
from tolfl.kernel import Statistics, kernel
from tolfl.kernel.building import BuildError
from tolfl.kernel.cell_statistics import NumpyStatistics
from tolfl.kernel.compiled import CompiledKernel

#: Rows, columns and cells; the last with sums that are not exact.
SHAPES = {"small": (37, 5, 3, 1.0), "odd": (401, 37, 9, 1.0), "wide": (300, 130, 32, 1.0), "far": (250, 19, 7, 100.0)}
DIGESTS = {
    "small": "8535056e3d40a8e6",
    "odd": "819f6a29af238c73",
    "wide": "f80db581fa0e1d78",
    "far": "48b607e1e0dd3dc2",
}


class Inputs:
    """Rows on the grid of scaled values, and what goes with them; exact, and without any library's generator."""

    def __init__(self, name: str) -> None:
        self.n_rows, n_features, self.n_cells, far = SHAPES[name]
        n_numbers = self.n_rows * n_features
        values = (numbers(n_numbers, 1) - numbers(n_numbers, 2)).astype(np.float64) * 6 * far
        self.rows = (np.rint(values * 2**16) / 2**16).astype(np.float32).reshape(self.n_rows, n_features)
        self.centres = self.rows[: self.n_cells].astype(np.float64)
        half = (numbers(n_features**2, 3) - np.float32(0.5)).reshape(n_features, n_features)
        self.root = (half + half.T).astype(np.float64)
        self.added = np.arange(self.n_cells) / 8
        self.median, self.least = self.rows[-1].astype(np.float64), np.full(n_features, 2.0**-10)
        self.wide = self.rows.astype(np.float64)
        self.wide[::7, 0] = np.nan
        self.finite = self.rows.astype(np.float64)
        self.prefixes = (self.rows[0].view(np.uint32) >> np.uint32(16)).astype(np.uint32)
        self.shift = 8


def results(found: Statistics, given: Inputs) -> list[NDArray[np.generic]]:
    cells, sums, squares = found.sums_by_cell(given.rows, given.centres, has_squares=True)
    assert squares is not None
    turned, about = found.product(given.finite, given.root), found.product(given.centres, given.root)
    return [
        *(cells, sums, squares * 2.0**16, found.scatter(given.rows, given.centres, cells)),
        found.spread(given.wide, given.median, given.least),
        *(turned, found.least_distances(turned, about, given.added)),
        found.counts(given.rows.view(np.uint32), given.prefixes, given.shift),
    ]


def digest(arrays: Sequence[NDArray[np.generic]]) -> str:
    return hashlib.sha256(b"".join(one.tobytes() for one in arrays)).hexdigest()[:16]


def known(found: Statistics) -> dict[str, str]:
    return {name: digest(results(found, Inputs(name))) for name in SHAPES}


def test_the_kernel_in_use_and_numpy_give_the_known_bits() -> None:
    assert known(kernel().statistics) == DIGESTS
    assert known(NumpyStatistics()) == DIGESTS


@pytest.mark.parametrize("variant", ["avx512", "avx2", "base"])
def test_every_instruction_set_gives_the_known_bits(variant: str) -> None:
    path = library_in_use()
    try:
        found = CompiledKernel(path, variant)
    except BuildError as error:
        pytest.skip(str(error))

    try:
        assert known(found.statistics) == DIGESTS
    finally:
        CompiledKernel(path)  # the choice is the library's, not the object's


@every_build
def test_every_compiler_gives_the_known_bits(build: str, builds: Builds) -> None:
    assert known(CompiledKernel(library_of(build, builds)).statistics) == DIGESTS


def recording_of(given: Inputs) -> bytes:
    """Return what `replay_statistics.c` reads."""
    norms = np.cumsum(np.square(given.centres), axis=1)[:, -1]
    sizes = struct.pack("<4q", *given.rows.shape, given.n_cells, given.shift)
    arrays = (given.rows, given.centres, norms, given.root, given.added, given.median, given.least)
    return b"".join([sizes, *(one.tobytes() for one in (*arrays, given.finite, given.prefixes))])


def expected(given: Inputs) -> bytes:
    given.wide = given.finite
    return b"".join(one.tobytes() for one in results(kernel().statistics, given))


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["aarch64-linux-gnu-gcc", "clang --target=aarch64-linux-gnu"])
def test_a_64_bit_arm_processor_under_emulation_gives_the_same_bits(compiler: str, builds: Builds) -> None:
    for name in SHAPES:
        command = [*compiler.split(), "-static"]
        found = builds.replay("replay_statistics.c", recording_of(Inputs(name)), command, ["qemu-aarch64"])

        assert found == expected(Inputs(name)), name


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["avx512", "avx2", "base"])
@pytest.mark.timeout(600)
def test_sanitizers_find_nothing(variant: str, builds: Builds) -> None:
    try:
        CompiledKernel(library_in_use(), variant)
    except BuildError as error:
        pytest.skip(str(error))
    finally:
        CompiledKernel(library_in_use())
    flags = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O0"]
    for name in SHAPES:
        given = recording_of(Inputs(name))
        found = builds.replay("replay_statistics.c", given, ["gcc", *flags], variant=variant)

        assert found == expected(Inputs(name)), name


@given(st.lists(st.floats(2.0**-1074, 1.7e308), min_size=1, max_size=40))
@settings(max_examples=200, deadline=None)
def test_the_logarithms_of_spreads_are_those_of_arithmetic_alone(values: list[float]) -> None:
    moved = kernel().statistics.spread(np.array(values)[:, None], np.zeros(1), np.zeros(1))

    assert moved[2, 0] == np.rint(log(values) * 2.0**30).sum()


def test_statistics_are_right() -> None:
    given, found = Inputs("odd"), kernel().statistics
    cells, sums, squares = found.sums_by_cell(given.rows, given.centres, has_squares=True)
    distances = np.square(given.finite[:, None] - given.centres).sum(axis=2)
    is_own = cells == np.arange(given.n_cells)[:, None]

    np.testing.assert_array_equal(cells, distances.argmin(axis=1))
    np.testing.assert_allclose(sums, is_own @ given.finite)
    np.testing.assert_allclose(squares, is_own @ np.square(given.finite), atol=1e-3)  # type: ignore[arg-type]
    away = given.finite - given.centres[cells]
    np.testing.assert_allclose(found.scatter(given.rows, given.centres, cells), (away.T @ away)[np.triu_indices(37)])
    counts, moved, logs, low, high = found.spread(given.wide, given.median, given.least)
    off = np.abs(given.wide - given.median)
    np.testing.assert_array_equal(counts, (~np.isnan(given.wide)).sum(axis=0))
    np.testing.assert_array_equal(moved, (off > given.least).sum(axis=0))
    wanted = np.log(np.where(off > given.least, off, 1.0)).sum(axis=0)
    np.testing.assert_allclose(logs / 2.0**30, wanted, atol=1e-6)
    np.testing.assert_array_equal((low, high), (np.nanmin(given.wide, axis=0), np.nanmax(given.wide, axis=0)))


@pytest.mark.parametrize("found", [NumpyStatistics(), kernel().statistics], ids=["NumPy", "in use"])
def test_no_rows_and_one_column_are_no_special_case(found: Statistics) -> None:
    empty, centres = np.empty((0, 1), np.float32), np.zeros((2, 1))
    cells, sums, _ = found.sums_by_cell(empty, centres, has_squares=False)

    assert (len(cells), sums.tolist(), found.scatter(empty, centres, cells).tolist()) == (0, [[0.0], [0.0]], [0.0])
    assert found.spread(empty, np.zeros(1), np.zeros(1))[:3].tolist() == [[0.0]] * 3
    assert found.counts(empty.view(np.uint32), np.zeros(1, np.uint32), 24).sum() == 0
    assert found.product(np.empty((0, 3)), np.ones((3, 2))).shape == (0, 2)
    assert len(found.least_distances(np.empty((0, 1)), centres, np.zeros(2))) == 0
