"""The tutorial about a real capture: what its commands print is what it promises."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import tolfl  # noqa: F401  (a fixture)
from tests.watch.alarms import lines_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/tutorials/watch-the-air.md").read_text()
CAPTURE = Path(os.environ.get("TOLFL_DATA", "")) / "captures" / "pmkid-not-recognized.cap"


@pytest.mark.slow
@pytest.mark.skipif(not CAPTURE.exists(), reason="TOLFL_DATA does not name a folder with the capture")
def test_the_tutorial_finds_the_floods_that_it_tells_of(tolfl, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]  # noqa: F811
    shutil.copy(CAPTURE, tmp_path)
    commands = [one for one in re.findall(r"^tolfl (.*)$", PAGE, re.MULTILINE) if "--interface" not in one]
    for command in commands[:3]:
        code, out, err = tolfl(*shlex.split(command))
        assert code == 0, err
        if command.startswith("fit"):
            assert "212 rows" in out
    events = lines_of(tmp_path / "alarms.jsonl")
    told = re.findall(r"^(\d\d:\d\d:\d\d)  (\w+)", PAGE, re.MULTILINE)

    assert len(events) == 17
    assert [(one["start"][11:19], one["severity"]) for one in events if one["event"] == "open"] == told
