"""The kernel against float64; alone as in a group; fused as separate; and what it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernel.building import PORTABLE, Builds, library_in_use
from tests.kernel.cases import bits, numbers, weights_of
from tests.kernel.reference import trained
from tolfl.core.contribution import GLOBAL, Contribution
from tolfl.core.errors import SpecError
from tolfl.core.spec import TrainSettings
from tolfl.kernel import Kernel, Layer, Network, TrainJob, kernel
from tolfl.kernel.building import BuildError, library_name
from tolfl.kernel.compiled import CompiledKernel
from tolfl.kernel.fallback import NumpyKernel, fma
from tolfl.kernel.jobs import Floats

networks = st.builds(
    Network.autoencoder,
    n_features=st.integers(1, 40),
    hidden=st.lists(st.integers(1, 35), max_size=2),
    code=st.integers(1, 20),
    dropout=st.sampled_from([0.0, 0.2, 0.5]),
    has_code_relu=st.booleans(),
)
trainings = st.builds(
    TrainSettings,
    lr=st.sampled_from([0.0, 0.001, 0.01]),
    epochs=st.integers(1, 3),
    batch_size=st.sampled_from([0, 1, 3, 8, 32]),
    optimizer=st.sampled_from(["sgd", "momentum", "adam"]),
)


def jobs_on(network: Network, sizes: list[int], seed: int = 0) -> list[TrainJob]:
    rng = np.random.default_rng(seed)
    start = rng.uniform(-0.3, 0.3, network.n_params).astype(np.float32)
    pool = rng.uniform(-1, 1, (sum(sizes), network.n_features)).astype(np.float32)
    edges = np.cumsum([0, *sizes]).tolist()
    return [
        TrainJob(seed, 5 + 3 * place, 2, start, pool, first, last)
        for place, (first, last) in enumerate(pairwise(edges))
    ]


@given(network=networks, how=trainings, sizes=st.lists(st.integers(1, 20), min_size=1, max_size=3))
@settings(max_examples=80, deadline=None, derandomize=True)
def test_training_follows_the_equations(network: Network, how: TrainSettings, sizes: list[int]) -> None:
    jobs = jobs_on(network, sizes)

    deltas, losses = kernel().train(network, how, jobs)

    for job, delta, loss in zip(jobs, deltas, losses, strict=True):
        expected, expected_loss = trained(network, how, job)
        # Adam's first steps are about lr in size even where the gradient is nothing but rounding.
        atol = 2 * how.lr * how.epochs if how.optimizer == "adam" else 2e-6
        np.testing.assert_allclose(delta, expected, rtol=2e-3, atol=atol)
        np.testing.assert_allclose(loss, expected_loss, rtol=1e-4, atol=1e-6)


@given(network=networks, how=trainings, sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_a_device_alone_gets_the_bits_it_gets_in_a_group(
    network: Network, how: TrainSettings, sizes: list[int]
) -> None:
    jobs = jobs_on(network, sizes)

    deltas, losses = kernel().train(network, how, jobs)

    for place, job in enumerate(jobs):
        alone, loss = kernel().train(network, how, [job])
        np.testing.assert_array_equal(bits(deltas[place]), bits(alone[0]))
        assert losses[place] == loss[0]


@given(network=networks, how=trainings, sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_the_fused_sum_has_the_bits_of_contributions_added_up(
    network: Network, how: TrainSettings, sizes: list[int]
) -> None:
    jobs = jobs_on(network, sizes)
    deltas, _ = kernel().train(network, how, jobs)

    total = np.full(network.n_params, -0.0, np.float32)
    for some in (jobs[:2], jobs[2:]):
        kernel().add(network, how, some, weights_of(some), total)

    separate = Contribution.total(
        Contribution.of_device(job.device, job.n_samples, {GLOBAL: delta}, 0.0)
        for job, delta in zip(jobs, deltas, strict=True)
    )
    np.testing.assert_array_equal(bits(total), bits(separate.parts[GLOBAL].vector))


@given(network=networks, how=trainings, sizes=st.lists(st.integers(1, 12), min_size=1, max_size=2))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_numpy_gives_the_bits_of_the_compiled_kernel(network: Network, how: TrainSettings, sizes: list[int]) -> None:
    jobs = jobs_on(network, sizes)

    for compiled, numpy in zip(
        _everything(kernel(), network, how, jobs), _everything(NumpyKernel(), network, how, jobs), strict=True
    ):
        np.testing.assert_array_equal(bits(compiled), bits(numpy))


def _everything(found: Kernel, network: Network, how: TrainSettings, jobs: list[TrainJob]) -> list[Floats]:
    total = np.full(network.n_params, -0.0, np.float32)
    found.add(network, how, jobs, weights_of(jobs), total)
    return [*found.train(network, how, jobs), total, *found.score(network, jobs[0].start, jobs[0].pool)]


@given(st.lists(st.tuples(*[st.floats(width=32, allow_nan=False, allow_infinity=False)] * 3), min_size=1, max_size=20))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_a_multiply_add_in_numpy_is_rounded_once(triples: list[tuple[float, float, float]]) -> None:
    a, b, c = (np.array(column, np.float32) for column in zip(*triples, strict=True))
    with np.errstate(all="ignore"):
        found = fma(a, b, c)

    for x, y, z, got in zip(a, b, c, found, strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        if abs(exact) < Fraction(float(np.finfo(np.float32).max)):
            near = [np.nextafter(got, np.float32(-np.inf)), got, np.nextafter(got, np.float32(np.inf))]
            error = [abs(Fraction(float(one)) - exact) for one in near if np.isfinite(one)]
            assert abs(Fraction(float(got)) - exact) == min(error)
            if error.count(min(error)) > 1:
                assert int(got.view(np.uint32)) % 2 == 0  # half way: the even one


@pytest.mark.parametrize("found", [kernel(), NumpyKernel()], ids=["compiled", "NumPy"])
def test_scores_are_those_of_float64_whoever_else_is_scored(found: Kernel) -> None:
    network = Network.autoencoder(30, [20, 10], 4, 0.2, has_code_relu=True)
    (job,) = jobs_on(network, [200])
    params, rows = job.start, job.pool

    errors, outputs = found.score(network, params, rows)

    out, first = rows.astype(np.float64), 0
    for layer in network.layers:
        weight = params[first : first + layer.n_in * layer.n_out].reshape(layer.n_out, layer.n_in)
        first += layer.n_in * layer.n_out
        out = out @ weight.T.astype(np.float64) + params[first : first + layer.n_out]
        first += layer.n_out
        out = np.maximum(out, 0) if layer.has_relu else out
    np.testing.assert_allclose(outputs, out, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(errors, ((rows - out) ** 2).sum(1), rtol=1e-5)
    alone = [found.score(network, params, rows[place : place + 1])[0][0] for place in (0, 97, 199)]
    np.testing.assert_array_equal(alone, errors[[0, 97, 199]])


def test_a_residual_network_is_scored_by_its_outputs() -> None:
    network = Network((Layer(3, 2),), is_residual=True)
    params = np.array([1, 2, 3, 4, 5, 6, 0.5, -0.5], np.float32)

    errors, outputs = kernel().score(network, params, np.array([[1, 0, -1]], np.float32))

    np.testing.assert_array_equal(outputs, [[-1.5, -2.5]])
    np.testing.assert_array_equal(errors, [8.5])


def test_rows_that_begin_in_the_middle_of_a_row_of_their_array_are_trained_on_as_they_are() -> None:
    network = Network.autoencoder(4, [3], 2, 0.0, has_code_relu=False)
    start, series = np.full(network.n_params, 0.1, np.float32), np.arange(24, dtype=np.float32).reshape(6, 4) / 24
    shifted = series.reshape(-1)[2:18].reshape(4, 4)
    assert shifted.base is series

    (found, expected), _ = kernel().train(
        network, TrainSettings(), [TrainJob.of_rows(0, 1, 2, start, rows) for rows in (shifted, shifted.copy())]
    )

    assert np.array_equal(found, expected)


def test_a_width_of_5000_and_float64_rows_are_trained_on() -> None:
    network = Network.autoencoder(5000, [3], 1, 0.2, has_code_relu=False)
    pool = numbers(4 * 5000, 1).reshape(4, 5000).astype(np.float64)
    start = np.zeros(network.n_params, np.float32)

    deltas, losses = kernel().train(network, TrainSettings(1e-4), [TrainJob(0, 0, 0, start, pool, 0, 4)])

    assert losses[0] == pytest.approx((pool**2).sum(1).mean(), rel=1e-5)
    assert np.isfinite(deltas).all()


@pytest.mark.parametrize("found", [kernel(), NumpyKernel()], ids=["compiled", "NumPy"])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_what_overflows_is_not_finite_and_is_never_passed_off_as_a_number(found: Kernel, optimizer: str) -> None:
    network = Network.autoencoder(6, [5], 2, 0.0, has_code_relu=False)
    (job,) = jobs_on(network, [8])
    how = TrainSettings(3e38, 1, 0, optimizer)  # type: ignore[arg-type]
    huge = TrainJob(0, 0, 0, job.start * np.float32(1e15), job.pool * np.float32(1e15), 0, 8)

    _, losses = found.train(network, how, [huge])

    assert not np.isfinite(losses[0])


def test_no_rows_have_no_scores() -> None:
    network = Network.autoencoder(4, [3], 2, 0.2, has_code_relu=False)

    errors, outputs = kernel().score(network, np.zeros(network.n_params, np.float32), np.empty((0, 4), np.float32))

    assert errors.shape == (0,)
    assert outputs.shape == (0, 4)


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ((), "0 layers"),
        ((Layer(2, 3), Layer(4, 2)), "3 outputs is followed by one of 4"),
        ((Layer(2, 3),), "2 features cannot be compared with 3 outputs"),
        (tuple([Layer(2, 2)] * 65), "65 layers"),
    ],
)
def test_a_network_that_cannot_be_computed_is_refused(layers: tuple[Layer, ...], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        Network(layers)


# -- which kernel is used -----------------------------------------------------------------------------------------

#: As where the package was built without a compiler, or with the library of another machine.
PROGRAM = """
import os
from pathlib import Path
import tolfl.kernel
tolfl.kernel.HERE = Path(os.environ.get("KERNEL_FOLDER", "/nowhere"))
chosen = tolfl.kernel.chosen_kernel()
assert tolfl.kernel.kernel() is tolfl.kernel.kernel() is chosen.kernel
print(chosen.kernel.name.split()[0] + ";" + chosen.problem)
"""


def chosen_with(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "TOLFL_KERNEL_REQUIRED": "", "CC": f"cc {PORTABLE}", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_a_compiler_numpy_computes_and_says_why(tmp_path: Path) -> None:
    found = chosen_with(CC="no-such-compiler", XDG_CACHE_HOME=str(tmp_path))

    why = "there is no C compiler (no-such-compiler); install one, such as gcc"
    assert found.stdout.strip() == f"NumPy;{why}"
    assert found.stderr.splitlines() == [f"tolfl: NumPy computes, right but slow: {why}"]


def test_an_old_compiler_leads_to_numpy(tmp_path: Path) -> None:
    old = tmp_path / "old-cc"
    old.write_text("#!/bin/sh\necho \"error: unrecognized command line option '-std=gnu11'\" >&2\nexit 1\n")
    old.chmod(0o755)

    found = chosen_with(CC=str(old), XDG_CACHE_HOME=str(tmp_path))

    assert found.stdout.startswith("NumPy;")
    assert "cannot compile it (error: unrecognized" in found.stdout


@pytest.mark.parametrize(
    ("compiler", "words"),
    [
        ("false", "false cannot compile it (1); set CC to another"),
        ("gcc 'x", 'CC is "gcc \'x", which is no command (No closing quotation); set it to one, such as gcc'),
        ("sh -c \"printf '\\\\377error' >&2; exit 1\"", "sh cannot compile it (\ufffderror); set CC to another"),
    ],
)
def test_a_compiler_that_fails_in_whatever_way_leads_to_numpy(compiler: str, words: str, tmp_path: Path) -> None:
    found = chosen_with(CC=compiler, XDG_CACHE_HOME=str(tmp_path), PYTHONIOENCODING="utf-8")

    assert found.stdout.strip() == f"NumPy;{words}"
    assert not list(tmp_path.glob("tolfl/kernel/*"))  # nothing half made


def test_a_compiler_that_computes_other_numbers_is_not_believed(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong-cc"
    wrong.write_text('#!/bin/sh\nexec cc -DTOLFL_PORTABLE -D__builtin_sqrtf=__builtin_fabsf "$@"\n')
    wrong.chmod(0o755)

    found = chosen_with(CC=str(wrong), XDG_CACHE_HOME=str(tmp_path))

    assert found.stdout.startswith("NumPy;the compiled kernel computes wrong numbers")
    # What it made is gone, so another compiler is of use.
    assert chosen_with(XDG_CACHE_HOME=str(tmp_path)).stdout.strip() == "compiled;"


def test_a_cached_library_that_cannot_be_loaded_is_compiled_anew(tmp_path: Path) -> None:
    folder = tmp_path / "tolfl" / "kernel"
    folder.mkdir(mode=0o700, parents=True)
    (folder / library_name()).write_bytes(b"torn")

    assert "cannot be loaded" in chosen_with(XDG_CACHE_HOME=str(tmp_path)).stdout
    assert chosen_with(XDG_CACHE_HOME=str(tmp_path)).stdout.strip() == "compiled;"


@pytest.mark.parametrize(("compiler", "chosen"), [(f"cc {PORTABLE}", "compiled;"), ("no-such-compiler", "NumPy;")])
def test_an_installed_library_that_cannot_be_loaded_is_compiled_for_the_cache(
    compiler: str, chosen: str, tmp_path: Path
) -> None:
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / library_name()).write_bytes(b"for another C library")

    found = chosen_with(CC=compiler, XDG_CACHE_HOME=str(tmp_path), KERNEL_FOLDER=str(installed))

    assert found.stdout.startswith(chosen)
    assert ("cannot be loaded" in found.stdout and "no C compiler" in found.stdout) == (chosen == "NumPy;")


def test_a_cache_that_others_may_write_to_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "tolfl" / "kernel"
    folder.mkdir(parents=True)
    folder.chmod(0o777)

    found = chosen_with(XDG_CACHE_HOME=str(tmp_path))

    assert "others may write to it" in found.stdout


def test_a_cache_that_cannot_be_made_leads_to_numpy(tmp_path: Path) -> None:
    (tmp_path / "tolfl").write_text("a file where a folder should be")

    found = chosen_with(XDG_CACHE_HOME=str(tmp_path))

    assert "no folder to keep it in" in found.stdout


def test_where_it_is_required_its_absence_is_an_error(tmp_path: Path) -> None:
    found = chosen_with(CC="no-such-compiler", XDG_CACHE_HOME=str(tmp_path), TOLFL_KERNEL_REQUIRED="1")

    assert found.returncode
    assert "TOLFL_KERNEL_REQUIRED is set and there is no compiled kernel: there is no C compiler" in found.stderr


def test_a_library_from_another_source_is_refused(builds: Builds) -> None:
    path = builds.library("gcc", PORTABLE, "-O0", '-DTOLFL_SOURCE="of yesterday"')

    with pytest.raises(BuildError, match="made from another source"):
        CompiledKernel(path)


@pytest.mark.parametrize("n_bytes", [0, 20, 64, 30_000, -1])
def test_a_torn_library_is_refused_and_does_not_end_the_process(n_bytes: int, tmp_path: Path) -> None:
    path = tmp_path / "torn.so"
    path.write_bytes(library_in_use().read_bytes()[:n_bytes])

    with pytest.raises(BuildError, match="cannot be loaded"):
        CompiledKernel(path)
