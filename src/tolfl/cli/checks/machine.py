"""The machine: its clock, its limits, the folders that are written to, the terminal."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from tolfl.cli.checks.finding import Finding, State

_GIB = 2**30
_DEVICE_BYTES = 0.36 * _GIB  #: what a process of `tolfl up` held, measured on comms-ml
_UNSYNCHRONISED = 5  #: TIME_ERROR of adjtimex(2)
_TIMEX_BYTES = 512  #: more than the structure has anywhere


# -- clock -------------------------------------------------------------------------------------------------------


def clock_findings(now: datetime | None = None) -> Iterator[Finding]:
    """Look at the clock: certificates have dates, and the failure detector measures seconds."""
    now = now or datetime.now(UTC)
    installed = datetime.fromtimestamp(Path(__file__).stat().st_mtime, UTC)
    shown = now.strftime("%Y-%m-%d %H:%M UTC")
    if now < installed:
        when = installed.strftime("%Y-%m-%d %H:%M")
        found = f"{shown} is before tolfl was installed ({when})"
        yield Finding("clock", "time", State.PROBLEM, found, "set the clock: certificates have dates")
    else:
        yield Finding("clock", "time", State.OK, shown)
    clock = time.get_clock_info("monotonic")
    readings = [time.monotonic() for _ in range(1000)]
    if clock.monotonic and readings == sorted(readings):
        yield Finding("clock", "stopwatch", State.OK, f"never goes back, counts in {clock.resolution:.0e} s")
    else:
        yield Finding("clock", "stopwatch", State.PROBLEM, "goes back", "repair the machine's clock source")
    yield from _synchronised()


def _synchronised() -> Iterator[Finding]:
    """Ask the kernel whether somebody keeps its clock right; say nothing where it cannot be asked."""
    adjtimex = getattr(ctypes.CDLL(None), "adjtimex", None)
    if adjtimex is None:
        return
    state = adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))  # all zero: it only reads
    if state == _UNSYNCHRONISED:
        todo = "switch on NTP (timedatectl set-ntp true) on machines that use certificates"
        yield Finding("clock", "NTP", State.NOTE, "nobody keeps the clock right, says the kernel", todo)
    elif state >= 0:
        yield Finding("clock", "NTP", State.OK, "the clock is kept right, says the kernel")


# -- limits ------------------------------------------------------------------------------------------------------


def limit_findings(out: Path) -> Iterator[Finding]:
    """Look at what the machine gives, and whether the folders that are written to can be."""
    yield _open_files()
    yield _memory(free_memory())
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield Finding("limits", "cores", State.OK, f"{n_cores}")
    yield from _folder("out", out, "choose another --out")
    yield from _folder("tmp", Path(tempfile.gettempdir()), "name another with TMPDIR")
    from tolfl.datasets.loaders import cache_dir

    yield from _folder("cache", cache_dir(), "name another with XDG_CACHE_HOME, or use --data-dir", is_needed=False)


def _open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < 1024:
        todo = f"run: ulimit -n {min(4096, hard) if hard > 0 else 4096}"
        return Finding("limits", "open files", State.WARNING, f"{soft}, too few for a large fleet", todo)
    return Finding("limits", "open files", State.OK, "no limit" if soft == resource.RLIM_INFINITY else f"{soft}")


def _memory(free: int | None) -> Finding:
    if free is None:
        return Finding("limits", "memory", State.NOTE, "not known here", "a device of tolfl up takes about 0.4 GiB")
    found = f"{free / _GIB:.1f} GiB free, room for about {int(free / _DEVICE_BYTES)} devices of tolfl up"
    if free < _DEVICE_BYTES:
        return Finding("limits", "memory", State.PROBLEM, found, "close other programs")
    if free < 3 * _DEVICE_BYTES:
        return Finding("limits", "memory", State.WARNING, found, "close other programs, or run fewer devices")
    return Finding("limits", "memory", State.OK, found)


def free_memory() -> int | None:
    """Return the bytes that programs can still get, also inside a container; None: the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return None
    try:
        group = Path("/sys/fs/cgroup")
        most = int((group / "memory.max").read_text(encoding="ascii"))
        used = int((group / "memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):  # no group of its own, or one without a limit ("max")
        return free
    return min(free, max(0, most - used))


def _folder(name: str, folder: Path, todo: str, is_needed: bool = True) -> Iterator[Finding]:
    """Try to write where a command would, below the first folder that is there; nothing stays."""
    place = folder.expanduser().absolute()
    bad = State.PROBLEM if is_needed else State.WARNING
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
        free = shutil.disk_usage(place).free
    except OSError as error:
        yield Finding("limits", name, bad, f"{folder} cannot be written ({error.strerror})", todo)
        return
    found = f"{folder} can be written, {free / _GIB:.1f} GiB free"
    if free < 0.1 * _GIB:
        yield Finding("limits", name, bad, found, f"make room, or {todo}")
    elif free < _GIB:
        yield Finding("limits", name, State.WARNING, found, f"make room, or {todo}")
    else:
        yield Finding("limits", name, State.OK, found)


# -- terminal ----------------------------------------------------------------------------------------------------


def terminal_findings() -> Iterator[Finding]:
    """Look at where the answers go."""
    if not sys.stdout.isatty():
        yield Finding("terminal", "output", State.OK, "a pipe or file: lines of up to 120 characters, no colour")
    else:
        width = shutil.get_terminal_size().columns
        colour = "without colour" if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else "in colour"
        state, todo = (State.OK, "") if width >= 60 else (State.WARNING, "tables need 60 columns to be read with ease")
        yield Finding("terminal", "output", state, f"{width} columns, {colour}", todo)
    encoding = (sys.stdout.encoding or "ascii").lower()
    if encoding.replace("-", "") != "utf8":
        found = f"{encoding} has not all characters"
        yield Finding("terminal", "letters", State.WARNING, found, "set LANG=C.UTF-8 to see names as they are")
    else:
        yield Finding("terminal", "letters", State.OK, encoding)
