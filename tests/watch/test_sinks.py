from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.watch.alarms import event
from tolfl.core.errors import SpecError
from tolfl.watch.alarm_events import Memory
from tolfl.watch.alarm_queue import AlarmQueue
from tolfl.watch.sinks import Delivery, JSONFile, Sink, SinkError, Syslog, Webhook, sinks_of, syslog_line

MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")


def wait_until(is_so: Callable[[], bool], timeout_s: float = 30.0) -> None:
    end_s = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < end_s, "it did not happen in time"
        time.sleep(0.02)


def delivered(folder: Path, sink: Sink, n_events: int = 3) -> tuple[AlarmQueue, Delivery]:
    queue = AlarmQueue(folder, [sink.name])
    queue.put([event(number) for number in range(n_events)], "lo", Memory())
    delivery = Delivery(queue, sink, first_break_s=0.1)
    delivery.start()
    return queue, delivery


def test_json_lines_cut_off_what_a_kill_has_left(tmp_path: Path) -> None:
    path = tmp_path / "alarms.jsonl"
    path.write_bytes(b'{"id": "whole"}\n{"id": "ha')
    JSONFile(str(path)).send([event(1)])

    assert [json.loads(line)["id"] for line in path.read_text().splitlines()] == ["whole", event(1).id]


def test_a_syslog_line_has_the_form_of_rfc_5424() -> None:
    line = syslog_line(event(1, "high"), "gate house").decode()

    assert re.fullmatch(
        r"<130>1 \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z gate-house tolfl \d+ alarm "
        r'\[tolfl@32473 id="0{15}1-0" device="0" event="open" source="lo" key=""\] \ufeffalarm \(high\).*',
        line,
    )


@pytest.mark.parametrize("kind", ["udp", "unix"])
def test_syslog_reaches_a_socket(tmp_path: Path, kind: str) -> None:
    family = socket.AF_INET if kind == "udp" else socket.AF_UNIX
    with socket.socket(family, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0) if kind == "udp" else str(tmp_path / "log"))
        server.settimeout(10)
        address = f"udp://127.0.0.1:{server.getsockname()[1]}" if kind == "udp" else f"unix://{tmp_path / 'log'}"
        queue, delivery = delivered(tmp_path, Syslog(address))
        found = [server.recv(65_536) for _ in range(3)]
        delivery.close()

    assert [re.search(rb'id="(.*?)"', line)[1].decode() for line in found] == [event(n).id for n in range(3)]  # type: ignore[index]
    assert queue.n_waiting() == {f"syslog {address}": 0}


