"""The site builds, a broken link or anchor is an error, and a reader's browser asks nobody else for anything."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import tolfl
from tests.dashboard.browser import chromium, needs_chromium

ROOT = Path(__file__).resolve().parents[2]
#: What a browser loads by itself: not the target of a link that somebody clicks.
LOADED = re.compile(r"<(?:script|img|link|iframe)\b[^>]*?(?:src|href)=\"?(https?:)?//[^>]*>")


def built(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(site)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=False,
        capture_output=True,
        text=True,
        timeout=280,
    )


@pytest.mark.slow  # 20 s; `make docs` is the same
@pytest.mark.timeout(300)
def test_the_site_builds_and_has_what_it_links_to(tmp_path: Path) -> None:
    done = built(ROOT / "mkdocs.yml", tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    pages = {str(page.relative_to(tmp_path)): page.read_text(encoding="utf-8") for page in tmp_path.rglob("*.html")}
    assert [name for name in tolfl.__all__ if f'id="tolfl.{name}"' not in pages["reference/api/index.html"]] == []
    assert {name: LOADED.findall(text) for name, text in pages.items() if LOADED.search(text)} == {}
    assert (tmp_path / "repository" / "results" / "server.png").is_file()
    assert "class Hello" in re.sub(r"<[^>]+>", "", pages["repository/src/tolfl/net/wire.py/index.html"])
    with_diagrams = {name for name, text in pages.items() if 'class="mermaid"' in text}
    assert with_diagrams == {name for name, text in pages.items() if "vendor/mermaid" in text}
    assert "explanation/algorithm/index.html" in with_diagrams
    assert [path for path in tmp_path.rglob("*.py") if path.is_file()] == []
    found = json.loads((tmp_path / "search" / "search_index.json").read_bytes())["docs"]
    behind_others = {one["location"].partition("#")[0] for one in found if one.get("boost", 1) < 1}
    assert behind_others == {"reference/api/", "reference/cli/", "reference/wire/"}


@pytest.mark.timeout(300)
def test_a_broken_link_or_anchor_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    links = "[a](nowhere.md) [b](#lost) [c](other.md#gone) [d](other.md#here)"
    (tmp_path / "docs" / "README.md").write_text(f"# Home\n\n{links}\n")
    (tmp_path / "docs" / "other.md").write_text("# Other\n\n## Here\n")
    config = tmp_path / "mkdocs.yml"
    config.write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: docs\nnav: [README.md, other.md]\nhooks: []\nplugins: []\n"
    )

    done = built(config, tmp_path / "site")

    warnings = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("WARNING")]
    wanted = ("contains a link 'nowhere.md'", "'#lost', but there is no such anchor", "contain an anchor '#gone'")
    assert done.returncode != 0
    assert [any(text in line for line in warnings) for text in wanted] == [True] * 3
    assert len(warnings) == 3


@contextmanager
def served(folder: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@needs_chromium
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_diagrams_are_drawn_and_nobody_else_is_asked(tmp_path: Path) -> None:
    site = tmp_path / "site"
    assert built(ROOT / "mkdocs.yml", site).returncode == 0
    pages = [page for page in sorted(site.rglob("*.html")) if 'class="mermaid"' in page.read_text(encoding="utf-8")]

    with served(site) as address, chromium(tmp_path / "profile") as browser:
        for page in pages:
            browser.open(f"{address}/{page.relative_to(site)}")
            # The theme puts each drawing into an element of its own; a diagram with a mistake leaves its text behind.
            browser.until(lambda: not browser.find_all("pre.mermaid"), f"all diagrams of {page} are drawn")
            heights = [box.size["height"] for box in browser.find_all("div.mermaid")]
            assert heights
            assert min(heights) > 100
        assert {url.split("/")[2] for url in browser.requested() if url.startswith("http")} == {
            address.removeprefix("http://")
        }
        assert browser.complaints() == []
