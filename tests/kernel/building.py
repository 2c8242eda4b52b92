"""Compiles the kernel's source as tests want it: a library to load, or a program that replays a recording."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tolfl.kernel.building import FLAGS, HERE, built_when_used, compile_to, library_name

#: Without the variants for the instruction sets of x86-64, which take the compiler most of its time.
PORTABLE = "-DTOLFL_PORTABLE"


def library_in_use() -> Path:
    """Return the library with all its variants: the one that was installed, or one compiled now."""
    packaged = HERE / library_name()
    return packaged if packaged.is_file() else built_when_used()


@dataclass(frozen=True)
class Builds:
    """A folder of what was compiled, by its command; test workers wait for each other."""

    folder: Path

    def library(self, compiler: str, *flags: str) -> Path:
        """Return a library; skip where there is no such compiler."""
        _need(compiler)
        path = self._path(compiler, *flags).with_suffix(".so")
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.is_file():
                compile_to(path, [compiler], flags)
        return path

    def replay(
        self, source: str, recording: bytes, compiler: Sequence[str], run: Sequence[str] = (), variant: str = ""
    ) -> bytes:
        """Return what a program of this folder's source writes about a recording; skip where a tool is missing."""
        _need(compiler[0], *run[:1])
        path = self._path(source, *compiler)
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.is_file():
                flags = [flag for flag in FLAGS if flag not in {"-fPIC", "-shared"}]
                program = Path(__file__).with_name(source)
                command = [compiler[0], *flags, *compiler[1:], str(program), "-o", str(path), "-lm"]
                subprocess.run(command, check=True)
        found = subprocess.run(
            [*run, str(path), *filter(None, [variant])], input=recording, capture_output=True, check=False
        )
        assert found.returncode == 0, found.stderr.decode(errors="replace")[-2000:]
        return found.stdout

    def _path(self, *command: str) -> Path:
        return self.folder / hashlib.sha256("\0".join(command).encode()).hexdigest()[:16]


def _need(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed: make tools installs it")