def test_syslog_over_tcp_counts_octets(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        _, delivery = delivered(tmp_path, Syslog(f"tcp://127.0.0.1:{server.getsockname()[1]}"), n_events=1)
        with server.accept()[0] as peer:
            length, _, rest = peer.recv(65_536).partition(b" ")
        delivery.close()

    assert int(length) == len(rest)


@pytest.fixture
def web() -> Iterator[tuple[str, list[tuple[str, bytes]], list[int]]]:
    """Give a server that answers with the statuses of a list, and then with 204."""
    got: list[tuple[str, bytes]] = []
    answers: list[int] = []

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = answers.pop(0) if answers else 204
            if status == 204:
                got.append((self.headers["Idempotency-Key"], body))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/alarms", got, answers
        server.shutdown()


def test_a_webhook_is_tried_again_until_it_takes_an_event(
    tmp_path: Path, web: tuple[str, list[tuple[str, bytes]], list[int]]
) -> None:
    address, got, answers = web
    answers += [503, 429]
    queue, delivery = delivered(tmp_path, Webhook(address))
    wait_until(lambda: sum(queue.n_waiting().values()) == 0)
    delivery.close()

    assert [key for key, _ in got] == [event(number).id for number in range(3)]
    assert json.loads(got[0][1])["id"] == got[0][0]


def test_what_a_webhook_refuses_for_good_holds_nobody_up(
    tmp_path: Path, web: tuple[str, list[tuple[str, bytes]], list[int]]
) -> None:
    address, got, answers = web
    answers += [400]
    sink = Webhook(address)
    queue, delivery = delivered(tmp_path, sink)
    wait_until(lambda: sum(queue.n_waiting().values()) == 0)
    delivery.close()

    assert [key for key, _ in got] == [event(1).id, event(2).id]
    assert sink.trouble == ""


def test_a_webhook_that_refuses_all_events_is_reported_until_it_takes_one(
    tmp_path: Path, web: tuple[str, list[tuple[str, bytes]], list[int]]
) -> None:
    address, _, answers = web
    answers += [200, 401, 401]
    queue, delivery = delivered(tmp_path, Webhook(address))
    wait_until(lambda: "refuses alarms with status 401, they are dropped" in delivery.trouble)
    queue.put([event(7)], "lo", Memory())
    wait_until(lambda: delivery.trouble == "")
    delivery.close()

    assert sum(queue.n_waiting().values()) == 0


def test_a_place_that_refuses_is_said_and_alarms_wait(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    queue, delivery = delivered(tmp_path, Webhook(f"http://127.0.0.1:{port}/"))
    wait_until(lambda: bool(delivery.trouble))
    delivery.close()

    assert "alarms wait in the queue" in delivery.trouble
    assert sum(queue.n_waiting().values()) == 3


@pytest.mark.parametrize("given", ["udp:/x", "10.0.0.1:514", "tcp://h:99999", "ftp://h/"])
def test_an_address_that_is_none_is_one_sentence(given: str) -> None:
    with pytest.raises(SpecError, match="write one as in udp://"):
        sinks_of(syslog=given)


class Broker:
    """A Mosquitto of this test's own."""

    def __init__(self, folder: Path, *settings: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        lines = [f"listener {self.port} 127.0.0.1", *(settings or ["allow_anonymous true"])]
        self._config = folder / "mosquitto.conf"
        self._config.write_text("\n".join(lines) + "\n")
        self.start()

    def start(self) -> None:
        assert MOSQUITTO is not None
        command = [MOSQUITTO, "-c", str(self._config)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(self._is_there)

    def _is_there(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


needs_mosquitto = pytest.mark.skipif(MOSQUITTO is None, reason="needs mosquitto (apt install mosquitto)")


@needs_mosquitto
@pytest.mark.processes
def test_alarms_reach_a_broker_that_was_killed_and_started_again(tmp_path: Path) -> None:
    from paho.mqtt.client import Client
    from paho.mqtt.enums import CallbackAPIVersion

    broker = Broker(tmp_path)
    got: set[str] = set()
    subscribed = threading.Event()
    reader = Client(CallbackAPIVersion.VERSION2)
    reader.on_message = lambda *found: got.add(json.loads(found[2].payload)["id"])
    reader.on_connect = lambda client, *_: client.subscribe("tolfl/gate/alarm", qos=1)
    reader.on_subscribe = lambda *_: subscribed.set()
    reader.reconnect_delay_set(1, 1)
    reader.connect("127.0.0.1", broker.port)
    reader.loop_start()
    assert subscribed.wait(10)
    (sink,) = sinks_of(mqtt=f"mqtt://127.0.0.1:{broker.port}", device="gate")
    queue, delivery = delivered(tmp_path, sink)
    wait_until(lambda: len(got) == 3)
    subscribed.clear()
    broker.kill()
    broker.start()
    assert subscribed.wait(20)
    queue.put([event(number) for number in range(3, 20)], "lo", Memory())
    wait_until(lambda: len(got) == 20)
    wait_until(lambda: sum(queue.n_waiting().values()) == 0)
    delivery.close()
    reader.loop_stop()
    broker.kill()

    assert got == {event(number).id for number in range(20)}


@needs_mosquitto
@pytest.mark.processes
def test_a_broker_that_refuses_is_one_sentence(tmp_path: Path) -> None:
    broker = Broker(tmp_path, "allow_anonymous false")
    (sink,) = sinks_of(mqtt=f"mqtt://me:secret@127.0.0.1:{broker.port}")
    with pytest.raises(SinkError, match="the broker refuses") as caught:
        sink.send([event(1)])
    broker.kill()

    assert "secret" not in str(caught.value)
