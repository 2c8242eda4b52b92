"""The notebook runs, and prints what is stored in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

_NOTEBOOK = ROOT / "docs" / "tutorials" / "killed-device.ipynb"


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(300)
def test_the_notebook_prints_what_is_stored_in_it(tmp_path: Path) -> None:
    cells = [cell for cell in json.loads(_NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    program = "\n".join("".join(cell["source"]) for cell in cells)
    stored = "".join(line for cell in cells for output in cell["outputs"] for line in output["text"])

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout == stored
