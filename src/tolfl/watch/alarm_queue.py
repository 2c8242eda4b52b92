"""One bounded queue on disk for all sinks: stored events are sent at least once, however the process ends.

SQLite with a write-ahead log, every transaction on the disk before it counts. One cursor per sink; an event goes when
all sinks are past it. Events, the memory of the groups that gave them, and how far the source was watched change
together: after a kill, watching goes on from the last event, and gives the following ones their old ids.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Condition

import msgspec

from tolfl.core.errors import RunDirectoryError
from tolfl.watch.alarm_events import AlarmEvent, Memory

MAX_EVENTS = 10_000
N_LATEST = 20  #: events that are kept to be shown
_MAX_UNWRITTEN = 1000  #: events that wait in memory for a disk with room
_TABLES = """
CREATE TABLE IF NOT EXISTS event(number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, level INTEGER, body BLOB);
CREATE TABLE IF NOT EXISTS sink(name TEXT PRIMARY KEY, done INTEGER DEFAULT 0, dropped INTEGER DEFAULT 0);
CREATE TABLE IF NOT EXISTS recent(number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, unix_s REAL, body BLOB);
CREATE TABLE IF NOT EXISTS memory(source TEXT PRIMARY KEY, body BLOB);
"""


class AlarmQueue:
    """Events on their way; `put` by the watcher, `waiting` and `done` by a thread of each sink.

    Parameters
    ----------
    folder
        Where `alarms.sqlite` is, or will be.
    sinks
        Their names; unsent events of a sink that is not named again are dropped.
    max_events
        Of more, the oldest of the least severity is dropped, and counted for every sink that had not received it.
    max_pages
        Of the database, 4 KiB each: for tests of a full disk. (default: no limit)
    """

    def __init__(
        self, folder: Path, sinks: Iterable[str], max_events: int = MAX_EVENTS, max_pages: int | None = None
    ) -> None:
        self._path, self._sinks, self._max = folder / "alarms.sqlite", tuple(sinks), max_events
        self._max_pages = max_pages
        self.arrived = Condition()
        self.trouble = ""
        self._unwritten: list[AlarmEvent] = []  #: while the disk is full
        self._lost: dict[str, int] = {}  #: of those, what had to be dropped
        self._done: dict[str, int] = {}  #: cursors that the disk had no room for
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with self._open() as database:
                database.execute("PRAGMA journal_mode=WAL")
                database.executescript(_TABLES)
                newest = _one(database.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name='event'"))
                database.execute("BEGIN IMMEDIATE")
                for (name,) in database.execute("SELECT name FROM sink").fetchall():
                    if name not in self._sinks:
                        database.execute("DELETE FROM sink WHERE name=?", (name,))
                for name in self._sinks:  # a new sink begins with what comes
                    database.execute("INSERT OR IGNORE INTO sink(name, done) VALUES(?, ?)", (name, newest))
                database.execute("COMMIT")
        except (OSError, sqlite3.Error) as error:
            raise RunDirectoryError(folder, f"alarms.sqlite cannot be used ({error}); choose another folder") from None

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open the database until the context ends; a transaction that was not committed is undone."""
        database = sqlite3.connect(self._path, timeout=30, isolation_level=None)
        with closing(database):
            database.execute("PRAGMA synchronous=FULL")
            if self._max_pages is not None:
                database.execute(f"PRAGMA max_page_count={self._max_pages}")
            yield database

    def put(self, events: list[AlarmEvent], source: str, memory: Memory) -> None:
        """Store events with the state of their groups; on a full disk they wait in memory, as `trouble` reports."""
        waiting = [*self._unwritten, *events]
        try:
            with self._open() as database:
                database.execute("BEGIN IMMEDIATE")
                for event in waiting:
                    body = msgspec.json.encode(event)
                    database.execute(
                        "INSERT OR IGNORE INTO event(id, level, body) VALUES(?,?,?)", (event.id, event.level, body)
                    )
                    row = (event.id, time.time(), body)
                    database.execute("INSERT OR IGNORE INTO recent(id, unix_s, body) VALUES(?,?,?)", row)
                database.execute("DELETE FROM recent WHERE number <= (SELECT max(number) FROM recent) - ?", (N_LATEST,))
                database.execute("INSERT OR REPLACE INTO memory VALUES(?,?)", (source, msgspec.json.encode(memory)))
                self._bound(database)
                for name, count in self._lost.items():
                    database.execute("UPDATE sink SET dropped = dropped + ? WHERE name=?", (count, name))
                database.execute("COMMIT")
        except sqlite3.Error as error:
            self._unwritten = waiting[-_MAX_UNWRITTEN:]
            if n_lost := len(waiting) - len(self._unwritten):
                self._lost = {name: self._lost.get(name, 0) + n_lost for name in self._sinks}
            self.trouble = f"{self._path}: alarms cannot be stored ({error}); make room, they wait in memory until then"
            return
        self.trouble, self._unwritten, self._lost = "", [], {}
        with self.arrived:
            self.arrived.notify_all()

    def retry(self, source: str, memory: Memory) -> None:
        """Store what waits for a disk with room."""
        if self._unwritten:
            self.put([], source, memory)

    def _bound(self, database: sqlite3.Connection) -> None:
        n_over = _one(database.execute("SELECT count(*) FROM event")) - self._max
        if n_over <= 0:
            return
        oldest = database.execute("SELECT number FROM event ORDER BY level, number LIMIT ?", (n_over,)).fetchall()
        for (number,) in oldest:
            database.execute("UPDATE sink SET dropped = dropped + 1 WHERE done < ?", (number,))
            database.execute("DELETE FROM event WHERE number = ?", (number,))

    def memory(self, source: str) -> Memory:
        """Return the state of a source's groups at their last event, or when watching was stopped."""
        with self._open() as database:
            found = database.execute("SELECT body FROM memory WHERE source=?", (source,)).fetchone()
        return Memory() if found is None else msgspec.json.decode(found[0], type=Memory)

    def waiting(self, sink: str, most: int = 100) -> list[tuple[int, AlarmEvent]]:
        """Return events that a sink has not received, with their numbers, the oldest first."""
        with self._open() as database:
            done = _one(database.execute("SELECT done FROM sink WHERE name=?", (sink,)))
            found = database.execute(
                "SELECT number, body FROM event WHERE number > ? ORDER BY number LIMIT ?",
                (max(done, self._done.get(sink, 0)), most),
            ).fetchall()
        return [(number, msgspec.json.decode(body, type=AlarmEvent)) for number, body in found]

    def done(self, sink: str, number: int) -> None:
        """Note that a sink has received all up to an event; on a full disk, until the process ends."""
        try:
            with self._open() as database:
                database.execute("BEGIN IMMEDIATE")
                database.execute("UPDATE sink SET done = max(done, ?) WHERE name=?", (number, sink))
                database.execute("DELETE FROM event WHERE number <= (SELECT min(done) FROM sink)")
                database.execute("COMMIT")
        except sqlite3.Error:
            self._done[sink] = number

    def latest(self) -> list[tuple[float, AlarmEvent]]:
        """Return the last events and when each was stored, in seconds since 1970; the newest first."""
        with self._open() as database:
            found = database.execute("SELECT unix_s, body FROM recent ORDER BY number DESC").fetchall()
        return [(unix_s, msgspec.json.decode(body, type=AlarmEvent)) for unix_s, body in found]

    def n_waiting(self) -> dict[str, int]:
        """Return how many events wait for each sink."""
        query = "SELECT name, (SELECT count(*) FROM event WHERE number > done) FROM sink"
        with self._open() as database:
            return dict(database.execute(query).fetchall())

    def n_dropped(self) -> dict[str, int]:
        """Return how many events each sink will never get."""
        with self._open() as database:
            stored: dict[str, int] = dict(database.execute("SELECT name, dropped FROM sink").fetchall())
        return {name: count + self._lost.get(name, 0) for name, count in stored.items()}


def _one(found: sqlite3.Cursor) -> int:
    return int(found.fetchone()[0])
