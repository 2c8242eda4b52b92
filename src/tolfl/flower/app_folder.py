"""The folder of a Flower app: name, components, configuration, files, and the Python that runs it."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tolfl.core.errors import SpecError, did_you_mean

#: Where an app keeps what is no part of it.
_NOT_THE_APP = {"__pycache__", "build", "dist", "node_modules", "runs", "site-packages"}
_CODE = (".py", ".toml")
_PAIR = re.compile(r"""([^\s=]+)\s*=\s*("(?:[^"\\]|\\.)*"|'[^']*'|\[[^\]]*\]|\{[^}]*\}|[^\s"'\[{]\S*)""")

#: What went wrong in an app's `main` after the last round, beside the files that it wrote.
PROBLEM_FILE = "app-problem.txt"

#: Flower's kinds of a configuration's value.
ConfigValue = bool | int | float | str
Config = dict[str, ConfigValue]


@dataclass(frozen=True)
class AppFolder:
    """A Flower app: what `pyproject.toml` says."""

    path: Path
    name: str
    version: str
    clientapp: str
    serverapp: str
    config: Config

    @classmethod
    def read(cls, folder: str) -> AppFolder:
        """Read an app's `pyproject.toml`; what is wrong is said in one sentence."""
        path = Path(folder).expanduser().resolve()
        file = path / "pyproject.toml"
        try:
            content = msgspec.toml.decode(file.read_bytes())
        except OSError:
            raise SpecError(
                f"Flower app {folder!r}: there is no {file}; name the folder of an app (flwr new)"
            ) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise SpecError(f"Flower app {folder!r}: {file} is no TOML ({error})") from None
        app = _section(content, "tool", "flwr", "app")
        components = _section(app, "components")
        project = _section(content, "project")
        for what in ("clientapp", "serverapp"):
            if ":" not in str(components.get(what, "")):
                raise SpecError(
                    f"Flower app {folder!r}: {file} names no {what}; "
                    f"it needs tool.flwr.app.components.{what} = 'module:app'"
                )
        return cls(
            path,
            str(project.get("name", path.name)),
            str(project.get("version", "")),
            str(components["clientapp"]),
            str(components["serverapp"]),
            flat_config(_section(app, "config")),
        )

    def fused(self, given: Mapping[str, ConfigValue]) -> Config:
        """Return the run's configuration: the app's, with what was given in its place."""
        if unknown := sorted(set(given) - set(self.config)):
            known = ", ".join(self.config) or "none"
            near = did_you_mean(unknown[0], self.config)
            raise SpecError(f"--run-config: {self.name} has no key {unknown[0]!r}; it has: {known}{near}")
        return {**self.config, **given}

    def digest(self) -> str:
        """Return a name of the app's code: its Python and TOML files, wherever the folder lies."""
        total = hashlib.sha256()
        for above, folders, files in os.walk(self.path):
            here = Path(above)
            folders[:] = sorted(
                name
                for name in folders
                if not name.startswith(".") and name not in _NOT_THE_APP and not (here / name / "pyvenv.cfg").exists()
            )
            for name in sorted(files):
                if name.endswith(_CODE):
                    total.update(f"{(here / name).relative_to(self.path)}\n".encode())
                    total.update(hashlib.sha256((here / name).read_bytes()).digest())
        return total.hexdigest()[:16]

    def python(self, asked: str = "") -> Path:
        """Return the interpreter of the app's environment: as asked for, or that of `.venv` in its folder."""
        if asked:
            found = Path(asked).expanduser()
            found = found / "bin" / "python" if found.is_dir() else found
            if not found.is_file():
                raise SpecError(f"--python {asked}: there is no such interpreter")
            return found.absolute()
        own = self.path / ".venv" / "bin" / "python"
        return own if own.is_file() else Path(sys.executable)


def parsed_config(text: str | Mapping[str, Any], flag: str) -> Config:
    """Read a configuration in Flower's syntax: pairs of key and TOML value, or a TOML file; or a table of a TOML file.

    >>> parsed_config('num-server-rounds=8 name="a b"', "--run-config")
    {'num-server-rounds': 8, 'name': 'a b'}
    """
    if isinstance(text, Mapping):
        return flat_config(text)
    if text.endswith(".toml"):
        try:
            return flat_config(msgspec.toml.decode(Path(text).expanduser().read_bytes()))
        except (OSError, msgspec.DecodeError) as error:
            raise SpecError(f"{flag} {text}: cannot be read ({error})") from None
    found: Config = {}
    rest = text.strip()
    while rest:
        pair = _PAIR.match(rest)
        if pair is None:
            raise SpecError(f"{flag} {text!r}: write key=value pairs, as in \"num-server-rounds=8 name='a b'\"")
        try:
            value = msgspec.toml.decode(f"value = {pair[2]}")["value"]
        except msgspec.DecodeError:
            raise SpecError(f"{flag} {text!r}: {pair[2]} is no TOML value; write texts in quotes") from None
        found.update(flat_config({pair[1]: value}))
        rest = rest[pair.end() :].lstrip()
    return found


def flat_config(config: Mapping[str, Any], above: str = "") -> Config:
    """Return a configuration with the names of sections before those of their keys, as Flower does."""
    found: Config = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            found.update(flat_config(value, f"{above}{key}."))
        elif isinstance(value, bool | int | float | str):
            found[above + key] = value
        else:
            raise SpecError(f"configuration {above + key} is a {type(value).__name__}; Flower takes numbers and texts")
    return found


def _section(content: Mapping[str, Any], *names: str) -> dict[str, Any]:
    place: Any = content
    for name in names:
        place = place.get(name, {}) if isinstance(place, Mapping) else {}
    return dict(place) if isinstance(place, Mapping) else {}
