"""What MkDocs does beyond its own: generated parts, links that leave docs/, diagrams without a foreign server."""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from docs.generate import links  # noqa: E402  (found through the line above)
from docs.generate.pages import PARTS  # noqa: E402

#: In this order, where a page has a diagram.
SCRIPTS = ("assets/vendor/mermaid-11.17.2.min.js", "assets/diagrams.js")
_MARK = re.compile(r"^<!-- generated: (\S+) -->$", re.MULTILINE)
#: Found last by the search of the site: names of methods and fields would hide the pages that explain the words.
_AFTER_OTHERS = ("reference/api.md", "reference/cli.md", "reference/wire.md")
#: Where a page of the site comes from, if not from docs/.
_origins: dict[str, str] = {}


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add what pages link to outside docs/, and pages to the sections of the navigation that do not name them."""
    pages = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    for path in links.reached(pages):
        place, text = links.place_in_site(path), links.shown(path)
        _origins[place] = path
        files.append(
            File.generated(config, place, abs_src_path=str(ROOT / path))
            if text is None
            else File.generated(config, place, content=text)
        )
    for section in config.nav or []:
        (listed,) = section.values()
        if isinstance(listed, list):
            listed += _unlisted(files, listed)
    return files


def _unlisted(files: Files, listed: list[Any]) -> list[str]:
    """Return pages of a section's folder that its list does not name: they come after the others."""
    folder = posixpath.dirname(listed[0]) if isinstance(listed[0], str) else ""
    there = [file.src_uri for file in files.documentation_pages() if posixpath.dirname(file.src_uri) == folder]
    return sorted(set(there) - set(listed)) if folder else []


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Fill in what is generated, and turn links that leave docs/."""
    uri = page.file.src_uri
    origin = _origins.get(uri, f"docs/{uri}")
    if uri in _AFTER_OTHERS:
        page.meta["search"] = {"boost": 0.1}
    filled = _MARK.sub(lambda found: PARTS[found[1]](), markdown)
    return links.replaced(filled, lambda target: links.target_in_site(origin, target))


def on_page_content(html: str, **_: Any) -> str:
    """Show a bar in the code of a table as a bar: GitHub wants it with a backslash, Python-Markdown would show that."""
    return re.sub(r"<td[^>]*>.*?</td>", lambda found: found[0].replace("\\|", "|"), html, flags=re.DOTALL)


def on_post_page(output: str, *, page: Page, **_: Any) -> str:
    """Load the copy of Mermaid where there is a diagram; the theme would fetch it from elsewhere."""
    if 'class="mermaid"' not in output:
        return output
    scripts = "".join(f'<script src="{get_relative_url(one, page.url)}"></script>' for one in SCRIPTS)
    return output.replace("</head>", f"{scripts}</head>", 1)
