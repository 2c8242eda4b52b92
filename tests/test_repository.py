"""What the repository says about itself is true: the README runs, the targets exist, every version is pinned."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

import tolfl
from tolfl.experiments.catalogue import stored_reports
from tolfl.experiments.results import ExperimentReport, fill_page

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TARGETS = [
    *(
        "setup",
        "demo",
        "test",
        "test-all",
        "test-flower",
        "check",
        "bench",
        "bench-flower",
        "bench-flower-app",
        "bench-flower-deployed",
    ),
    *("screenshots", "explore", "dist", "clean", "help", "docs", "docs-serve", "diagrams", "tools", "soak"),
]

PAGES_WITH_RESULTS = ["reproduction", "when-tol-fl-pays", "liars"]


# Reading any of these back runs code of the writer's choice.
PICKLING_MODULES = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}
PICKLING_CALLS = {"torch.load", "torch.save"}


def python_blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def normalized(requirement: str) -> str:
    """Return the package's name as PEP 503 spells it, without version, extras and markers."""
    name = re.split(r"[\s\[<>=!~;]", requirement.strip(), maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {normalized(name): version for name, version in pinned}


def test_the_python_example_of_the_readme_runs(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    (example,), (answer,) = python_blocks(text), re.findall(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    environment = {**os.environ, "MPLBACKEND": "agg"}

    # A process of its own, as a reader would run it: the working directory is not the repository.
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        cwd=tmp_path,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout == answer
    assert (tmp_path / "detector.tolfl").stat().st_size > 0


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= 6000


@cache
def reports() -> dict[str, ExperimentReport]:
    return {name: report for name, (report, _) in stored_reports(ROOT / "results").items()}


@pytest.mark.parametrize("page", [f"docs/explanation/{name}.md" for name in PAGES_WITH_RESULTS])
def test_tables_of_results_are_those_of_the_stored_rows(page: str) -> None:
    text = (ROOT / page).read_text()

    assert "<!-- results:" in text
    assert fill_page(text, reports().__getitem__) == text


def test_results_beside_the_rows_are_those_of_the_rows() -> None:
    for name, report in reports().items():
        assert (ROOT / "results" / f"{name}.md").read_text().endswith(report.to_markdown()), name


PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    *(str(p.relative_to(ROOT)) for p in sorted(ROOT.glob("docs/**/*.md"))),
]


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_points_to_exists(page: str) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / page).read_text())

    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []


def test_links_of_the_packages_readme_begin_with_the_address_that_make_dist_gets() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "hatchling", "metadata", "readme"],
        cwd=ROOT,
        env={**os.environ, "TOLFL_LINKS": "https://host.example/tolfl/blob/main"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    pictures = re.findall(r"!\[[^\]]*\]\((.*?)\)", shown)

    assert pictures == ["https://host.example/tolfl/raw/main/docs/figures/server-killed.gif"]
    assert "](https://host.example/tolfl/blob/main/docs/README.md)" in shown
    assert re.findall(r"\]\((?!https:)[^)]*", shown) == []


def test_make_help_names_every_target() -> None:
    # Without the variables of a `make test` around this one, which would add lines of its own.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    shown = subprocess.run(
        ["make", "help"], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    ).stdout

    assert sorted(line.split()[0] for line in shown.splitlines()) == sorted(TARGETS)


def test_every_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    requirements = [
        *project["build-system"]["requires"],
        *project["project"]["dependencies"],
        *project["dependency-groups"]["dev"],
    ]

    assert {normalized(requirement) for requirement in requirements} <= pins().keys()


def test_make_installs_the_torch_that_is_pinned() -> None:
    installed = re.search(r"^TORCH := torch==(\S+)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)

    assert installed is not None
    assert installed[1] == pins()["torch"]


def test_the_version_is_the_same_everywhere() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

    assert tolfl.__version__ == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()


@cache
def nodes_of_sources() -> dict[Path, list[ast.AST]]:
    return {path: list(ast.walk(ast.parse(path.read_text()))) for path in SOURCES}


def test_nothing_is_pickled() -> None:
    offences = [
        f"{path.relative_to(ROOT)}: {ast.unparse(node)}"
        for path, nodes in nodes_of_sources().items()
        for node in nodes
        if is_pickling(node)
    ]

    assert offences == []


def is_pickling(node: ast.AST) -> bool:
    match node:
        case ast.Import(names=names):
            return any(alias.name.split(".")[0] in PICKLING_MODULES for alias in names)
        case ast.ImportFrom(module=str(module)):
            return module.split(".")[0] in PICKLING_MODULES
        case ast.Call(func=function, keywords=keywords):
            allows = any(k.arg == "allow_pickle" and ast.unparse(k.value) != "False" for k in keywords)
            return allows or (isinstance(function, ast.Attribute) and ast.unparse(function) in PICKLING_CALLS)
        case _:
            return False


@pytest.mark.parametrize(
    "line",
    ["import pickle", "from joblib import dump", "torch.save(model, path)", "np.load(path, allow_pickle=True)"],
)
def test_pickling_is_recognised(line: str) -> None:
    assert any(is_pickling(node) for node in ast.walk(ast.parse(line)))


def used_twice(names: list[str]) -> set[str]:
    return {name for name in names if names.count(name) > 1}


def test_a_class_name_and_a_file_name_occur_once_in_the_package() -> None:
    classes = [node.name for nodes in nodes_of_sources().values() for node in nodes if isinstance(node, ast.ClassDef)]
    files = [path.name for path in SOURCES if path.name not in ("__init__.py", "__main__.py")]

    assert used_twice(classes) == set()
    assert used_twice(files) == set()


def test_what_benchmarks_import_from_the_package_is_there() -> None:
    gone = []
    for path in sorted((ROOT / "benchmarks").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("tolfl"):
                module = importlib.import_module(str(node.module))
                gone += [f"{path.name}: {one.name}" for one in node.names if not hasattr(module, one.name)]
    assert gone == []
