"""What `make dist` builds works where there is no checkout: installed, run, and whole."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.processes, pytest.mark.timeout(400)]

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Built:
    """The two archives."""

    wheel: Path
    source: Path


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel in it."""

    folder: Path
    variables: Mapping[str, str]

    def run(self, program: str, *arguments: str, cwd: Path) -> str:
        done = subprocess.run(
            [self.folder / "bin" / program, *arguments],
            cwd=cwd,
            env=self.variables,
            check=False,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(ROOT, tmp_path_factory.mktemp("dist"))


def build(project: Path, out: Path, **variables: str) -> Built:
    """Build as `make dist` does, into another folder."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--directory", str(out)],
        cwd=project,
        env={**os.environ, **variables},
        check=True,
        capture_output=True,
    )
    (wheel,), (source,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return Built(wheel, source)


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install(built, tmp_path_factory.mktemp("clean") / "venv")


def install(built: Built, folder: Path) -> Installed:
    """Install the wheel into a new environment; what it needs is lent by the one that the tests run in."""
    venv.create(folder, with_pip=False)
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet", "--no-index",
         "--no-deps", "--disable-pip-version-check", str(built.wheel)],
        check=True,
        capture_output=True,
    )  # fmt: skip
    (packages,) = folder.glob("lib/python*/site-packages")
    # A path and no more: unlike a folder of sites it starts nothing, so the checkout, which an editable install names
    # in a .pth file, is not on the path.
    (packages / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV_", "TOLFL_"))}
    return Installed(folder, {**variables, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"})


def test_the_package_comes_from_the_wheel(installed: Installed, tmp_path: Path) -> None:
    where = installed.run("python", "-c", "import tolfl; print(tolfl.__file__)", cwd=tmp_path)

    assert Path(where.strip()).is_relative_to(installed.folder)


def test_the_command_says_its_version_and_is_well(installed: Installed, tmp_path: Path) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    both = "import importlib.metadata, tolfl; print(importlib.metadata.version('tolfl'), tolfl.__version__)"
    assert installed.run("tolfl", "--version", cwd=tmp_path) == f"tolfl {version}\n"
    assert installed.run("python", "-c", both, cwd=tmp_path) == f"{version} {version}\n"
    shown = installed.run("tolfl", "doctor", cwd=tmp_path)
    assert "0 problems" in shown
    assert "compiled (" in shown


def test_a_run_works_outside_the_checkout(installed: Installed, tmp_path: Path) -> None:
    tiny = ("--data", "blobs", "-n", "4", "-k", "2", "--rounds", "3", "--samples-per-device", "20")
    shown = installed.run("tolfl", "simulate", *tiny, "--fail", "server@1", "--out", "run", cwd=tmp_path)
    installed.run("tolfl", "report", "run", cwd=tmp_path)

    assert "run directory: run" in shown
    assert (tmp_path / "run" / "report.html").stat().st_size > 10_000


def check_demo(installed: Installed, folder: Path) -> None:
    small = ("--devices", "4", "--data", "blobs")
    shown = installed.run("tolfl", "demo", *small, "--out", "demo", cwd=folder)

    assert "Tol-FL, a member takes over (real processes)" in shown
    assert "it is the one that the simulator predicted, bit by bit" in shown


def test_the_demo_runs_from_the_wheel(installed: Installed, tmp_path: Path) -> None:
    check_demo(installed, tmp_path)


def test_the_demo_runs_from_a_wheel_that_was_built_without_a_compiler(built: Built, tmp_path: Path) -> None:
    with tarfile.open(built.source) as archive:
        archive.extractall(tmp_path, filter="data")
    (project,) = tmp_path.iterdir()
    without = build(project, tmp_path / "dist", CC="there-is-none")
    bare = install(without, tmp_path / "venv")
    # Nor is there one where it is installed: NumPy computes.
    bare = Installed(bare.folder, {**bare.variables, "CC": "there-is-none", "XDG_CACHE_HOME": str(tmp_path / "cache")})

    assert without.wheel.name.endswith("-py3-none-any.whl")
    assert not any(name.endswith(".so") for name in zipfile.ZipFile(without.wheel).namelist())
    assert "compiled (" not in bare.run("tolfl", "doctor", cwd=tmp_path)
    check_demo(bare, tmp_path)


def test_the_page_has_its_files(installed: Installed, tmp_path: Path) -> None:
    ask = """
from importlib.resources import files
from tolfl.dashboard import Page
print(sorted(one.name for one in files("tolfl.dashboard").rglob("*") if one.suffix in (".html", ".js", ".css")))
"""
    shown = installed.run("python", "-c", ask, cwd=tmp_path)
    ours = sorted(
        one.name for one in (ROOT / "src/tolfl/dashboard").rglob("*") if one.suffix in (".html", ".js", ".css")
    )

    assert ours
    assert shown.strip() == str(ours)


def test_the_papers_numbers_are_there(installed: Installed, tmp_path: Path) -> None:
    ask = "from tolfl.experiments.paper.published import published; print(published()['data_sets']['comms-ml'])"
    assert "3000" in installed.run("python", "-c", ask, cwd=tmp_path)


def test_nothing_but_the_package_is_in_the_wheel(built: Built) -> None:
    names = zipfile.ZipFile(built.wheel).namelist()
    ours = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src" / "tolfl").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert {name.split("/")[0] for name in names} == {"tolfl", "tolfl-0.1.0.dist-info"}
    assert ours <= set(names)
    assert "tolfl-0.1.0.dist-info/licenses/LICENSE" in names
    assert sum(name.endswith(".so") for name in names) == 1  # the kernel of this platform
    assert "-py3-none-linux_" in built.wheel.name


def test_the_source_archive_can_be_worked_with(built: Built) -> None:
    with tarfile.open(built.source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    wanted = {
        *("README.md", "LICENSE", "SECURITY.md", "CHANGELOG.md", "CONTRIBUTING.md", "CITATION.cff", "Makefile"),
        *(
            "pyproject.toml",
            "constraints.txt",
            "hatch_build.py",
            "src/tolfl/cli/__init__.py",
            "tests/test_repository.py",
        ),
    }
    assert wanted <= names
    assert not any("__pycache__" in name or name.startswith((".venv", "runs/")) for name in names)
