"""Captures that are still being made: standard input, a file that grows and is rotated, an interface of this machine.

All are pieces of bytes as they come; an empty one says that nothing came for a quarter of a second.
"""

from __future__ import annotations

import ctypes
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tolfl.core.errors import DataFileError
from tolfl.signals.pcap import BLOCK_BYTES, CaptureSummary

WAIT_S = 0.25  #: for bytes; then silence is reported
_POOL_S, _FEW_BYTES = 0.05, 32_768  #: bytes that trickle are read twenty times a second, whatever their rate
_SNAP_BYTES = 256  #: headers, and the names in beacons
_DROPS_EVERY_S = 60.0
_RESTS_S = 1.0  #: a file that does not grow for so long may have a successor
_DEATH_SIGNAL = 1  #: prctl(PR_SET_PDEATHSIG)
_DROPPED = (
    re.compile(r"(?P<n>\d+) packets? dropped by (kernel|interface)"),  # tcpdump
    re.compile(r"Packets received/dropped on interface .*: \d+/(?P<n>\d+) "),  # dumpcap
)
_NUMBERED = re.compile(r"(?P<stem>.*)_(?P<number>\d{5})(_\d{14})?(?P<ending>\.[a-z.]+)?")
_LOST_BY_CAPTURE = "lost by the capture program"


def pipe_chunks(stream: IO[bytes], *, is_peeked: bool = True) -> Iterator[bytes]:
    """Yield the bytes of a pipe; those that somebody has peeked at are not the descriptor's any more."""
    has_descriptor = _has_descriptor(stream)
    while True:
        if has_descriptor and not is_peeked and not select.select([stream], [], [], WAIT_S)[0]:
            yield b""
            continue
        chunk = stream.read1(BLOCK_BYTES)  # type: ignore[attr-defined]
        if not chunk:
            return
        is_peeked = is_peeked and len(chunk) == BLOCK_BYTES
        if len(chunk) < _FEW_BYTES:
            time.sleep(_POOL_S)
        yield bytes(chunk)


def _has_descriptor(stream: IO[bytes]) -> bool:
    """Return whether one can wait for a stream; what is unpacked on the way is read without."""
    try:
        return stream.fileno() >= 0
    except OSError:
        return False


def followed_files(path: Path) -> Iterator[tuple[Path, Iterator[bytes]]]:
    """Yield a file that grows and those that follow it, one after the other, without end."""
    while True:
        yield path, _growing(path)
        path = following(path) or path


def _growing(path: Path) -> Iterator[bytes]:
    """Yield a file as it grows; it is over when a file that follows it exists, and this one grows no more."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise DataFileError(path, f"cannot be read ({error.strerror}); check the path") from None
    with file:
        grew_s = time.monotonic()
        while True:
            if chunk := file.read(BLOCK_BYTES):
                grew_s = time.monotonic()
            elif _is_replaced(path, file) or (time.monotonic() - grew_s > _RESTS_S and following(path) is not None):
                return
            else:
                time.sleep(WAIT_S)
            yield chunk


def _is_replaced(path: Path, file: IO[bytes]) -> bool:
    """Return whether a file was cut, or another one has its name."""
    try:
        now = path.stat()
    except OSError:
        return False  # between two files
    return now.st_ino != os.fstat(file.fileno()).st_ino or now.st_size < file.tell()


def following(path: Path) -> Path | None:
    """Return the file that follows another, as dumpcap (`x_00002_...`) and tcpdump (`x.pcap1`) name them."""
    if match := _NUMBERED.fullmatch(path.name):
        later = [
            (int(found["number"]), one)
            for one in path.parent.iterdir()
            if (found := _NUMBERED.fullmatch(one.name))
            and (found["stem"], found["ending"]) == (match["stem"], match["ending"])
            and int(found["number"]) > int(match["number"])
        ]
        return min(later)[1] if later else None
    digits = re.search(r"\d*$", path.name)
    number = digits.group() if digits else ""
    stem = path.name[: len(path.name) - len(number)]
    candidate = path.with_name(f"{stem}{int(number or 0) + 1}")
    return candidate if candidate.exists() else None


def _captured(
    child: subprocess.Popen[bytes], stderr: IO[bytes], name: Path, summary: CaptureSummary
) -> Iterator[bytes]:
    """Yield what a child captures; its end is an error with its own words."""
    assert child.stdout is not None
    program, drops_read_s = Path(str(child.args[0])).name, time.monotonic()  # type: ignore[index]
    for chunk in pipe_chunks(child.stdout, is_peeked=False):
        yield chunk
        if time.monotonic() - drops_read_s > _DROPS_EVERY_S:
            drops_read_s = time.monotonic()
            if program == "tcpdump":
                child.send_signal(signal.SIGUSR1)
            _count_drops(_printed(stderr), summary)
    status, words = child.wait(), _printed(stderr)
    _count_drops(words, summary)
    words = " ".join(words.split())
    if "ermission" in words:
        advice = f"give it the right to capture: setcap cap_net_raw,cap_net_admin+ep $(which {program}), or be root"
    elif any(one in words for one in ("No such device", "SIOCGIFHWADDR", "no such interface", "There is no device")):
        advice = f"check the name: {program} -D lists the interfaces"
    else:
        advice = "check that the interface is up, and start again"
    raise DataFileError(name, f"{program} ended with status {status} ({words[-300:]}); {advice}")


def _printed(stderr: IO[bytes]) -> str:
    stderr.seek(0)
    return stderr.read().decode(errors="replace")


def _count_drops(words: str, summary: CaptureSummary) -> None:
    """Count the packets that a child reports as lost: the last number that it has printed."""
    for line in reversed(words.splitlines()):
        if found := next((match for one in _DROPPED if (match := one.search(line))), None):
            if n_lost := int(found["n"]):
                summary.left_out[_LOST_BY_CAPTURE] = n_lost
            return


@contextmanager
def captured_on(interface: str, summary: CaptureSummary) -> Iterator[tuple[Path, Iterator[bytes]]]:
    """Capture on an interface until the context ends; the child ends with it, whatever happens."""
    name = Path(f"interface {interface}")
    if not re.fullmatch(r"[A-Za-z0-9_.:@-]{1,64}", interface) or interface.startswith("-"):
        raise DataFileError(name, "is no name of an interface; ip link lists those of this machine")
    if program := shutil.which("dumpcap"):
        command = [program, "-i", interface, "-s", str(_SNAP_BYTES), "-q", "-w", "-"]
    elif program := shutil.which("tcpdump"):
        command = [program, "-i", interface, "-s", str(_SNAP_BYTES), "-U", "--immediate-mode", "-w", "-"]
    else:
        raise DataFileError(name, "there is neither dumpcap nor tcpdump; install one of them")
    with tempfile.TemporaryFile() as stderr:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            preexec_fn=_ending_with_parent(),  # noqa: PLW1509  (one system call, resolved before the fork)
        )
        try:
            yield name, _captured(child, stderr, name, summary)
        finally:
            child.terminate()
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            assert child.stdout is not None
            child.stdout.close()


def _ending_with_parent() -> Callable[[], None] | None:
    """Return what makes a child end with its parent: in silence it would not notice that its reader is gone."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl

    def ask() -> None:
        prctl(_DEATH_SIGNAL, signal.SIGTERM)

    return ask
