"""The glossary's words do not come back, pages say whom they are for, the field's words lead to their page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.generate.glossary import OPEN, ROOT, came_back, found_in, glossary, places

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_only_words_in_code_type_are_checked() -> None:
    words = glossary(
        "text `diary`\n\n| instead of | write |\n|---|---|\n| `bury`, give up | mark `failed` |\n\n`parcel`"
    )

    assert words == ["bury"]


def test_no_word_came_back_in_a_room_that_was_free_of_it() -> None:
    assert came_back(glossary(CONTRIBUTING))[0] == []


def test_the_checker_finds_the_words_that_are_still_there() -> None:
    rooms = came_back(glossary(CONTRIBUTING))[1]

    assert rooms.keys() <= OPEN.keys()
    assert all(rooms[room] <= OPEN[room] for room in rooms)
    assert came_back(["device"])[0]  # a word that every room has


@pytest.mark.parametrize(
    "line",
    [
        "# The diary of a device.",
        'raise SpecError(f"device {device} is buried")',
        "def next_life(self) -> None:",
        "class VictimList:",
        "const n_parcels = 1; // in the page",
    ],
)
def test_a_word_is_found_in_comments_messages_names_and_scripts(line: str) -> None:
    assert found_in(line, glossary(CONTRIBUTING)) != []


def test_every_kind_of_text_that_a_user_or_developer_reads_is_looked_through() -> None:
    paths = [path for room in places().values() for path in room]
    suffixes = {path.suffix for path in paths}

    assert suffixes >= {".py", ".js", ".html", ".c", ".md", ".service"}
    assert {"docs/generate", "benchmarks", "deploy", "dashboard"} <= places().keys()


PAGES = [path for path in sorted((ROOT / "docs").glob("*/*.md")) if path.parent.name != "decisions"]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_says_whom_it_is_for(page: Path) -> None:
    title, _, first = page.read_text(encoding="utf-8").split("\n")[:3]

    assert title.startswith("# ")
    assert first.startswith("For ")


@pytest.mark.parametrize(
    ("word", "page"),
    [
        ("failure detector", "reference/network.md"),
        ("suspicion", "explanation/protocol.md"),
        ("incarnation", "explanation/protocol.md"),
        ("quorum", "explanation/protocol.md"),
        ("calibration", "reference/detector.md"),
        ("conformal", "reference/detector.md"),
        ("drift", "reference/detector.md"),
        ("secure aggregation", "explanation/threat-model.md"),
        ("byzantine", "explanation/liars.md"),
        ("robust aggregation", "explanation/liars.md"),
        ("straggler", "how-to/survive-a-failure.md"),
        ("partition", "how-to/survive-a-failure.md"),
        ("split brain", "explanation/protocol.md"),
        ("back-off", "explanation/protocol.md"),
        ("non-iid", "reference/data.md"),
        ("certificate rotation", "how-to/run-a-fleet.md"),
        ("revocation", "how-to/run-a-fleet.md"),
        ("heartbeat", "reference/network.md"),
        ("threat model", "explanation/threat-model.md"),
        ("false alarm", "explanation/detector-accuracy.md"),
        ("failure plan", "reference/run-directory.md"),
        ("pcap", "reference/captures.md"),
        ("sigmf", "reference/recordings.md"),
        ("mqtt", "reference/alarms.md"),
        ("backpressure", "reference/network.md"),
        ("gossip", "explanation/peers.md"),
        ("differential privacy", "explanation/threat-model.md"),
        ("mutual tls", "explanation/threat-model.md"),
        ("dirichlet", "reference/data.md"),
        ("checkpoint", "reference/run-directory.md"),
        ("threshold", "reference/detector.md"),
        ("explanation", "reference/detector.md"),
        ("onnx", "reference/detector.md"),
    ],
)
def test_a_word_of_the_field_stands_where_a_search_looks_first(word: str, page: str) -> None:
    """In the sentence below the title or in a heading: the search of the site weighs these most."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    seen_first = [text.split("\n")[2], *re.findall(r"^#+ .*$", text, flags=re.MULTILINE)]

    assert any(word in line.lower() for line in seen_first)
