"""A report as one HTML file that needs nothing else: no script, no font, no picture from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tolfl.runs.report.colours import DARK, LIGHT, rules
from tolfl.runs.report.document import Block, Document, Grid, Heading, Listing, Picture, Side, Text, printable

#: Nothing may be loaded, whatever a record says.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"

_STYLE = f"""
:root {{ color-scheme: light dark; {rules(LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {rules(DARK)} }} }}
* {{ box-sizing: border-box; }}
body {{ margin: 0 auto; max-width: 60rem; padding: 1.5rem 1rem 4rem; background: var(--page); color: var(--ink);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }}
h1 {{ font-size: 1.6rem; line-height: 1.25; margin: 0; }}
h2 {{ font-size: 1.2rem; margin: 2.2rem 0 .6rem; padding-top: .8rem; border-top: 1px solid var(--line); }}
p {{ margin: .6rem 0; max-width: 46rem; }}
.subtitle, .small, figcaption {{ color: var(--soft); font-size: .9rem; }}
.lead {{ font-size: 1.08rem; }}
.notice {{ border-left: 4px solid var(--warn); background: var(--panel); padding: .6rem .9rem; }}
.scroll {{ overflow-x: auto; margin: .8rem 0; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .93rem; overflow-wrap: normal; }}
th, td {{ text-align: left; vertical-align: top; padding: .3rem 1.1rem .3rem 0; border-bottom: 1px solid var(--line); }}
td {{ overflow-wrap: break-word; min-width: 4.5rem; }}
.facts td {{ overflow-wrap: anywhere; }}
th {{ font-weight: 600; }}
tbody th {{ font-weight: 400; color: var(--soft); white-space: nowrap; }}
figure {{ margin: 1rem 0; }}
figure svg {{ display: block; max-width: 100%; height: auto; }}
figcaption {{ margin-top: .3rem; max-width: 46rem; }}
.side {{ display: flex; flex-wrap: wrap; gap: 0 2rem; }}
.side figure {{ flex: 1 1 20rem; min-width: 0; }}
pre {{ background: var(--panel); padding: .8rem 1rem; font-size: .8rem; line-height: 1.4; columns: 18rem 2;
  white-space: pre-wrap; border-radius: .3rem; }}
@media print {{
  :root {{ {rules(LIGHT)} color-scheme: light; }}
  body {{ max-width: none; padding: 0; font-size: 10pt; }}
  h2 {{ break-after: avoid; }}
  figure, tr, .notice {{ break-inside: avoid; }}
  .scroll {{ overflow: visible; }}
}}
"""


def to_html(document: Document) -> str:
    """Return a report as the text of an HTML file."""
    title, subtitle = _safe(document.title), _safe(document.subtitle)
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title>",
            f"<style>{_STYLE}</style>",
            "</head>",
            "<body>",
            "<main>",
            f"<h1>{title}</h1>",
            f'<p class="subtitle">{subtitle}</p>',
            *(_block(block) for block in document.blocks),
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _safe(text: str) -> str:
    return escape(printable(text), quote=True)


def _block(block: Block) -> str:
    match block:
        case Heading():
            return f"<h2>{_safe(block.text)}</h2>"
        case Text():
            return f'<p class="{block.kind}">{_safe(block.text)}</p>'
        case Grid():
            return _grid(block)
        case Picture():
            return _picture(block)
        case Side():
            return f'<div class="side">{"".join(_picture(picture) for picture in block.pictures)}</div>'
        case Listing():
            return f"<pre>{_safe(block.text)}</pre>"


def _grid(grid: Grid) -> str:
    head, kind = "", "table" if grid.columns else "facts"
    if grid.columns:
        cells = "".join(f'<th scope="col">{_safe(column)}</th>' for column in grid.columns)
        head = f"<thead><tr>{cells}</tr></thead>"
    rows = "".join(_row(row) for row in grid.rows)
    # Focusable, so that a table that is wider than the window can be scrolled with the keyboard.
    return f'<div class="scroll {kind}" tabindex="0"><table>{head}<tbody>{rows}</tbody></table></div>'


def _row(row: Sequence[str]) -> str:
    first, *others = row
    return f'<tr><th scope="row">{_safe(first)}</th>{"".join(f"<td>{_safe(cell)}</td>" for cell in others)}</tr>'


def _picture(picture: Picture) -> str:
    label = _safe(picture.caption)
    svg = picture.svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    return f"<figure>{svg}<figcaption>{label}</figcaption></figure>"
