"""Captures that are still being made: standard input, a file that grows and is rotated, an interface of this machine.

All are `Readable`: `some` waits at most a quarter of a second, so that a reader notices silence, too.
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
from tolfl.signals.pcap import CaptureSummary

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
LOST_BY_CAPTURE = "lost by the capture program"


class PipeStream:
    """Bytes of a pipe, as they come."""

    is_live = True

    def __init__(self, stream: IO[bytes], name: str) -> None:
        self.path, self.is_over = Path(name), False
        self._stream, self._is_buffered = stream, True

    def some(self, n_bytes: int) -> bytes:
        """Return what there is; nothing if nothing came for a while, or at the end."""
        if not self._is_buffered and not select.select([self._stream], [], [], WAIT_S)[0]:
            return b""
        found = self._stream.read1(n_bytes)  # type: ignore[attr-defined]
        # Bytes that somebody has peeked at are not the descriptor's any more; one large read takes them all.
        self._is_buffered = self._is_buffered and n_bytes < len(found) + 1
        self.is_over = not found
        if 0 < len(found) < min(n_bytes, _FEW_BYTES):
            time.sleep(_POOL_S)
        return bytes(found)


class FollowedFile:
    """A capture file that grows; it is over when a file that follows it is there, and this one rests."""

    is_live = True

    def __init__(self, path: Path) -> None:
        self.path, self.is_over = path, False
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise DataFileError(path, f"cannot be read ({error.strerror}); check the path") from None
        self._grew_s = time.monotonic()

    def some(self, n_bytes: int) -> bytes:
        """Return what has been written since; nothing if that is nothing."""
        if found := self._file.read(n_bytes):
            self._grew_s = time.monotonic()
            return found
        self.is_over = self._is_replaced() or (
            time.monotonic() - self._grew_s > _RESTS_S and following(self.path) is not None
        )
        if not self.is_over:
            time.sleep(WAIT_S)
        return b""

    def _is_replaced(self) -> bool:
        """Return whether the file was cut, or another one has its name."""
        try:
            now = self.path.stat()
        except OSError:
            return False  # between two files
        mine = os.fstat(self._file.fileno())
        return now.st_ino != mine.st_ino or now.st_size < self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


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


def followed_files(path: Path) -> Iterator[FollowedFile]:
    """Yield a file and those that follow it, one after the other, without end."""
    while True:
        stream = FollowedFile(path)
        try:
            yield stream
        finally:
            stream.close()
        path = following(path) or path


class InterfaceStream(PipeStream):
    """What a child captures on an interface: dumpcap, or else tcpdump; with the rights of this process."""

    def __init__(self, child: subprocess.Popen[bytes], stderr: IO[bytes], name: str, summary: CaptureSummary) -> None:
        assert child.stdout is not None
        super().__init__(child.stdout, name)
        self._is_buffered = False
        self._child, self._stderr, self._summary, self._name = child, stderr, summary, name
        self._is_tcpdump = "tcpdump" in Path(str(child.args[0])).name  # type: ignore[index]
        self._drops_read_s = time.monotonic()

    def some(self, n_bytes: int) -> bytes:
        """Return what was captured; the child's end is an error with its own words."""
        found = super().some(n_bytes)
        if self.is_over:
            self._child.wait()
            self.count_drops()
            raise DataFileError(Path(self._name), self._ending())
        if time.monotonic() - self._drops_read_s > _DROPS_EVERY_S:
            self._drops_read_s = time.monotonic()
            if self._is_tcpdump:
                self._child.send_signal(signal.SIGUSR1)
            self.count_drops()
        return found

    def count_drops(self) -> None:
        """Count the packets that the child reports as lost: the last number that it has printed."""
        for line in reversed(self._words().splitlines()):
            if found := next((match for one in _DROPPED if (match := one.search(line))), None):
                if n_lost := int(found["n"]):
                    self._summary.left_out[LOST_BY_CAPTURE] = n_lost
                return

    def _words(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace")

    def _ending(self) -> str:
        words = " ".join(self._words().split())
        program, status = Path(str(self._child.args[0])).name, self._child.returncode  # type: ignore[index]
        if "ermission" in words:
            advice = f"give it the right to capture: setcap cap_net_raw,cap_net_admin+ep $(which {program}), or be root"
        elif any(
            word in words for word in ("No such device", "SIOCGIFHWADDR", "no such interface", "There is no device")
        ):
            advice = f"check the name: {program} -D lists the interfaces"
        else:
            advice = "check that the interface is up, and start again"
        return f"{program} ended with status {status} ({words[-300:]}); {advice}"


@contextmanager
def captured_on(interface: str, summary: CaptureSummary) -> Iterator[InterfaceStream]:
    """Capture on an interface until the context ends; the child ends with it, whatever happens."""
    name = f"interface {interface}"
    if not re.fullmatch(r"[A-Za-z0-9_.:@-]{1,64}", interface) or interface.startswith("-"):
        raise DataFileError(Path(name), "is no name of an interface; ip link lists those of this machine")
    if program := shutil.which("dumpcap"):
        command = [program, "-i", interface, "-s", str(_SNAP_BYTES), "-q", "-w", "-"]
    elif program := shutil.which("tcpdump"):
        command = [program, "-i", interface, "-s", str(_SNAP_BYTES), "-U", "--immediate-mode", "-w", "-"]
    else:
        raise DataFileError(Path(name), "there is neither dumpcap nor tcpdump; install one of them")
    with tempfile.TemporaryFile() as stderr:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            preexec_fn=_ending_with_parent(),  # noqa: PLW1509  (one system call, resolved before the fork)
        )
        try:
            yield InterfaceStream(child, stderr, name, summary)
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
