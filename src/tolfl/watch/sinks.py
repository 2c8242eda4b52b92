"""Where alarms go: JSON lines, syslog, MQTT, a webhook; a thread each, and none waits for another.

Failures are retried with exponential back-off. An event is sent at least once, with an id to recognise
duplicates; by syslog, which acknowledges nothing, at most once.
"""

from __future__ import annotations

import http.client
import os
import re
import socket
import ssl
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

import msgspec

from tolfl.core.errors import SpecError
from tolfl.watch.alarm_events import AlarmEvent
from tolfl.watch.alarm_queue import AlarmQueue

if TYPE_CHECKING:
    from paho.mqtt.client import Client

STDOUT = "-"
_TIMEOUT_S = 10.0
_MAX_BREAK_S = 60.0
_FACILITY = 16  #: local0
_LEVELS = {"notice": 5, "warning": 4, "high": 2}  #: of syslog: notice, warning, critical


class SinkError(Exception):
    """An event was not taken; it is tried again."""


class Sink(ABC):
    """One destination of alarms."""

    name: str
    is_acknowledged = True  #: False: events are counted as sent before they are
    trouble = ""  #: why the last events were dropped

    @abstractmethod
    def send(self, events: list[AlarmEvent]) -> None:
        """Send, and return when all have arrived."""

    def close(self) -> None:  # noqa: B027  (most hold nothing)
        """Close files and connections."""


