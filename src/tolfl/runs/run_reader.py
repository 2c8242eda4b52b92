"""Records of a run from its folder, simulated or real, finished or growing: each fact once, in order of time.

A simulation writes one file. Real devices write one each; their launcher writes another one, and when they have ended a
file with all messages counted. A device on a machine of its own keeps its file in its state folder, by its own clock;
the folders of several such devices may be copied together. `RunReader` reads all of these.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from tolfl.core.errors import RunDirectoryError, TolFLError
from tolfl.core.records import AlarmSent, AnyRecord, RoundClosed, RunEnded, RunStarted, Scored, decode_records
from tolfl.runs.merged_records import Facts, check_one_run, merged_records, on_one_clock, without_known_adoptions

#: Of a run, or of one device; and what only the launcher of real devices saw.
RECORDS, LAUNCHER = "records.jsonl", "launcher.jsonl"


class RunReader:
    r"""Reads the records of one run, also while it grows; a piece of a line waits for its end.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> line = b'{"kind":"evaluation","time_s":1.5,"round":3,"auroc":0.75}'
    >>> _ = (folder / "records.jsonl").write_bytes(line + b"\n" + b'{"kind":"eval')
    >>> [record.auroc for record in RunReader(folder).read()]
    [0.75]
    """

    def __init__(self, path: Path, name: str | None = None) -> None:
        self.path, self.name = path, name or path.resolve().name
        self.n_starts = 0  #: how often the records were read from their beginning
        self._start_over()

    def _start_over(self) -> None:
        self.n_starts += 1
        self.news: list[AnyRecord] = []  #: every record in the order in which it became known
        self._files: dict[Path, _RecordFile] = {}
        self._facts = Facts()
        self.is_over = False  #: whether nothing more will come
        self.clock = ""  #: whose clock the times are by, where devices have one each

    @property
    def n_unreadable(self) -> int:
        """How many lines are no records that this version knows."""
        return sum(file.n_unreadable for file in self._files.values())

    @property
    def is_of_devices(self) -> bool:
        """Whether devices wrote the records, each what it knows."""
        begun = (
            next((line for line in file.lines if isinstance(line, RunStarted)), None) for file in self._files.values()
        )
        return any(line is not None and line.device is not None for line in begun)

    @property
    def records(self) -> list[AnyRecord]:
        """The records so far in order of time; a round stands there once, with its messages if they were counted."""
        latest = {line.version: line for line in self.news if isinstance(line, RoundClosed)}
        once = [line for line in self.news if not isinstance(line, RoundClosed) or latest[line.version] is line]
        return sorted(once, key=lambda line: line.time_s)

    def read(self) -> list[AnyRecord]:
        """Return the records that are new since the last call; all of them, where the run began anew."""
        if any(file.is_another for file in self._files.values()):
            self._start_over()
        n_before = len(self.news)
        devices, has_one_clock = device_files(self.path)
        whole = self.path / RECORDS if self.path.is_dir() else self.path
        fresh = self._new(devices or [whole])
        if any(isinstance(line, RunStarted) for line in fresh):
            check_one_run((self._place(file), file.lines) for file in self._files.values())
        if devices and has_one_clock:
            fresh += self._new([self.path / LAUNCHER])
            self.clock = "times from the start of the processes"
            self._add(sorted(without_known_adoptions(fresh), key=lambda line: line.time_s))
            self._add(line for line in self._new([whole]) if isinstance(line, RoundClosed | RunEnded | Scored))
        elif devices or self.is_of_devices:
            if fresh:
                n_before = self._merge([self._files[path] for path in devices or [whole]])
        else:
            self._add(fresh)
        self.is_over = self.is_over or any(isinstance(line, Scored) for line in self.news[n_before:])
        bad = next((file for file in self._files.values() if file.problem), None)
        if bad is not None and not any(file.lines for file in self._files.values()):  # else bad lines are counted
            raise RunDirectoryError(self.path, f"{bad.path.name} has no record that can be read ({bad.problem})")
        return self.news[n_before:]

    def _place(self, file: _RecordFile) -> str:
        return file.path.name if file.path == self.path else str(file.path.parent.relative_to(self.path))

    def _new(self, paths: Sequence[Path]) -> list[AnyRecord]:
        return [line for path in paths for line in self._files.setdefault(path, _RecordFile(path)).read()]

    def _add(self, lines: Iterable[AnyRecord]) -> None:
        self.news += filter(None, map(self._facts.take, lines))

    def _merge(self, files: Sequence[_RecordFile]) -> int:
        """Bring files by different clocks together; return how many records are as they were known before."""
        files = _one_per_device(self.path, files)
        lines, self.clock = on_one_clock([file.lines for file in files])
        before, self.news = self.news, merged_records(lines)
        last = next((line for line in reversed(lines) if isinstance(line, RunEnded)), None)
        # Whoever was killed writes no end, and is not among those whom the others name as left.
        self.is_over = last is not None and all(
            file.has_end or file.device not in {None, *last.survivors} for file in files if file.lines
        )
        if last is not None and self.is_over:
            self.news.append(msgspec.structs.replace(last, device=None))
        if self.news[: len(before)] == before:
            return len(before)
        self.n_starts += 1
        return 0


class _RecordFile:
    """One file of records, and how far it has been read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[AnyRecord] = []
        self.n_unreadable = 0
        self.problem = ""  #: of the first line that could not be read
        self._n_bytes = self._inode = 0

    @property
    def device(self) -> int | None:
        """The device that wrote it; None: not known."""
        return next((line.device for line in self.lines if isinstance(line, RunStarted)), None)

    @property
    def has_end(self) -> bool:
        """Whether its device has ended the run; it may watch, and record alarms, after that."""
        last = next((line for line in reversed(self.lines) if not isinstance(line, AlarmSent)), None)
        return isinstance(last, RunEnded)

    def read(self) -> list[AnyRecord]:
        """Return the new records; a line without its end waits for it."""
        try:
            with self.path.open("rb") as file:
                self._inode = os.fstat(file.fileno()).st_ino
                file.seek(self._n_bytes)
                content = file.read()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise RunDirectoryError(self.path, f"cannot be read ({error.strerror})") from None
        whole = content[: content.rfind(b"\n") + 1]
        self._n_bytes += len(whole)
        fresh = list(self._decoded(whole.splitlines()))
        self.lines += fresh
        return fresh

    def _decoded(self, lines: Iterable[bytes]) -> Iterator[AnyRecord]:
        for line in lines:
            try:
                yield from decode_records([line])
            except TolFLError as error:
                self.n_unreadable += 1  # counted in `n_unreadable`; one bad line must not hide the others
                self.problem = self.problem or str(error).partition(": ")[2]

    @property
    def is_another(self) -> bool:
        """Whether the file was written anew, as a run that is resumed does, or replaced."""
        try:
            now = self.path.stat()
        except FileNotFoundError:
            return self._n_bytes > 0
        return self._n_bytes > 0 and (now.st_size < self._n_bytes or now.st_ino != self._inode)


