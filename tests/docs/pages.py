"""What stands in the fences of a page: commands, Python, and what programs answered."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Read by glob: a new tutorial is tested as soon as it is there.
PAGES = ["README.md", *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs" / "tutorials").glob("*.md")))]

_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fence: its language ('' where none is named) and what is in it."""

    language: str
    text: str

    @property
    def lines(self) -> list[str]:
        """Its commands, without the remarks behind them."""
        whole = self.text.replace("\\\n", " ")
        bare = (re.sub(r"\s+#\s.*$", "", line).strip() for line in whole.splitlines())
        return [line for line in bare if line and not line.startswith("#")]


def blocks_of(page: str) -> list[Block]:
    """Return the fences of a page, in order."""
    return [Block(language, text) for language, text in _FENCE.findall((ROOT / page).read_text(encoding="utf-8"))]


def commands_of(page: str) -> list[str]:
    """Return every line of a page that is meant for a shell."""
    return [line for block in blocks_of(page) if block.language in ("", "bash", "sh") for line in block.lines]
