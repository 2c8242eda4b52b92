"""`python -m docs.generate.cells_figure`: rows, cells and distances of the default detector, for its page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from tolfl.detect import DetectorSpec, fit_detector
from tolfl.detect.cells import Cells

FIGURE = Path(__file__).parents[1] / "figures" / "cells.png"


def typical_rows(n_rows: int, seed: int) -> np.ndarray:
    """Return rows of two columns along an arc and in a group: no single ellipse is their shape."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0.1, np.pi, n_rows)
    arc = np.column_stack([4 * np.cos(angle), 4 * np.sin(angle)])
    rows = np.where(rng.random(n_rows)[:, None] < 0.75, arc, [1.5, -1.5])
    return rows + 0.3 * rng.normal(size=rows.shape)


def draw() -> Figure:
    """Return scores over the plane, once with one cell and once with several."""
    slices = {f"site-{place}": typical_rows(250, place) for place in range(4)}
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    grid = np.stack(np.meshgrid(np.linspace(-7, 7, 240), np.linspace(-4.5, 6.5, 200)), axis=-1)
    for axis, spec, title in zip(
        axes, (DetectorSpec(model="mahalanobis"), DetectorSpec()), ("one cell: mahalanobis", "cells"), strict=True
    ):
        detector = fit_detector(slices, spec)
        model = detector.model
        assert isinstance(model, Cells)
        scores = detector.scores_of(grid.reshape(-1, 2)).reshape(grid.shape[:2])
        axis.contourf(grid[..., 0], grid[..., 1], np.log10(scores + 1), levels=24, cmap="viridis")
        limit = [detector.thresholds.threshold]
        axis.contour(grid[..., 0], grid[..., 1], scores, levels=limit, colors="white", linewidths=1.6)
        rows = np.concatenate(list(slices.values()))[::3]
        axis.scatter(rows[:, 0], rows[:, 1], s=4, color="black", label="typical rows")
        centres = model.scaling.back(model.centres)
        axis.scatter(centres[:, 0], centres[:, 1], s=50, color="orangered", marker="x", label="centres of cells")
        axis.set_title(f"{title}; white: the threshold for 1 % of false alarms", fontsize=10)
    axes[0].legend(loc="lower left", fontsize=8)
    return figure


if __name__ == "__main__":
    draw().savefig(FIGURE, dpi=90)