# -- which files -------------------------------------------------------------------------------------------------


def device_files(path: Path) -> tuple[list[Path], bool]:
    """Return the files of several devices, and whether their launcher gave them one clock; none: a run in one file."""
    if not path.is_dir():
        return [], True
    launched = sorted(path.glob(f"devices/*/{RECORDS}"))
    if launched:
        return launched, (path / LAUNCHER).exists() or (path / "spec.toml").exists()
    if (path / RECORDS).exists():
        return [], True
    copied = sorted(path.glob(f"*/{RECORDS}"))
    begun = [line for line in map(_first_line, copied) if line is not None]
    if not begun or any(line.device is None for line in begun):
        return [], True  # no run, or several, each in a folder of its own
    return copied, False  # what is no record in any of them is counted


def _first_line(file: Path) -> RunStarted | None:
    """Return a file's first record, which has the device's id; None: it is still empty."""
    try:
        with file.open("rb") as content:
            first = next(decode_records([content.readline()]), None)
    except (OSError, TolFLError):
        return None
    return first if isinstance(first, RunStarted) else None


def _one_per_device(folder: Path, files: Sequence[_RecordFile]) -> list[_RecordFile]:
    """Return one file per device: of two copies of one file the longer one; two that differ are two runs."""
    found: dict[int | None, _RecordFile] = {}
    for file in files:
        devices = dict.fromkeys(line.device for line in file.lines if isinstance(line, RunStarted))
        if len(devices) > 1:
            which = " and ".join(map(str, devices))
            raise RunDirectoryError(file.path, f"has records of devices {which}; keep each in a folder of its own")
        device = next(iter(devices), None)
        other = found.get(device)
        if other is None or device is None:
            found[device if device is not None else -1 - len(found)] = file
            continue
        n_common = min(len(file.lines), len(other.lines))
        if file.lines[:n_common] != other.lines[:n_common]:
            names = " and ".join(str(one.path.relative_to(folder)) for one in (other, file))
            raise RunDirectoryError(folder, f"holds two different runs of device {device} ({names}); keep one of them")
        found[device] = max(file, other, key=lambda one: len(one.lines))
    return list(found.values())


def read_records(path: Path) -> list[AnyRecord]:
    """Read a record file, or the one of a run directory; a piece of a line at its end is none."""
    file = path / RECORDS if path.is_dir() else path
    try:
        content = file.read_bytes()
    except OSError as error:
        raise RunDirectoryError(path, f"has no records that can be read ({error.strerror})") from None
    return list(decode_records(content[: content.rfind(b"\n") + 1].splitlines(), source=str(file)))


def device_records(run: Path) -> list[AnyRecord]:
    """Return what the devices of a run on this machine and its launcher wrote, in order of time."""
    files = [*sorted(run.glob(f"devices/*/{RECORDS}")), run / LAUNCHER]
    lines = [line for file in files if file.exists() for line in read_records(file)]
    return sorted(lines, key=lambda line: line.time_s)
