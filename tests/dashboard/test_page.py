"""The server without a browser: what it tells, and whom it turns away."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.record_lines import collected, lost_head, real_devices, started, write
from tolfl.core.errors import TolFLError
from tolfl.core.records import AnyRecord, encode_records
from tolfl.core.spec import RunSpec
from tolfl.dashboard import Page, PageCommand, address_of, listen, served
from tolfl.dashboard.page_server import ASSETS, CannotListenError
from tolfl.runs.descriptions import describe
from tolfl.runs.run_folder import RunFolder
from tolfl.runs.run_reader import RunReader
from tolfl.runs.run_report import report_context

TOKEN = "a token of the terminal"
HERE = "http://127.0.0.1:8350"
GOOD = {"Origin": HERE, "Content-Type": "application/json", "X-Tolfl-Token": TOKEN}
KILL = b'{"action":"kill","device":2}'


class Noted:
    """Controls that only write down what was asked, and refuse device 9."""

    def __init__(self) -> None:
        self.commands: list[PageCommand] = []

    def obey(self, command: PageCommand) -> None:
        if command.device == 9:
            raise TolFLError("there is no device 9")
        self.commands.append(command)


class Client:
    """Asks the application itself, without a socket."""

    def __init__(self, page: Page) -> None:
        self._transport = httpx.ASGITransport(page.app())

    def request(self, method: str, path: str, **given: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(transport=self._transport, base_url=HERE) as asking:
                return await asking.request(method, path, **given)

        return asyncio.run(ask())

    def get(self, path: str, **given: Any) -> httpx.Response:
        return self.request("GET", path, **given)

    def post(self, path: str, **given: Any) -> httpx.Response:
        return self.request("POST", path, **given)


def events_in(text: str) -> list[tuple[str, str, Any]]:
    found = re.findall(r"event: (\w+)\nid: (\S*)\ndata: (.*)\n\n", text)
    return [(kind, place, json.loads(data)) for kind, place, data in found]


def plain(records: Sequence[AnyRecord]) -> list[Any]:
    return [json.loads(line) for line in encode_records(records).splitlines()]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write(tmp_path / "run", lost_head())


# -- lines -------------------------------------------------------------------------------------------------------


def test_a_recorded_run_is_told_to_its_end(run: Path) -> None:
    page = Client(Page([RunReader(run)]))
    said = events_in(page.get("/api/lines").text)

    assert [kind for kind, _, _ in said] == ["lines", "failures", "state", "end"]
    lines = said[0][2]["lines"]
    assert [line.pop("text") for line in lines] == [describe(line) for line in lost_head()]
    assert [line.pop("far") for line in lines if "far" in line] == ["1 round", *(f"{n} rounds" for n in (2, 3, 4, 5))]
    assert {line.pop("tone") for line in lines} == {"", "good", "bad", "quiet"}
    assert lines == plain(lost_head())
    assert said[2][2] == [{"over": True, "unreadable": 0, "problem": "", "source": "", "clock": "", "quiet_s": 0}]
    assert page.get("/api/runs").json() == {"runs": [{"name": "run", "controls": False}], "follow": False}


def test_the_page_has_the_failures_of_the_report(run: Path) -> None:
    said = events_in(Client(Page([RunReader(run)])).get("/api/lines").text)
    (history,) = [data["history"] for kind, _, data in said if kind == "failures"]
    report = report_context(RunFolder("run", RunSpec(), lost_head(), is_real=True))

    assert history["columns"] == report["failure_columns"]
    assert [[text for text, _ in one["cells"]] for one in history["incidents"]] == report["failure_rows"]
    assert [one["stall_s"] for one in history["incidents"]] == [0.5]
    assert [one["failures"] for one in history["incidents"]] == [[[[0], "dead", 2.25, 4.6]]]


def test_two_runs_in_one_file_are_one_sentence_on_the_page(tmp_path: Path) -> None:
    other = msgspec.structs.replace(started([[0, 1]]), scheme="fl")
    said = events_in(Client(Page([RunReader(write(tmp_path, [*lost_head()[:3], other]))])).get("/api/lines").text)

    (state,) = [data for kind, _, data in said if kind == "state"]
    assert "two runs (tol-fl on blobs, seed 0; fl on blobs, seed 0)" in state[0]["problem"]


def test_many_browsers_read_the_files_once(run: Path) -> None:
    reader = RunReader(run)
    page = Page([reader])
    n_reads = 0
    read = reader.read

    def counted() -> list[AnyRecord]:
        nonlocal n_reads
        n_reads += 1
        assert threading.current_thread() is not threading.main_thread(), "the event loop must not wait for a disk"
        return read()

    reader.read = counted  # type: ignore[method-assign]

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(page.app())
        async with httpx.AsyncClient(transport=transport, base_url=HERE) as asking:
            return await asyncio.gather(*(asking.get("/api/lines") for _ in range(20)))

    answers = asyncio.run(ask())
    assert len({answer.text for answer in answers}) == 1
    assert n_reads < 20


def test_a_browser_that_comes_back_hears_the_rest(run: Path) -> None:
    page = Client(Page([RunReader(run), RunReader(run)]))
    said = events_in(page.get("/api/lines", headers={"Last-Event-ID": "10,14"}).text)

    told = [data for kind, _, data in said if kind == "lines"]
    assert [(one["run"], one["from"], len(one["lines"])) for one in told] == [(0, 10, len(lost_head()) - 10)]


@pytest.mark.parametrize("nonsense", ["", "1", "x,y", "-1,0", "9" * 5000 + ",1", "²,1"], ids=range(6))
def test_a_browser_that_says_nonsense_hears_everything(run: Path, nonsense: str) -> None:
    page = Client(Page([RunReader(run), RunReader(run)]))
    headers = {"Last-Event-ID": nonsense.encode()}
    told = [d for kind, _, d in events_in(page.get("/api/lines", headers=headers).text) if kind == "lines"]

    assert {one["run"]: one["from"] for one in told if one["lines"]}[0] == 0


def test_long_runs_come_in_pieces(tmp_path: Path) -> None:
    many = [lost_head()[0], *[lost_head()[4]] * 999]
    said = events_in(Client(Page([RunReader(write(tmp_path, many))])).get("/api/lines").text)

    sizes = [(data["from"], len(data["lines"])) for kind, _, data in said if kind == "lines"]
    assert sizes == [(0, 400), (400, 400), (800, 200)]


def told_live(address: str, at_least: int) -> Iterator[dict[str, Any]]:
    """Follow a page until that many lines were told, yielding after every event."""
    n_told, kind = 0, ""
    with httpx.stream("GET", f"{address}api/lines", timeout=30) as answer:
        for line in answer.iter_lines():
            kind = line.removeprefix("event: ") if line.startswith("event: ") else kind
            if line.startswith("data: ") and kind == "lines":
                data = json.loads(line.removeprefix("data: "))
                n_told += len(data["lines"])
                yield data
            if n_told >= at_least and kind == "end":
                return


def test_lines_come_while_the_run_goes_on(tmp_path: Path) -> None:
    real_devices(tmp_path)
    listening = listen("127.0.0.1", 0)
    with served(Page([RunReader(tmp_path)], is_following=True), listening):
        following = told_live(address_of(listening), 10)
        first = next(following)
        write(tmp_path, collected())
        later = list(following)

    assert (first["from"], len(first["lines"])) == (0, 7)
    assert [line["kind"] for one in later for line in one["lines"]] == ["round_closed", "run_ended", "scores"]


def test_the_last_lines_are_told_when_the_program_ends(tmp_path: Path) -> None:
    reader = RunReader(write(tmp_path, lost_head()[:2]))
    listening = listen("127.0.0.1", 0)
    with served(Page([reader], is_following=True), listening):
        following = told_live(address_of(listening), 3)
        next(following)
        write(tmp_path, lost_head()[:3])

    assert [line["round"] for one in following for line in one["lines"]] == [1]


def test_a_port_that_is_taken_is_one_sentence() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotListenError, match=rf"127\.0\.0\.1:{port} .*choose another --port"):
            listen("127.0.0.1", port)


# -- guards ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/api/runs", "/api/lines", "/assets/app.js", "/nowhere"])
def test_every_answer_has_the_security_headers(run: Path, path: str) -> None:
    answer = Client(Page([RunReader(run)])).get(path)

    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "access-control-allow-origin" not in answer.headers
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8350", "", "localhost.evil.example"])
@pytest.mark.parametrize("path", ["/", "/api/lines"])
def test_a_name_that_is_not_ours_gets_nothing(run: Path, path: str, host: str) -> None:
    answer = Client(Page([RunReader(run)])).get(path, headers={"Host": host})

    assert answer.status_code == 403
    assert "tol-fl" not in answer.text


@pytest.mark.parametrize("host", ["127.0.0.1:8350", "localhost:8350", "[::1]:8350"])
def test_names_of_this_machine_are_ours(run: Path, host: str) -> None:
    assert Client(Page([RunReader(run)])).get("/api/runs", headers={"Host": host}).status_code == 200


def test_a_command_of_the_page_is_done(run: Path) -> None:
    controls = Noted()
    page = Client(Page([RunReader(run)], obey=controls.obey, token=TOKEN))
    answer = page.post("/api/command", content=KILL, headers=GOOD)

    assert (answer.status_code, answer.json()) == (200, {"done": "kill"})
    assert controls.commands == [PageCommand("kill", 2)]
    assert page.get("/api/runs").json()["runs"][0]["controls"]


REFUSED: list[tuple[dict[str, str | None], bytes, int]] = [
    ({"X-Tolfl-Token": None}, KILL, 403),
    ({"X-Tolfl-Token": ""}, KILL, 403),
    ({"X-Tolfl-Token": TOKEN[:-1]}, KILL, 403),
    ({"Origin": None}, KILL, 403),
    ({"Origin": "null"}, KILL, 403),
    ({"Origin": "http://evil.example"}, KILL, 403),
    ({"Origin": "http://localhost:8350"}, KILL, 403),
    ({"Origin": "https://127.0.0.1:8350"}, KILL, 403),
    ({"Host": "evil.example", "Origin": "http://evil.example"}, KILL, 403),
    ({"Content-Type": "text/plain"}, KILL, 403),
    ({}, b"nonsense", 400),
    ({}, b'{"action":"burn","device":2}', 400),
    ({}, b'{"action":"kill","device":"2"}', 400),
    ({}, b'{"action":"kill","device":2,"more":1}', 400),
    ({}, b'{"action":"kill","device":9}', 409),
    ({}, b" " * 2000 + KILL, 413),
]


@pytest.mark.parametrize(("changed", "body", "code"), REFUSED, ids=range(len(REFUSED)))
def test_any_other_command_is_refused(run: Path, changed: dict[str, str | None], body: bytes, code: int) -> None:
    controls = Noted()
    page = Client(Page([RunReader(run)], obey=controls.obey, token=TOKEN))
    headers = {name: value for name, value in {**GOOD, **changed}.items() if value is not None}

    assert page.post("/api/command", content=body, headers=headers).status_code == code
    assert controls.commands == []


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_commands_are_posted(run: Path, method: str) -> None:
    controls = Noted()
    page = Client(Page([RunReader(run)], obey=controls.obey, token=TOKEN))

    assert page.request(method, "/api/command", headers=GOOD).status_code == 405


def test_a_recorded_run_takes_no_command(run: Path) -> None:
    assert Client(Page([RunReader(run)])).post("/api/command", content=KILL, headers=GOOD).status_code == 404


def test_controls_without_a_token_are_a_mistake(run: Path) -> None:
    with pytest.raises(ValueError, match="token"):
        Page([RunReader(run)], obey=Noted().obey).app()


# -- assets ------------------------------------------------------------------------------------------------------

SCRIPTS = sorted(ASSETS.glob("*.js"))


def test_nothing_but_the_assets_is_served(run: Path) -> None:
    page = Client(Page([RunReader(run)]))

    assert page.get("/assets/vendor/uPlot-LICENSE.txt").text.startswith("The MIT License")
    for path in ("/assets/../page_server.py", "/assets/%2e%2e/page_server.py", "/assets//etc/passwd", "/assets/"):
        assert page.get(path).status_code == 404


@pytest.mark.parametrize("path", [*SCRIPTS, ASSETS / "index.html", ASSETS / "style.css"], ids=lambda path: path.name)
def test_assets_load_nothing_from_elsewhere_and_make_no_markup_of_text(path: Path) -> None:
    text = path.read_text().replace("http://www.w3.org/2000/svg", "")

    assert not re.search(r"https?:|//[a-z]+\.[a-z]", text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", text)
