"""The programs of the how-to pages run, and show what the pages say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tolfl.schemes import SCHEMES

HOW_TO = Path(__file__).resolve().parents[2] / "docs" / "how-to"


def output_of(page: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Run the one Python program of a page and return what it prints."""
    (program,) = re.findall(r"^```python\n(.*?)^```$", (HOW_TO / page).read_text(), re.MULTILINE | re.DOTALL)
    exec(compile(program, page, "exec"), {"__name__": "__main__"})
    return capsys.readouterr().out.splitlines()


def test_the_scheme_of_the_page_runs_and_gives_every_device_one_vote(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        lines = output_of("add-a-scheme.md", capsys)
    finally:
        SCHEMES.pop("one-vote-each", None)

    by_samples, by_device = [[float(number) for number in re.findall(r"\d+\.\d+", line)] for line in lines]
    assert all("[1, 2, 3]" in line for line in lines)  # device 0 died, the others went on
    # The many samples of one device rule the mean, unless every device has one vote.
    assert by_samples[0] > by_samples[1]
    assert by_device[0] < by_device[1]


def test_the_data_set_of_the_page_is_shared_out_and_trained_on(capsys: pytest.CaptureFixture[str]) -> None:
    shared_out, scored = output_of("add-a-data-set.md", capsys)

    assert re.fullmatch(r"pumps \[\d+, \d+, \d+\]", shared_out)
    assert float(scored.split()[0]) > 0.9
    assert scored.endswith("[1, 2]")
