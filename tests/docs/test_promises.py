"""Whatever the pages on promises and threats name as a test is one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.protocol.explore import ALL_CAMPAIGNS

TESTS = Path(__file__).parents[1]
PAGES = TESTS.parent / "docs" / "explanation"


@pytest.mark.parametrize("page", ["promises.md", "threat-model.md"])
def test_every_row_names_tests_that_there_are(page: str) -> None:
    rows = [line for line in (PAGES / page).read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    named = [cell for row in rows if "| tests |" not in row for cell in [row.rstrip("| ").rpartition("|")[2]]]

    assert len(named) > 15
    for cell in named:
        paths = re.findall(r"`(\w+/test_\w+)`", cell)
        kinds = re.findall(r"explorer: ([^;]+)", cell)
        assert paths or kinds, cell
        assert all((TESTS / f"{path}.py").exists() for path in paths), cell
        for kind in kinds:
            text = kind.strip()
            for name in sorted(ALL_CAMPAIGNS, key=len, reverse=True):
                text = text.replace(name, "")
            assert not re.sub(r"\(.*\)|[, ]", "", text), (
                f"{kind!r} names kinds of schedules that there are not: {text!r}"
            )
