"""The same bits from every compiler, instruction set and processor, and from NumPy."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernel.building import PORTABLE, Builds, library_in_use
from tests.kernel.cases import CASES, DIGESTS, digests, jobs_of, start_of
from tests.kernel.replaying import RecordingKernel
from tolfl.core.spec import BlobsSpec, RunSpec
from tolfl.kernel import Kernel, compiled, kernel
from tolfl.kernel.building import BuildError
from tolfl.kernel.compiled import CompiledKernel
from tolfl.kernel.fallback import NumpyKernel
from tolfl.learners import autoencoder
from tolfl.sim.simulation import run

X86 = platform.machine() == "x86_64"
#: Compiler and flags of further builds, by name; but for the first, they take the compiler long.
BUILDS = {
    "gcc, software FMA": ("gcc", PORTABLE, "-DTOLFL_SOFT_FMA"),
    "gcc, vectors of 8": ("gcc", PORTABLE, "-march=x86-64-v3", "-DTOLFL_WIDTH=8"),
    "gcc, vectors of 16": ("gcc", PORTABLE, "-march=x86-64-v3", "-DTOLFL_WIDTH=16"),
    "gcc -O3": ("gcc", "-O3"),
    "gcc without the flag against contraction": ("gcc", "-O3", "-ffp-contract=fast"),
    "clang": ("clang",),
    "clang -O3": ("clang", "-O3"),
    "clang, software FMA": ("clang", PORTABLE, "-DTOLFL_SOFT_FMA"),
    "clang, native": ("clang", "-march=native", "-O3"),
}
KNOWN_AFTER_FIVE = {
    name: {done: digest for done, digest in known.items() if done <= 5} for name, known in DIGESTS.items()
}
QUICK = "gcc, software FMA"
every_build = pytest.mark.parametrize(
    "build", [name if name == QUICK else pytest.param(name, marks=pytest.mark.slow) for name in BUILDS]
)


@pytest.mark.parametrize("name", CASES)
def test_the_kernel_in_use_gives_the_known_bits(name: str) -> None:
    assert digests(kernel(), CASES[name], CASES[name].rounds) == DIGESTS[name]


@pytest.mark.parametrize("variant", ["avx512", "avx2", "base"])
def test_every_instruction_set_gives_the_known_bits(variant: str) -> None:
    path = library_in_use()
    try:
        found = CompiledKernel(path, variant)
    except BuildError as error:
        pytest.skip(str(error))

    try:
        assert after_five_rounds(found) == KNOWN_AFTER_FIVE
    finally:
        CompiledKernel(path)  # the choice is the library's, not the object's


def after_five_rounds(found: Kernel) -> dict[str, dict[int, str]]:
    return {name: digests(found, case, min(case.rounds, 5)) for name, case in CASES.items()}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("rounds", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_numpy_gives_the_known_bits(name: str, rounds: int) -> None:
    found = digests(NumpyKernel(), CASES[name], rounds)

    assert found == {done: digest for done, digest in DIGESTS[name].items() if done <= rounds}


def library_of(build: str, builds: Builds) -> Path:
    """Return a build, unless it is for another processor."""
    if not X86 and any("x86" in flag for flag in BUILDS[build]):
        pytest.skip("for x86-64")
    return builds.library(*BUILDS[build])


@every_build
def test_every_compiler_gives_the_known_bits(build: str, builds: Builds) -> None:
    found = CompiledKernel(library_of(build, builds))

    assert after_five_rounds(found) == KNOWN_AFTER_FIVE


@pytest.mark.skipif(not X86, reason="for x86-64")
@pytest.mark.parametrize("is_guarded", [True, False])
def test_a_library_that_flushes_small_numbers_to_zero_changes_nothing(
    is_guarded: bool, builds: Builds, tmp_path: Path
) -> None:
    """Control: without the guard, the digests of small numbers differ, so the test sees what it should."""
    rude = tmp_path / "rude.so"
    subprocess.run(["gcc", "-ffast-math", "-shared", "-x", "c", "/dev/null", "-o", str(rude)], check=True)
    path = builds.library("gcc", PORTABLE, *([] if is_guarded else ["-DTOLFL_NO_GUARD"]))
    case = "denormal numbers, sgd"
    program = (
        "import ctypes, sys\nfrom pathlib import Path\n"
        "from tests.kernel.cases import CASES, digests\nfrom tolfl.kernel.compiled import CompiledKernel\n"
        f"kernel = CompiledKernel(Path({str(path)!r}))\nctypes.CDLL({str(rude)!r})\n"
        "tiny = 2.0**-1060\nassert tiny * 0.5 == 0, 'numbers are not flushed to zero'\n"
        f"print(digests(kernel, CASES[{case!r}], 1)[1])\n"
    )

    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=Path.cwd())

    assert found.returncode == 0, found.stderr
    assert (found.stdout.strip() == DIGESTS[case][1]) == is_guarded


def _recorded() -> RecordingKernel:
    recorder = RecordingKernel(kernel())
    for case in CASES.values():
        model = start_of(case)
        recorder.train(case.network, case.settings, jobs_of(case, model, 0))
    return recorder


def test_a_program_of_its_own_replays_recorded_trainings(builds: Builds) -> None:
    recorder = _recorded()

    assert builds.replay("replay.c", recorder.recording(), ["gcc", PORTABLE]) == recorder.expected()


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["aarch64-linux-gnu-gcc", "clang --target=aarch64-linux-gnu"])
@pytest.mark.parametrize("flags", ["", "-DTOLFL_PORTABLE -O3", "-march=armv8.2-a+sve -DTOLFL_PORTABLE"])
def test_a_64_bit_arm_processor_under_emulation_gives_the_same_bits(compiler: str, flags: str, builds: Builds) -> None:
    recorder = _recorded()

    command = [*compiler.split(), "-static", *flags.split()]
    found = builds.replay("replay.c", recorder.recording(), command, ["qemu-aarch64"])

    assert found == recorder.expected()


@pytest.mark.slow
@pytest.mark.skipif(not X86, reason="for x86-64")
def test_an_emulated_processor_without_fma_gives_the_same_bits(builds: Builds) -> None:
    recorder = _recorded()

    emulator = ["qemu-x86_64", "-cpu", "Nehalem"]
    found = builds.replay("replay.c", recorder.recording(), ["gcc", "-static"], emulator)

    assert found == recorder.expected()


@pytest.mark.slow
def test_the_rounds_of_a_run_end_with_the_same_bits_on_an_emulated_arm_processor(
    builds: Builds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every training of a simulated run, whose model real devices have to the bit (tests/net/test_agreement.py)."""
    recorder = RecordingKernel(kernel())
    monkeypatch.setattr(autoencoder, "kernel", lambda: recorder)
    blobs = BlobsSpec(samples_per_device=20, n_features=32)
    run(RunSpec(data="blobs", devices=6, clusters=3, rounds=6, fail="head@3", blobs=blobs))

    compiler = ["aarch64-linux-gnu-gcc", "-static"]
    found = builds.replay("replay.c", recorder.recording(), compiler, ["qemu-aarch64"])

    assert len(recorder.calls) >= 6
    assert found == recorder.expected()


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
    recorder = _recorded()
    flags = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O0"]

    found = builds.replay("replay.c", recorder.recording(), ["gcc", *flags], variant=variant)

    assert found == recorder.expected()


def test_the_structures_of_both_sides_have_one_layout() -> None:
    assert ctypes.sizeof(compiled._Layer) == 32
    assert ctypes.sizeof(compiled._Settings) == 40
    assert compiled._JOB.itemsize == 48
