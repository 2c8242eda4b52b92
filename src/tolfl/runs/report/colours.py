"""Colours of a report by name, for a light page and for a dark one."""

from __future__ import annotations

import re

#: Text, text beside it, lines, the page, boxes on it, what goes on, what is lost, what is only half there.
LIGHT = {
    "ink": "#1c2127",
    "soft": "#56606b",
    "line": "#cfd6dd",
    "page": "#fefefe",
    "panel": "#f3f5f8",
    "accent": "#1a5fb3",
    "danger": "#b3261f",
    "warn": "#8a5300",
}
DARK = {
    "ink": "#e5e9ee",
    "soft": "#a4aeb9",
    "line": "#3c444d",
    "page": "#14181c",
    "panel": "#1e242a",
    "accent": "#79b2f7",
    "danger": "#ff8a80",
    "warn": "#e8b35c",
}


def named(svg: str) -> str:
    """Return a drawing that was made in light colours with their names in place of them."""
    for name, colour in LIGHT.items():
        svg = svg.replace(colour, f"var(--{name})")
    return svg


def filled(svg: str) -> str:
    """Return a drawing with names of colours as a file of its own, for a light page.

    >>> filled('<svg viewBox="0 0 1 1"><path style="fill: var(--ink)"/></svg>')
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"><path style="fill: #1c2127"/></svg>'
    """
    coloured = re.sub(r"var\(--(\w+)\)", lambda found: LIGHT[found[1]], svg)
    return coloured.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)


def rules(colours: dict[str, str]) -> str:
    """Return colours as CSS properties."""
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())
