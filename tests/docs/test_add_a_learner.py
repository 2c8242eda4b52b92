"""docs/how-to/add-a-learner.md, followed word by word: its files, its commands, and what it says of both."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.docs.pages import ROOT, blocks_of
from tolfl.cli import main
from tolfl.core.spec import RunSpec
from tolfl.learners.registry import GROUP

PAGE = "docs/how-to/add-a-learner.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")
_PYTHON = re.compile(
    r"(?P<how>Save this as|at the end of) `(?P<name>\w+\.py)`[^\n]*:\n\n```python\n(?P<code>.*?)^```$", re.M | re.S
)
#: Rows of the last table that need more than a command line: a learner that is bad in this way.
BAD = {
    "it has no number of `rounds`": "class Bad(KMeans):\n    def __init__(self, fleet):\n        self.rounds = None\n",
    "a state that is not finite": (
        "class Bad(KMeans):\n    def apply(self, state, total, closing):\n        return {'a': np.full(2, np.nan)}\n"
    ),
    "`check_learner`: it remembers something": (
        "class Bad(KMeans):\n    calls = 0\n    def sums_of(self, turn):\n        self.calls += 1\n"
        "        return {'a': turn.total(np.array([float(self.calls)]))}\n"
    ),
}
Run = Callable[[str], str]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return what types a line in an empty folder and gives back what it prints, whether it fails or not."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "kmeans", raising=False)

    def typed(line: str) -> str:
        monkeypatch.setattr(sys, "argv", shlex.split(line))
        capsys.readouterr()
        with pytest.raises(SystemExit):
            main()
        said = capsys.readouterr()
        return said.out + said.err

    return typed


def write_files(first: int = 0, last: int | None = None) -> None:
    """Do to files what the page says, in its order."""
    for found in list(_PYTHON.finditer(TEXT))[first:last]:
        with Path(found["name"]).open("w" if found["how"] == "Save this as" else "a", encoding="utf-8") as file:
            file.write(("" if found["how"] == "Save this as" else "\n\n") + found["code"])


def line(containing: str) -> str:
    """Return the one command of the page with some words in it."""
    (found,) = (one for block in blocks_of(PAGE) if not block.language for one in block.lines if containing in one)
    return found


def summary(out: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(out, "summary.json").read_bytes())
    return found


def rows_of_the_last_table() -> dict[str, str]:
    rows = re.findall(r"^\| (.+?) \| `(.+?)` \|$", TEXT.partition("## Error messages")[2], re.MULTILINE)
    assert len(rows) == 6  # parametrize would run nothing for a heading or a table that is not there
    return dict(rows)


def test_every_file_of_the_page_is_written_by_these_tests() -> None:
    named = [found["name"] for found in _PYTHON.finditer(TEXT)]

    assert named == ["kmeans.py", "check.py", "kmeans.py", "kmeans.py", "guess.py"]
    assert len(named) == sum(block.language == "python" for block in blocks_of(PAGE))


def test_k_means_loses_a_head_in_the_simulator_and_keeps_to_the_checks(run: Run) -> None:
    write_files(0, 2)
    told = run(line("runs/first"))
    runpy.run_path("check.py")

    assert "nothing to score: see state.safetensors" in told
    assert "nothing to score: see state.safetensors" in TEXT
    assert Path("runs/first/state.safetensors").is_file()
    assert summary("runs/first")["survivors"] == [1, 2, 3]


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(300)
def test_real_devices_that_lose_a_head_hold_the_simulators_state_and_leave_it_to_be_used(run: Run) -> None:
    write_files(0, 3)
    for out in ("simulated", "real"):
        run(line(f"runs/{out}"))
    simulated, real = summary("runs/simulated"), summary("runs/real")

    assert real["state_digest"] == simulated["state_digest"]
    assert real["survivors"] == simulated["survivors"] == [1, 2, 3]
    assert real["auroc"] == simulated["auroc"] > 0.5
    left = [Path(f"runs/real/devices/{device}/model.safetensors") for device in range(4)]
    assert [path.is_file() for path in left] == [False, True, True, True]
    assert len({path.read_bytes() for path in (*left[1:], Path("runs/simulated/model.safetensors"))}) == 1


def test_stages_with_settings_lose_a_head_between_their_rounds(run: Run) -> None:
    write_files(0, 4)
    run(line("runs/boxed"))
    found = summary("runs/boxed")

    assert [name for name, _ in found["stages"]] == ["box", "kmeans"]
    assert (found["rounds_done"], found["survivors"]) == (9, [1, 2, 3])
    assert [failure["round"] for failure in found["failures"]] == [3]
    assert found["bytes"] > 0


def test_an_own_module_trains_in_the_simulator(run: Run) -> None:
    write_files(4)
    run(line("simulate --learn guess.py"))

    assert summary("runs/guessed")["survivors"] == [1, 2, 3]


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(300)
def test_an_own_module_gives_the_same_state_on_real_devices(run: Run) -> None:
    write_files(4)
    for command in ("simulate", "up"):
        run(line(f"{command} --learn guess.py"))

    assert summary("runs/guessed-really")["state_digest"] == summary("runs/guessed")["state_digest"]


def test_settings_and_entry_points_of_the_page_are_what_the_package_reads() -> None:
    learn, package = (msgspec.toml.decode(block.text) for block in blocks_of(PAGE) if block.language == "toml")

    assert msgspec.convert(learn, RunSpec).learn == {"what": "kmeans.py:KMeans"}
    assert list(package["project"]["entry-points"]) == [GROUP]


@pytest.mark.parametrize("wrong", rows_of_the_last_table())
def test_a_bad_learner_is_answered_with_the_sentence_of_the_page(run: Run, wrong: str) -> None:
    write_files(0, 4)
    what, extra = {
        "the file is not there": ("kmeens.py:KMeans", ""),
        "the class is not in it": ("kmeans.py:KMens", ""),
        "an unknown key in `[learn]`": ("kmeans.py:boxed", "--set learn.l=6"),
    }.get(wrong, ("kmeans.py:Bad", ""))
    with Path("kmeans.py").open("a", encoding="utf-8") as file:
        file.write("\n\n" + BAD.get(wrong, ""))
    if "check_learner" in wrong:
        Path("check.py").write_text(Path("check.py").read_text().replace("KMeans", "Bad"))
        with pytest.raises(AssertionError) as caught:
            runpy.run_path("check.py")
        said = str(caught.value)
    else:
        said = run(
            f"tolfl simulate --learn {what} {extra} --data blobs --devices 4 --clusters 2 --rounds 2 --out runs/bad"
        )

    assert rows_of_the_last_table()[wrong] in said
