"""A Flower app in a process and an environment of its own: it may hold the interpreter's lock, fork, print or crash.

One process for the whole run. Calls and answers are msgpack over a pipe, each with its length before it. A process that
ends or hangs is replaced by another, which needs nothing but the state.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, cast

import msgspec
import numpy as np

from tolfl.core.errors import TolFLError
from tolfl.learners import State

OLDEST_FLWR = (1, 22)  #: the first whose strategies get messages
_INSIDE = Path(__file__).with_name("inside") / "run.py"
_START_S = 600.0  #: importing an app takes seconds, its first download of data minutes
_LOOK_S = 0.5  #: how often a process that says nothing is looked at
_PIPE_BYTES = 2**20  #: that a pipe may hold: the most that Linux gives to every user
#: Bits of results must not depend on the number of cores; no statistics go to Flower's makers.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "FLWR_TELEMETRY_ENABLED": "0",
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
}
#: Of the device's own environment: they would send the app's interpreter to the wrong libraries.
_NOT_FOR_THE_APP = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")


class FlowerAppError(TolFLError, RuntimeError):
    """A Flower app cannot run on a fleet, or failed; the sentence names it."""

    ends_run = True  #: as it ends a run of Flower


class AppEndedError(FlowerAppError):
    """The app's process ended or gave no answer in time; another can take its place."""


class AppDescription(msgspec.Struct, frozen=True):
    """What an app's ServerApp asks for."""

    flwr: str  #: version
    strategy: str  #: name of its class
    num_rounds: int
    evaluates: bool  #: each round of training is followed by one of evaluation
    gathers: bool  #: the strategy wants every reply, not their mean
    min_nodes: int  #: fewer do not train
    n_numbers: int  #: of the model; 0: a client says so later
    n_bytes: int
    timeout_s: float  #: how long it waits for a reply