class JSONFile(Sink):
    """One object per line, on disk before it counts; or on standard output (`-`)."""

    def __init__(self, path: str) -> None:
        self.name, self._path = f"json {path}", path
        if path != STDOUT:
            self._finish_line(Path(path))

    def _finish_line(self, path: Path) -> None:
        """Cut off an incomplete last line: its event is sent again."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a+b") as file:
                file.seek(0)
                whole = file.read().rfind(b"\n") + 1
                file.truncate(whole)
        except OSError as error:
            raise SpecError(f"alarms to {path}: cannot be written ({error.strerror}); name another file") from None

    def send(self, events: list[AlarmEvent]) -> None:
        """Append lines."""
        lines = msgspec.json.Encoder().encode_lines(events)
        if self._path == STDOUT:
            sys.stdout.buffer.write(lines)
            sys.stdout.buffer.flush()
            return
        try:
            with Path(self._path).open("ab") as file:
                size = file.tell()
                try:
                    file.write(lines)
                    file.flush()
                    os.fsync(file.fileno())
                except OSError:
                    file.truncate(size)
                    raise
        except OSError as error:
            raise SinkError(f"{self._path} cannot be written ({error.strerror})") from None


class Syslog(Sink):
    """RFC 5424 over UDP, TCP (RFC 6587, with lengths) or a Unix socket."""

    is_acknowledged = False  # nothing is acknowledged

    def __init__(self, address: str) -> None:
        self.name, self._url = f"syslog {address}", urlsplit(address)
        kinds = {"udp": socket.SOCK_DGRAM, "tcp": socket.SOCK_STREAM, "unix": socket.SOCK_DGRAM}
        _check(self._url, kinds, "udp://10.0.0.1:514, tcp://10.0.0.1:601 or unix:///dev/log", address)
        self._kind = kinds[self._url.scheme]
        self._socket: socket.socket | None = None

    def send(self, events: list[AlarmEvent]) -> None:
        """Send a message for each."""
        try:
            if self._socket is None:
                self._socket = self._connect()
            for event in events:
                line = syslog_line(event, socket.gethostname())
                self._socket.sendall(b"%d %s" % (len(line), line) if self._url.scheme == "tcp" else line)
        except OSError as error:
            self.close()
            raise SinkError(f"{self._url.geturl()}: {error.strerror or error}") from None

    def _connect(self) -> socket.socket:
        if self._url.scheme == "unix":
            found = socket.socket(socket.AF_UNIX, self._kind)
            found.connect(self._url.path)
            return found
        if self._url.scheme == "tcp":
            return socket.create_connection((self._url.hostname or "", self._url.port or 601), _TIMEOUT_S)
        place = socket.getaddrinfo(self._url.hostname, self._url.port or 514, type=self._kind)[0]
        found = socket.socket(place[0], self._kind)
        found.connect(place[4])
        return found

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class Webhook(Sink):
    """An HTTP(S) POST for each event; `Idempotency-Key` is its id."""

    def __init__(self, address: str) -> None:
        self.name, self._url = f"webhook {_without_password(address)}", urlsplit(address)
        _check(self._url, ("http", "https"), "https://example.org/alarms", address)

    def send(self, events: list[AlarmEvent]) -> None:
        """Post one by one; what the server refuses for good (4xx) is not sent again, and reported."""
        for event in events:
            status = self._post(event)
            if 200 <= status < 300:
                self.trouble = ""
                continue
            if 400 <= status < 500 and status not in (408, 429):
                self.trouble = f"{self.name} refuses alarms with status {status}, they are dropped; check its address"
                continue
            raise SinkError(f"{self.name} answers with status {status}")

    def _post(self, event: AlarmEvent) -> int:
        url, host = self._url, self._url.hostname or ""
        connection = (
            http.client.HTTPSConnection(host, url.port, timeout=_TIMEOUT_S, context=ssl.create_default_context())
            if url.scheme == "https"
            else http.client.HTTPConnection(host, url.port, timeout=_TIMEOUT_S)
        )
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        headers = {"Content-Type": "application/json", "Idempotency-Key": event.id}
        try:
            connection.request("POST", path, msgspec.json.encode(event), headers)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            raise SinkError(f"{self.name}: {error}") from None
        finally:
            connection.close()


class MQTT(Sink):
    """QoS 1 to `tolfl/DEVICE/alarm`, done at the PUBACK; `tolfl/DEVICE/status` is retained, and the last will."""

    def __init__(self, address: str, device: str) -> None:
        self.name, self._url = f"mqtt {_without_password(address)}", urlsplit(address)
        _check(self._url, ("mqtt", "mqtts"), "mqtt://user:password@10.0.0.1:1883", address)
        self._topic = f"tolfl/{re.sub(r'[^A-Za-z0-9_.-]', '-', device) or 'device'}"
        self._client: Client | None = None
        import paho.mqtt.client  # noqa: F401, PLC0415  (an extra: missing, it is missing at the start)

    def send(self, events: list[AlarmEvent]) -> None:
        """Publish; without a PUBACK in time, the next try begins with a new client."""
        try:
            client = self._client or self._connect()
            sent = [client.publish(f"{self._topic}/alarm", msgspec.json.encode(event), qos=1) for event in events]
            for one in sent:
                one.wait_for_publish(_TIMEOUT_S)
        except (OSError, ValueError, RuntimeError) as error:
            self.close()
            raise SinkError(f"{self.name}: {error}") from None
        if not all(one.is_published() for one in sent):
            self.close()
            raise SinkError(f"{self.name}: no PUBACK within {_TIMEOUT_S:g} s")

    def _connect(self) -> Client:
        from paho.mqtt import client as paho  # noqa: PLC0415  (an extra)
        from paho.mqtt.enums import CallbackAPIVersion  # noqa: PLC0415

        answered, answers = threading.Event(), []
        client = paho.Client(CallbackAPIVersion.VERSION2)

        def connected(*found: object) -> None:
            answers.append(found[3])
            answered.set()

        client.on_connect = connected
        if self._url.username:
            client.username_pw_set(self._url.username, self._url.password)
        if self._url.scheme == "mqtts":
            client.tls_set()
        client.will_set(f"{self._topic}/status", "offline", qos=1, retain=True)
        client.connect(self._url.hostname or "", self._url.port or (8883 if self._url.scheme == "mqtts" else 1883))
        client.loop_start()
        if not answered.wait(_TIMEOUT_S) or getattr(answers[0], "is_failure", False):
            client.disconnect()
            client.loop_stop()
            raise SinkError(f"{self.name}: the broker refuses ({answers[0] if answers else 'no answer'})")
        client.publish(f"{self._topic}/status", "online", qos=1, retain=True)
        self._client = client
        return client

    def close(self) -> None:
        """Leave the broker; what it has not acknowledged is published by another client."""
        client, self._client = self._client, None
        if client is not None:
            client.disconnect()
            client.loop_stop()


def sinks_of(json: str = "", syslog: str = "", mqtt: str = "", webhook: str = "", device: str = "") -> list[Sink]:
    """Return the sinks that have an address."""
    found: tuple[tuple[Callable[[str], Sink], str], ...] = (
        (JSONFile, json), (Syslog, syslog), (partial(MQTT, device=device), mqtt), (Webhook, webhook),
    )  # fmt: skip
    return [kind(address) for kind, address in found if address]


class Delivery(threading.Thread):
    """Takes events from the queue to one sink, until it is closed."""

    def __init__(self, queue: AlarmQueue, sink: Sink, first_break_s: float = 1.0) -> None:
        super().__init__(name=sink.name, daemon=True)
        self._queue, self._sink, self._first_break_s = queue, sink, first_break_s
        self._closing = threading.Event()
        self.trouble = ""  #: why delivery fails at the moment
        self.ended: Exception | None = None  #: an end of standard output

    def run(self) -> None:
        """Send what waits, then wait for more."""
        pause_s = self._first_break_s
        while True:
            is_closing = self._closing.is_set()
            try:
                is_empty = not self._send_some()
                self.trouble, pause_s = self._sink.trouble, self._first_break_s
            except BrokenPipeError as error:
                self.ended = error
                return
            except Exception as error:  # an error of a sink or the disk must not end watching
                self.trouble = f"{error}; alarms wait in the queue"
                if is_closing or self._closing.wait(pause_s):
                    return
                pause_s = min(2 * pause_s, _MAX_BREAK_S)
                continue
            if is_empty and is_closing:
                self._sink.close()
                return
            if is_empty:
                with self._queue.arrived:
                    self._queue.arrived.wait(0.5)

    def _send_some(self) -> bool:
        found = self._queue.waiting(self._sink.name)
        if not found:
            return False
        numbers, events = zip(*found, strict=True)
        if not self._sink.is_acknowledged:
            self._queue.done(self._sink.name, numbers[-1])
        self._sink.send(list(events))
        if self._sink.is_acknowledged:
            self._queue.done(self._sink.name, numbers[-1])
        return True

    def close(self, timeout_s: float = 5.0) -> None:
        """Send what can be sent at once, and end."""
        self._closing.set()
        with self._queue.arrived:
            self._queue.arrived.notify_all()
        self.join(timeout_s)


def syslog_line(event: AlarmEvent, host: str) -> bytes:
    """Return an event as RFC 5424 writes it; 32473 is the enterprise number of examples."""
    facts = {"id": event.id, "device": event.device, "event": event.event, "source": event.source, "key": event.key}
    pairs = " ".join(f'{name}="{_escaped(value)}"' for name, value in facts.items())
    when = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    host = re.sub(r"[^!-~]", "-", host)[:255] or "-"
    head = f"<{8 * _FACILITY + _LEVELS[event.severity]}>1 {when} {host} tolfl {os.getpid()} alarm [tolfl@32473 {pairs}]"
    return f"{head} \ufeff{sentence(event)}".encode()


def sentence(event: AlarmEvent) -> str:
    """Return an event in one line for people."""
    who = f"{event.source} {event.key}".strip()
    why = "; ".join(str(one) for one in event.features) or "no single feature"
    ratio = event.score / event.limit if event.limit > 0 else float("inf")
    what = {"open": "alarm", "update": "alarm continues", "close": "alarm is over"}[event.event]
    size = f"{event.n_alarms} window(s), {ratio:.1f} x the limit"
    return f"{what} ({event.severity}) on {who} since {event.start}: {size}: {why}"


def _escaped(text: str) -> str:
    return re.sub(r'(["\\\]])', r"\\\1", re.sub(r"[\x00-\x1f]", " ", text))


def _check(url: SplitResult, schemes: object, example: str, given: str) -> None:
    try:
        is_there = bool(url.path) if url.scheme == "unix" else bool(url.hostname)
        is_good = url.scheme in schemes and is_there and (url.port or 1) > 0  # type: ignore[operator]
    except ValueError:
        is_good = False
    if not is_good:
        raise SpecError(f"alarms to {_without_password(given)!r}: no address; write one as in {example}")


def _without_password(address: str) -> str:
    return re.sub(r"//[^/@]*@", "//", address)
