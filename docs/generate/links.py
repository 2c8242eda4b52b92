"""Links that leave docs/: on GitHub they point at files of the repository, in the site at copies of them.

A Markdown file becomes a page, a picture or JSON file is copied, any other file is shown as a page with its text, and a
folder as a page with a list of its files. All of them are in the site below `repository/`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
#: The target of a link or picture, without its anchor; addresses and anchors of the same page are left alone.
_TARGET = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)[^)\s#]+")
_FENCE = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
_COPIED = (".json", ".md", ".png", ".svg")
_LANGUAGES = {".py": "python", ".service": "ini", ".toml": "toml", "Containerfile": "docker"}


def replaced(text: str, change: Callable[[str], str]) -> str:
    """Return a page with other targets of its links; code is no link.

    >>> replaced("[a](b.md#c) `x`", str.upper)
    '[a](B.MD#c) `x`'
    """
    parts = _FENCE.split(text)
    parts[::2] = [_TARGET.sub(lambda found: change(found[0]), part) for part in parts[::2]]
    return "".join(parts)


def targets(text: str) -> list[str]:
    """Return what a page links to.

    >>> targets("[a](b.md#c) [d](https://example.org)")
    ['b.md']
    """
    return [found for part in _FENCE.split(text)[::2] for found in _TARGET.findall(part)]


def place_in_site(path: str) -> str:
    """Return where a file of the repository is in the site's own tree of sources.

    >>> place_in_site("docs/reference/data.md"), place_in_site("SECURITY.md"), place_in_site("deploy/Containerfile")
    ('reference/data.md', 'repository/SECURITY.md', 'repository/deploy/Containerfile.md')
    """
    if (ROOT / path).is_dir():
        path = f"{path}/README.md"
    elif not path.startswith("docs/") and PurePosixPath(path).suffix not in _COPIED:
        path = f"{path}.md"
    return path.removeprefix("docs/") if path.startswith("docs/") else f"repository/{path}"


def target_in_site(page: str, target: str) -> str:
    """Return the target of a link on a page of the repository as it must be in the site."""
    wanted = place_in_site(_path(page, target))
    return posixpath.relpath(wanted, posixpath.dirname(place_in_site(page)) or ".")


def shown(path: str) -> str | None:
    """Return a file or folder of the repository as Markdown; None: it is copied as it is."""
    place = ROOT / path
    if place.is_dir():
        files = sorted(file.name for file in place.iterdir() if file.suffix in _COPIED)
        return "\n".join([f"# {path}/", "", *(f"- [{name}]({name})" for name in files), ""])
    if place.suffix == ".md":
        return place.read_text(encoding="utf-8")
    if place.suffix in _COPIED:
        return None
    language = _LANGUAGES.get(place.suffix or place.name, "text")
    return f"# {path}\n\n````{language}\n{place.read_text(encoding='utf-8')}````\n"


def reached(pages: Iterable[str]) -> Iterator[str]:
    """Yield the files outside docs/ that these pages of the repository lead to, directly or through one another."""
    waiting, seen = list(pages), set[str]()
    while waiting:
        page = waiting.pop()
        text = shown(page)
        for path in (_path(page, target) for target in targets(text or "")):
            if path not in seen and not path.startswith("docs/") and (ROOT / path).exists():
                seen.add(path)
                waiting.append(path)
                yield path


def _path(page: str, target: str) -> str:
    folder = page if (ROOT / page).is_dir() else posixpath.dirname(page)
    return posixpath.normpath(posixpath.join(folder, target))