class AppProcess:
    """Asks an app's process. Calls come from one thread at a time; while one waits, the event loop goes on."""

    def __init__(self, name: str, python: Path, settings: dict[str, Any], with_log: bool = False) -> None:
        self._name, self._python, self._settings = name, python, settings
        self._log = _temporary_log() if with_log else None
        self._process: subprocess.Popen[bytes] | None = None
        self._sent: State | None = None  #: the state that the process has
        self._lock = threading.RLock()
        self.saved: dict[str, dict[str, bytes]] = {}  #: what the end of `main` wrote, by the digest of the last state
        self._end: Callable[[], object] = lambda: None
        self.description = self._begin()

    def _begin(self) -> AppDescription:
        with self._output() as output:
            try:
                self._process = subprocess.Popen(
                    [str(self._python), str(_INSIDE)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=output,
                    env={**{k: v for k, v in os.environ.items() if k not in _NOT_FOR_THE_APP}, **_ENVIRONMENT},
                    start_new_session=True,  # Ctrl-C is for the device; and its workers end with it
                )
            except OSError as error:
                raise FlowerAppError(f"{self._name}: {self._python} cannot be started ({error.strerror})") from None
        self._end = weakref.finalize(self, _end, self._process)  # with this object, or with Python
        _widen(self._process)
        self._sent = None
        try:
            found = self._call("begin", self._settings, _START_S)
        except AppEndedError as error:
            raise FlowerAppError(f"{error}; {self._why_not()}") from None
        except FlowerAppError:
            self.close()
            raise
        return msgspec.convert(found, AppDescription)

    def _output(self) -> IO[bytes]:
        """Return where the app's output goes: to the device's own, or to a file of its own."""
        if self._log is None:
            return os.fdopen(os.dup(2), "wb")
        return self._log.open("ab")

    def _why_not(self) -> str:
        """Say why an interpreter cannot run the app at all."""
        probe = "import importlib.metadata as m; print(m.version('flwr'))"
        done = subprocess.run([str(self._python), "-c", probe], capture_output=True, text=True, check=False)
        version = done.stdout.strip()
        if not version:
            return f"{self._python} has no flwr: install the app there, or name its interpreter with --python"
        if [int(part) for part in re.findall(r"\d+", version)[:2]] < list(OLDEST_FLWR):
            oldest = ".".join(map(str, OLDEST_FLWR))
            return f"{self._python} has flwr {version}, and this needs {oldest} or newer: pip install -U flwr"
        if self._log is not None:
            atexit.unregister(self._log.unlink)
        return f"see what it printed{f' in {self._log}' if self._log else ''} (flwr {version})"

    # -- calls ----------------------------------------------------------------------------------------------------

    def ask(self, name: str, arguments: dict[str, Any], timeout_s: float, state: State) -> Any:
        """Return an answer of the process, given a state; `AppEndedError` if the process ends or takes too long."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self.close()
                self._begin()
            found = self._call(name, arguments, timeout_s, self._news_of(state))
            self._sent = state
            return found

    def _news_of(self, state: State) -> dict[str, Any] | None:
        """Return what the process lacks of a state; nothing, if it has it. Until it has answered, it may have none."""
        sent, self._sent = self._sent, None
        if state is sent:
            return None
        before = sent or {}
        news = {key: array for key, array in state.items() if before.get(key) is not array}
        return {"kept": [key for key in state if key not in news], "news": plain_state(news)}

    def interrupt(self) -> None:
        """End what the process is asked at the moment, if anything: the round is being closed without it."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
        elif (process := self._process) is not None:
            os.killpg(process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the process, and whatever it started."""
        if self._process is not None:
            self._process = None
            self._end()

    def _call(self, name: str, arguments: dict[str, Any], timeout_s: float, state: dict[str, Any] | None = None) -> Any:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        data = msgspec.msgpack.encode([name, arguments, state])
        try:
            process.stdin.write(struct.pack("<Q", len(data)))
            process.stdin.write(data)
            process.stdin.flush()
        except OSError:
            raise self._ended() from None
        deadline_s = time.monotonic() + timeout_s
        length = struct.unpack("<Q", self._read(process, 8, deadline_s, timeout_s))[0]
        answer = msgspec.msgpack.decode(self._read(process, length, deadline_s, timeout_s), strict=False)
        if "found" in answer:
            return answer["found"]
        if "refused" in answer:
            raise FlowerAppError(answer["refused"])
        raise FlowerAppError(f"{self._name}: {name} failed ({answer['failed']})")

    def _read(self, process: subprocess.Popen[bytes], n_bytes: int, deadline_s: float, timeout_s: float) -> bytearray:
        assert process.stdout is not None
        descriptor = process.stdout.fileno()
        found = bytearray()
        while len(found) < n_bytes:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                self.close()
                raise AppEndedError(f"gave no answer within {timeout_s:g} s, and its process was ended")
            is_there, _, _ = select.select([descriptor], [], [], min(left_s, _LOOK_S))
            if not is_there:
                # A forked worker may hold the pipe open after the process has ended.
                if process.poll() is not None:
                    raise self._ended()
                continue
            piece = os.read(descriptor, min(n_bytes - len(found), 1 << 20))
            if not piece:
                raise self._ended()
            found += piece
        return found

    def _ended(self) -> AppEndedError:
        process = self._process
        code = None if process is None else process.wait()
        self.close()
        how = "" if code is None else f" by signal {-code}" if code < 0 else f" with exit code {code}"
        return AppEndedError(f"the process of {self._name} ended{how}")


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()


def _widen(process: subprocess.Popen[bytes]) -> None:
    """Let the pipes hold more of a model, where the system allows it: the two processes then take fewer turns."""
    if sys.platform == "linux":
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):  # there is a limit for all pipes of a user
                fcntl.fcntl(cast("IO[bytes]", pipe), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def plain_state(state: State) -> dict[str, tuple[str, memoryview]]:
    """Return arrays of a state as they are sent to the process."""
    return {key: (array.dtype.str[1:], np.ascontiguousarray(array).view(np.uint8).data) for key, array in state.items()}


def _temporary_log() -> Path:
    """Return a file for what an app prints that no device runs; it goes with this process, unless an error names it."""
    descriptor, path = tempfile.mkstemp(prefix="tolfl-flower-", suffix=".log")
    os.close(descriptor)
    log = Path(path)
    atexit.register(log.unlink, missing_ok=True)
    return log
