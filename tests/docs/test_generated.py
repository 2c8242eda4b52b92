"""Generated pages are complete: every command and flag, every public name, every limit with its reason."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner

import tolfl
from docs.generate import commands, links, pages, settings, wire
from docs.generate.pages import PARTS
from docs.generate.settings import comments_of
from docs.generate.words import cell, number
from tolfl.cli import app
from tolfl.core.records import AnyRecord, Record
from tolfl.core.spec import RunSpec
from tolfl.net.node_config import NodeConfig, WatchConfig
from tolfl.protocol.messages import Message
from tolfl.watch.alarm_events import AlarmEvent

DOCS = Path(__file__).resolve().parents[2] / "docs"


def sections() -> dict[str, str]:
    """Return the page of the command line, command by command."""
    parts = re.split(r"^## (.+?) \{#.+\}$", commands.page(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("name", list(commands.commands()))
def test_the_page_has_every_flag_that_help_shows(name: str) -> None:
    shown = CliRunner().invoke(app, [*name.split()[1:], "--help"], env={"COLUMNS": "200", "TERM": "dumb"}).output
    flags = set(re.findall(r"^\W*(?:\*\s*)?(--[a-z][a-z0-9-]*)", shown, re.MULTILINE)) - {"--help"}
    page = sections()[name]

    assert flags <= set(re.findall(r"`(--[a-z][a-z0-9-]*)`", page))
    assert flags or "FLAGS" not in page


def test_the_page_has_every_command_that_help_shows() -> None:
    assert len(sections()) == len(commands.commands())
    assert {"tolfl simulate", "tolfl data list", "tolfl enroll revoke"} <= sections().keys()


def test_the_page_of_the_python_interface_has_every_public_name() -> None:
    named = re.findall(r"^::: tolfl\.(\w+)$", pages.interface(), re.MULTILINE)

    assert sorted(named) == sorted(tolfl.__all__)


def test_the_page_of_the_specification_has_every_field() -> None:
    page = settings.settings()

    assert [name for name in RunSpec.__struct_fields__ if f"`{name}`" not in page and f"## [{name}]" not in page] == []
    assert "| `train.lr` |  | a number above 0 | Local step size. (default: by the number of features) |" in page
    assert "| `train.optimizer` | `'sgd'` | one of `sgd`, `momentum`, `adam` |" in page
    assert "| `comms_ml.channel.snr_db` | 20 dB |" in page


def test_the_tables_of_a_devices_file_have_every_key_with_words() -> None:
    for kind, page in ((NodeConfig, settings.device()), (WatchConfig, settings.watch())):
        rows = dict(re.findall(r"^\| `(\w+)` \| (?:.*?) \| (.*) \|$", page, re.MULTILINE))

        assert rows.keys() == {*kind.__struct_fields__} - {"watch"}
        assert all(rows.values())
    assert "| `listen` | (needed) | host:port; port 0 takes any that is free |" in settings.device()
    assert "| `start_timeout_s` | 30 s | start without those who cannot be reached by then |" in settings.device()


def test_the_page_of_limits_has_values_units_and_reasons() -> None:
    page = settings.limits()

    assert "| `silence_detection_s` | 1 s | 2 s | 6 s | from the last sign of life" in page
    assert "| `chunk_bytes`<br>net.wire | 64 KiB | Small enough" in page
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    assert all(len(row[-1]) > 5 for row in rows)


def test_the_page_of_the_wire_contract_has_every_message_and_field() -> None:
    parts = re.split(r"^### (.+)$", wire.page(), flags=re.MULTILINE)
    found = {
        name: re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
        for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }
    kinds = (*wire.frames(), *wire.PARTS_OF_MESSAGES, *wire.PARTS_OF_ANSWERS)
    header = Message.__struct_fields__
    said = {wire.name_of(kind): [*kind.__struct_fields__[len(header) :]] for kind in wire.spoken()}

    found["done"] = []  # the header of all messages stands behind the last frame
    assert found == {wire.name_of(kind): [*kind.__struct_fields__] for kind in kinds} | said
    assert all(f"| `{name}` |" in wire.page() for name in header)


def test_the_page_of_the_files_of_a_run_has_every_kind_of_record_and_field() -> None:
    parts = re.split(r"^### (.+)$", wire.kinds_of_records(), flags=re.MULTILINE)
    found = {
        name: re.findall(r"^\| `(\w+)` \| .* \| .+ \|$", text, re.MULTILINE)
        for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }
    own = Record.__struct_fields__
    kinds = get_args(AnyRecord)

    assert re.findall(r"^\| `(\w+)` \|", parts[0], re.MULTILINE) == [*own]
    assert found == {wire.name_of(kind): [*kind.__struct_fields__[len(own) :]] for kind in kinds}


def test_the_table_of_an_alarm_has_every_field() -> None:
    found = re.findall(r"^\| `(\w+)` \| .* \| .+ \|$", wire.alarm(), re.MULTILINE)

    assert found == [*AlarmEvent.__struct_fields__]


def test_every_mark_of_a_page_has_its_generator() -> None:
    marks = [mark for page in DOCS.rglob("*.md") for mark in re.findall(r"<!-- generated: (\S+) -->", page.read_text())]

    assert sorted(marks) == sorted(PARTS)


# -- small parts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page", "target", "expected"),
    [
        ("docs/how-to/run-a-fleet.md", "../reference/data.md", "../reference/data.md"),
        ("docs/how-to/run-a-fleet.md", "../../deploy/Containerfile", "../repository/deploy/Containerfile.md"),
        ("docs/explanation/reproduction.md", "../../results", "../repository/results/README.md"),
        ("docs/explanation/reproduction.md", "../../results/server.png", "../repository/results/server.png"),
        ("docs/README.md", "../SECURITY.md", "repository/SECURITY.md"),
        ("SECURITY.md", "docs/explanation/threat-model.md", "../explanation/threat-model.md"),
        ("CONTRIBUTING.md", "docs/decisions", "../decisions/README.md"),
        ("results", "server.md", "server.md"),
    ],
)
def test_a_link_leads_to_the_same_file_in_the_site(page: str, target: str, expected: str) -> None:
    assert links.target_in_site(page, target) == expected


def test_code_and_addresses_are_no_links_to_files() -> None:
    text = "[a](b.md) [c](https://x.org/d.md) [e](#f)\n```\n[g](h.md)\n```\n![i](j.png#k)\n"

    assert links.targets(text) == ["b.md", "j.png"]
    assert links.replaced(text, lambda target: f"x/{target}") == text.replace("(b.md)", "(x/b.md)").replace(
        "(j.png", "(x/j.png"
    )


def test_what_a_page_links_leads_to_is_part_of_the_site() -> None:
    reached = set(links.reached(["docs/README.md", "docs/reference/wire.md"]))

    assert {"CONTRIBUTING.md", "SECURITY.md", "src/tolfl/net/wire.py"} <= reached
    assert not any(path.startswith("docs/") for path in reached)


def test_numbers_have_the_unit_of_their_name() -> None:
    assert number(4 * 2**20, "BLOCK_BYTES") == "4 MiB"
    assert number(2000, "MAX_FRAMES_PER_S") == "2,000 per second"
    assert number(20e6, "bandwidth_bps") == "20,000,000 bit/s"
    assert number(2**40, "_MAX_SAMPLES") == "2^40^"
    assert cell("a|b <c> `d<e`") == r"a\|b &lt;c> `d<e`"


def test_a_constant_is_read_with_its_comment() -> None:
    assert "64 MiB" in settings.limits().partition("`longest_block_bytes`")[2].splitlines()[0]
    assert comments_of("net.connection")["_MAX_PAYLOADS"].startswith("Models that may wait")
