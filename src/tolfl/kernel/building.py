"""Compiles the kernel: when the package is built and, where there was no compiler then, when it is first used.

The standard library alone: the build of the package loads this file by itself.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

HERE = Path(__file__).parent
_SOURCES = ("tolfl_kernel.c", "kernel_body.h", "statistics_body.h", "tolfl_kernel.h")
#: -O3 unrolls what is unrolled by hand already; without contraction, a sum is what the source says on every processor.
FLAGS = ("-std=gnu11", "-O2", "-ffp-contract=off", "-fPIC", "-shared", "-fvisibility=default")
_TIMEOUT_S = 300


class BuildError(OSError):
    """The kernel cannot be compiled here."""


@lru_cache(maxsize=1)
def source_hash() -> str:
    """Return a name of the source: a library that was made from another one does not have it."""
    digest = hashlib.sha256()
    for name in _SOURCES:
        digest.update((HERE / name).read_bytes())
    return digest.hexdigest()[:16]


def library_name() -> str:
    """Return the file name of the library for this source and this kind of processor."""
    return f"tolfl_kernel-{source_hash()}-{platform.machine()}.so"


def compiler() -> list[str]:
    """Return the command of a C compiler: `CC`, or the first that is installed."""
    wish = os.environ.get("CC", "")
    try:
        asked = shlex.split(wish)
    except ValueError as error:
        raise BuildError(f"CC is {wish!r}, which is no command ({error}); set it to one, such as gcc") from None
    for command in [asked] if asked else [["cc"], ["gcc"], ["clang"]]:
        if shutil.which(command[0]):
            return command
    raise BuildError(f"there is no C compiler ({asked[0] if asked else 'cc, gcc, clang'}); install one, such as gcc")


def compile_to(path: Path, command: list[str] | None = None, flags: tuple[str, ...] = ()) -> None:
    """Compile the library to `path`, which has it whole or not at all."""
    command = command or compiler()
    try:
        descriptor, name = tempfile.mkstemp(suffix=".so", dir=path.parent)
    except OSError as error:
        raise BuildError(
            f"{path.parent} cannot be written to ({error.strerror}); set XDG_CACHE_HOME to a folder that can"
        ) from error
    os.close(descriptor)
    made = Path(name)
    define = f'-DTOLFL_SOURCE="{source_hash()}"'
    try:
        found = subprocess.run(
            [*command, *FLAGS, define, *flags, str(HERE / _SOURCES[0]), "-o", name, "-lm"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
        if found.returncode:
            errors = [line for line in found.stderr.splitlines() if "error" in line] or found.stderr.splitlines()
            why = errors[0].strip() if errors else found.returncode
            raise BuildError(f"{command[0]} cannot compile it ({why}); set CC to another")
        made.chmod(0o755)
        made.replace(path)
    except (OSError, subprocess.TimeoutExpired) as error:
        made.unlink(missing_ok=True)
        raise (
            error if isinstance(error, BuildError) else BuildError(f"{command[0]} failed ({error}); set CC to another")
        ) from error


def built_when_used() -> Path:
    """Return the library in the user's cache, compiled now if it is not there."""
    folder = _cache_folder()
    path = folder / library_name()
    if not path.is_file():
        compile_to(path)
    return path


def _cache_folder() -> Path:
    """Return a folder that nobody else can write to: what is in it gets executed."""
    configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        above = configured if configured.is_absolute() else Path.home() / ".cache"
        folder = above / "tolfl" / "kernel"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except (OSError, RuntimeError) as error:  # no home
        raise BuildError(f"there is no folder to keep it in ({error}); set XDG_CACHE_HOME to one") from error
    if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BuildError(f"{folder} belongs to somebody else, or others may write to it; set XDG_CACHE_HOME to another")
    return folder
