"""The fleet as a drawing: clusters in boxes, heads on top, the chain between them, who is dead and who stands aside."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_GAP = 22.0
_WIDTH = 660.0  #: boxes that do not fit beside each other go on below


@dataclass(frozen=True)
class Mark:
    """How a device stands."""

    is_head: bool = False
    is_new: bool = False  #: it took over
    state: str = "trains"  #: or `dead`, `frozen`, `alone`, `out`


@dataclass(frozen=True)
class _Size:
    """How large things are: small in a large fleet, where ids would not be readable."""

    cell: float
    radius: float
    has_labels: bool

    @classmethod
    def of(cls, n_devices: int) -> _Size:
        if n_devices <= 60:
            return cls(40.0, 14.0, True)
        return cls(15.0, 5.5, False)


def draw_topology(clusters: Sequence[Sequence[int]], marks: Mapping[int, Mark]) -> str:
    """Return the fleet as SVG with named colours."""
    size = _Size.of(sum(len(cluster) for cluster in clusters))
    shapes: list[str] = []
    links: list[str] = []
    x, y, row_height, width = 0.0, 0.0, 0.0, 0.0
    before: tuple[float, float] | None = None
    for cluster in clusters:
        box = _Box(cluster, marks, size)
        if x and x + box.width > _WIDTH:
            x, y, row_height = 0.0, y + row_height + _GAP, 0.0
        shapes.append(box.draw(x, y))
        place = box.head_place(x, y)
        if place is not None:
            if before is not None:
                links.append(_chain_link(before, place, size))
            before = place
        x, row_height = x + box.width + _GAP, max(row_height, box.height)
        width = max(width, x - _GAP)
    height = y + row_height
    view = f"-4 -4 {width + 8:.0f} {height + 8:.0f}"
    # Boxes first: the chain passes over them, and devices stand on top of all.
    return (
        f'<svg viewBox="{view}" style="width: {width + 8:.0f}px" font-family="system-ui, sans-serif" '
        f'font-size="12" text-anchor="middle">{"".join(links)}{"".join(shapes)}</svg>'
    )


class _Box:
    """One cluster: its head on top, the others in rows below."""

    def __init__(self, cluster: Sequence[int], marks: Mapping[int, Mark], size: _Size) -> None:
        self.size, self.marks = size, marks
        heads = [device for device in cluster if marks.get(device, Mark()).is_head]
        self.head = heads[0] if heads else None
        self.others = [device for device in cluster if device != self.head]
        self.n_columns = max(1, min(len(self.others), math.ceil(math.sqrt(2 * len(self.others))), 40))
        n_rows = math.ceil(len(self.others) / self.n_columns)
        self.width = self.n_columns * size.cell + 12
        self.top_rows = 0 if self.head is None else 1
        self.height = (n_rows + self.top_rows) * size.cell + 12

    def head_place(self, x: float, y: float) -> tuple[float, float] | None:
        """Return where the head stands; None without one that trains with others."""
        if self.head is None or self.marks[self.head].state != "trains":
            return None
        return self._top(x, y)

    def _top(self, x: float, y: float) -> tuple[float, float]:
        return x + self.width / 2, y + 6 + self.size.cell / 2

    def draw(self, x: float, y: float) -> str:
        top, cell = self._top(x, y), self.size.cell
        places = {
            device: (
                x + 6 + (index % self.n_columns + 0.5) * cell,
                y + 6 + (self.top_rows + index // self.n_columns + 0.5) * cell,
            )
            for index, device in enumerate(self.others)
        }
        frame = (
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{self.width:.1f}" height="{self.height:.1f}" rx="8" '
            'style="fill: none; stroke: var(--line)"/>'
        )
        links = [
            _line(top, place, "stroke: var(--line); stroke-width: 1.5")
            for device, place in places.items()
            if self.head is not None and self.marks.get(device, Mark()).state == "trains" and self.size.has_labels
        ]
        devices = places if self.head is None else {self.head: top, **places}
        drawn = [_device(device, place, self.marks.get(device, Mark()), self.size) for device, place in devices.items()]
        return frame + "".join(links) + "".join(drawn)


def _device(device: int, place: tuple[float, float], mark: Mark, size: _Size) -> str:
    x, y = place
    fill, stroke, text, dash = {
        "trains": ("var(--page)", "var(--accent)", "var(--ink)", ""),
        "alone": ("var(--page)", "var(--warn)", "var(--ink)", ""),
        "out": ("var(--page)", "var(--soft)", "var(--soft)", "stroke-dasharray: 3 3"),
        "frozen": ("var(--panel)", "var(--soft)", "var(--soft)", "stroke-dasharray: 1 3"),
        "dead": ("var(--page)", "var(--danger)", "var(--ink)", ""),
    }[mark.state]
    if mark.is_head and mark.state == "trains":
        fill, text = "var(--accent)", "var(--page)"
    radius = size.radius
    style = f"fill: {fill}; stroke: {stroke}; stroke-width: 1.6; {dash}"
    parts = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" style="{style}"/>']
    if mark.is_new:
        ring = "fill: none; stroke: var(--accent); stroke-width: 2"
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius + 4}" style="{ring}"/>')
    if size.has_labels:
        parts.append(f'<text x="{x:.1f}" y="{y + 4:.1f}" style="fill: {text}">{device}</text>')
    if mark.state == "dead":
        reach = radius * 0.95
        # Thin where there is an id to be read through it.
        cross = f"stroke: var(--danger); stroke-width: {1 if size.has_labels else 2}; opacity: 0.75"
        parts.append(_line((x - reach, y - reach), (x + reach, y + reach), cross))
        parts.append(_line((x - reach, y + reach), (x + reach, y - reach), cross))
    role = "head" if mark.is_head else "member"
    return f"<g><title>device {device}: {role}, {mark.state}</title>{''.join(parts)}</g>"


def _line(start: tuple[float, float], end: tuple[float, float], style: str) -> str:
    (x1, y1), (x2, y2) = start, end
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" style="{style}"/>'


def _chain_link(start: tuple[float, float], end: tuple[float, float], size: _Size) -> str:
    """Return an arrow from one head to the next."""
    (x1, y1), (x2, y2) = start, end
    length = math.hypot(x2 - x1, y2 - y1) or 1.0
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    rim = size.radius + 6
    tip = x2 - dx * rim, y2 - dy * rim
    back, wing = (9.0, 4.0) if size.has_labels else (5.0, 2.5)
    base = tip[0] - dx * back, tip[1] - dy * back
    corners = [tip, (base[0] - dy * wing, base[1] + dx * wing), (base[0] + dy * wing, base[1] - dx * wing)]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    # A link to the next row passes over others: it steps back behind them.
    weight = "stroke-width: 2" if y1 == y2 else "stroke-width: 1; stroke-dasharray: 4 4; opacity: 0.6"
    stem = _line((x1 + dx * size.radius, y1 + dy * size.radius), base, f"stroke: var(--accent); {weight}")
    return f'{stem}<polygon points="{points}" style="fill: var(--accent)"/>'
