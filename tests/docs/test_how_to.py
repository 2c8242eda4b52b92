"""The programs of the how-to pages run, and show what the pages say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HOW_TO = Path(__file__).resolve().parents[2] / "docs" / "how-to"


def output_of(page: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Run the one Python program of a page and return what it prints."""
    (program,) = re.findall(r"^```python\n(.*?)^```$", (HOW_TO / page).read_text(), re.MULTILINE | re.DOTALL)
    exec(compile(program, page, "exec"), {"__name__": "__main__"})
    return capsys.readouterr().out.splitlines()


def test_the_data_set_of_the_page_is_shared_out_and_trained_on(capsys: pytest.CaptureFixture[str]) -> None:
    shared_out, scored = output_of("add-a-data-set.md", capsys)

    assert re.fullmatch(r"pumps \[\d+, \d+, \d+\]", shared_out)
    assert float(scored.split()[0]) > 0.9
    assert scored.endswith("[1, 2]")
