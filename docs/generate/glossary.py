"""Words that the glossary of CONTRIBUTING replaces, wherever they came back: `python -m docs.generate.glossary`."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_TEXTS = (".py", ".c", ".h", ".js", ".html", ".css", ".md", ".service", ".toml", ".txt")
#: Where words still occur: rooms of `src/tolfl`, folders of `docs`, files beside them. Nothing is added here.
OPEN: dict[str, set[str]] = {
    "docs/explanation": {"newcomer", "victim"},  # names of variations, which stored rows have
    "experiments": {"newcomer", "victim"},
}


def glossary(text: str) -> list[str]:
    """Return the words in code type of the glossary's left column."""
    table = text.partition("| instead of | write |")[2].partition("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ")]
    return [word for cell in cells for word in re.findall(r"`([^`]+)`", cell)]


def places() -> dict[str, list[Path]]:
    """Return the files that are looked through, by room; tests and the changelog, which has old names, are not."""
    found = {name: [ROOT / name] for name in ("README.md", "SECURITY.md")}
    for path in sorted((ROOT / "src/tolfl").rglob("*")):
        if path.suffix in _TEXTS:
            found.setdefault(path.relative_to(ROOT / "src/tolfl").parts[0], []).append(path)
    for folder in ("benchmarks", "deploy", "docs"):
        for path in sorted((ROOT / folder).rglob("*")):
            # A decision keeps the words it was made in; what is in docs/assets is not ours.
            if path.suffix in _TEXTS and path.parent.name not in ("decisions", "vendor") and path != Path(__file__):
                found.setdefault("/".join(path.relative_to(ROOT).parts[:-1]), []).append(path)
    return found


def found_in(line: str, words: list[str]) -> list[str]:
    """Return the words that stand in a line, also as a part of a name or with a plural's s.

    >>> found_in("class VictimList: the_parcels = 1  # invictims", ["victim", "parcel"])
    ['victim', 'parcel']
    """
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", line)
    return [word.lower() for word in _pattern(tuple(words)).findall(text)]


@cache
def _pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(r"\b(" + "|".join(map(re.escape, words)) + r")s?\b", re.IGNORECASE)


def came_back(words: list[str]) -> tuple[list[str], dict[str, set[str]]]:
    """Return lines that say where a word came back, and the words that each room still has."""
    lines: list[str] = []
    rooms: dict[str, set[str]] = {}
    for room, paths in places().items():
        for path in paths:
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
                for word in found_in(line, words):
                    rooms.setdefault(room, set()).add(word)
                    if word not in OPEN.get(room, set()):
                        lines.append(f"{path.relative_to(ROOT)}:{number}: {word!r}; CONTRIBUTING says what to write")
    return lines, rooms


def main() -> None:
    """Print where words came back, and end with 1 if there are any."""
    lines, _ = came_back(glossary((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
