"""The glossary of CONTRIBUTING: its words do not come back, and the checker would notice."""

from __future__ import annotations

from docs.generate.glossary import OPEN, ROOT, came_back, glossary

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
