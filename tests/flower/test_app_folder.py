"""What a Flower app says of itself is read without flwr, and what is wrong is said in one sentence."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.flower.environments import APPS
from tolfl.core.errors import SpecError
from tolfl.flower.app_folder import AppFolder, parsed_config


def test_an_app_is_its_pyproject() -> None:
    app = AppFolder.read(str(APPS / "linear"))

    assert (app.name, app.version, app.serverapp) == ("linear", "1.0.0", "linear_app.server_app:app")
    assert app.config["num-server-rounds"] == 4


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("num-server-rounds=8", {"num-server-rounds": 8}),
        ("lr=0.1 name='a b' is-on=true", {"lr": 0.1, "name": "a b", "is-on": True}),
        ({"a": {"b": 1}}, {"a.b": 1}),
        ("", {}),
    ],
)
def test_configurations_are_read_as_flower_reads_them(text: str, found: dict[str, object]) -> None:
    assert parsed_config(text, "--run-config") == found


@pytest.mark.parametrize(
    ("text", "problem"),
    [("rounds 8", "write key=value pairs"), ("name=word", "write texts in quotes"), ("a=[1]", "numbers and texts")],
)
def test_a_configuration_that_cannot_be_read_is_named(text: str, problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        parsed_config(text, "--run-config")


def test_a_configuration_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("lr = 0.5\n[model]\nwidth = 3\n")

    assert parsed_config(str(tmp_path / "run.toml"), "--run-config") == {"lr": 0.5, "model.width": 3}
    with pytest.raises(SpecError, match=r"none.toml: cannot be read"):
        parsed_config(str(tmp_path / "none.toml"), "--run-config")


def test_a_key_that_the_app_does_not_have_is_refused_with_the_near_one() -> None:
    app = AppFolder.read(str(APPS / "linear"))

    with pytest.raises(SpecError, match=r"linear has no key 'learning-rates'.*did you mean 'learning-rate'"):
        app.fused({"learning-rates": 0.1})


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "there is no .*pyproject.toml; name the folder of an app"),
        ("[tool", "is no TOML"),
        ("[project]\nname='a'\n", "names no clientapp"),
        ("[tool.flwr.app.components]\nclientapp='a.b:app'\nserverapp='nothing'\n", "names no serverapp"),
    ],
    ids=["no pyproject", "no TOML", "no component", "no reference"],
)
def test_a_folder_that_is_no_app_is_refused(content: str | None, problem: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "pyproject.toml").write_text(content)

    with pytest.raises(SpecError, match=problem):
        AppFolder.read(str(tmp_path))


def test_the_name_of_an_apps_code_follows_its_files_alone(tmp_path: Path) -> None:
    for name in ("one", "two"):
        shutil.copytree(APPS / "linear", tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    one, two = (AppFolder.read(str(tmp_path / name)) for name in ("one", "two"))
    before = one.digest()
    (two.path / "notes.txt").write_text("no code")
    (two.path / ".venv").mkdir()
    (two.path / ".venv" / "more.py").write_text("")

    assert two.digest() == before

    (two.path / "linear_app" / "task.py").write_text("N_FEATURES = 7\n")
    assert two.digest() != before


def test_the_interpreter_is_the_one_asked_for_or_that_of_the_app(tmp_path: Path) -> None:
    shutil.copytree(APPS / "linear", tmp_path / "app")
    app = AppFolder.read(str(tmp_path / "app"))

    assert app.python() == Path(sys.executable)
    assert app.python(sys.executable) == Path(sys.executable)

    own = tmp_path / "app" / ".venv" / "bin" / "python"
    own.parent.mkdir(parents=True)
    own.symlink_to(sys.executable)
    assert app.python() == own
    assert app.python(str(tmp_path / "app" / ".venv")) == own
    with pytest.raises(SpecError, match="there is no such interpreter"):
        app.python(str(tmp_path / "nowhere"))
