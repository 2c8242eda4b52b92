"""Feeds: the lines of a run directory, also while the run goes on.

A simulation writes one file. Real devices write one each, the launcher another, and one file with all messages counted
appears when they have ended; a feed reads them all, and what it hands on looks the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tolfl.core.errors import RunDirectoryError, TolFLError
from tolfl.core.records import AnyRecord, Scored, decode_records, encode_records
from tolfl.runs.records import LAUNCHER, RECORDS, Story


class Tail:
    """The whole lines that came to a file since the last look."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._n_read = 0

    def read(self) -> list[bytes]:
        """Return the new lines; a line without its end waits for it."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._n_read)
                content = file.read()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise RunDirectoryError(self.path, f"cannot be read ({error.strerror})") from None
        whole = content[: content.rfind(b"\n") + 1]
        self._n_read += len(whole)
        return whole.splitlines()

    @property
    def has_shrunk(self) -> bool:
        """Whether the file was written anew, as a run that is resumed does."""
        try:
            return self.path.stat().st_size < self._n_read
        except FileNotFoundError:
            return self._n_read > 0


class Feed:
    r"""One run: its lines so far as JSON, in the order of their news.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> line = b'{"kind":"evaluation","time_s":1.5,"round":3,"auroc":0.75}'
    >>> _ = (folder / "records.jsonl").write_bytes(line + b"\n" + b'{"kind":"eval')
    >>> feed = Feed(folder)
    >>> feed.look()
    >>> len(feed.lines)
    1
    """

    def __init__(self, path: Path, name: str | None = None) -> None:
        self.path, self.name = path, name or path.name
        self.n_starts = 0  #: how often it was read from its beginning
        self._start_over()

    def _start_over(self) -> None:
        self.n_starts += 1
        self.lines: list[bytes] = []
        self.n_unreadable = 0  #: lines that are no records of this version
        self.is_over = False  #: whether the last line was read
        self._story = Story()
        self._tails: dict[Path, Tail] = {}

    def look(self) -> None:
        """Read what is new; a run that began anew is read from its beginning."""
        if any(tail.has_shrunk for tail in self._tails.values()):
            self._start_over()
        devices = sorted(self.path.glob(f"devices/*/{RECORDS}")) if self.path.is_dir() else []
        one_file = self.path / RECORDS if self.path.is_dir() else self.path
        if not devices:
            self._take_in(map(self._story.hear, self._new([one_file])))
            return
        told = sorted(self._new([*devices, self.path / LAUNCHER]), key=lambda line: line.time_s)
        self._take_in(map(self._story.hear, told))
        self._take_in(map(self._story.hear_total, self._new([one_file])))

    def _new(self, paths: Sequence[Path]) -> Iterator[AnyRecord]:
        for path in paths:
            for line in self._tails.setdefault(path, Tail(path)).read():
                try:
                    yield from decode_records([line])
                except TolFLError:
                    self.n_unreadable += 1  # the page says how many; one bad line must not hide the others

    def _take_in(self, news: Iterable[AnyRecord | None]) -> None:
        for line in news:
            if line is not None:
                self.lines.append(encode_records([line]).rstrip())
                self.is_over = self.is_over or isinstance(line, Scored)


def feeds_of(path: Path, is_following: bool) -> list[Feed]:
    """Return the feed of a run directory, or one for each of its repetitions.

    Whoever follows may come before the first line is written.
    """
    repetitions = sorted(path.glob("repetition-*"), key=lambda folder: (len(folder.name), folder.name))
    if repetitions:
        return [Feed(folder, f"{path.name}/{folder.name}") for folder in repetitions]
    if not path.exists():
        raise RunDirectoryError(path, "does not exist; name a folder that tolfl simulate or tolfl up wrote")
    has_lines = path.is_file() or (path / RECORDS).is_file() or any(path.glob(f"devices/*/{RECORDS}"))
    if not has_lines and not is_following:
        raise RunDirectoryError(path, "has no records; wait for its first round with --follow")
    return [Feed(path)]
