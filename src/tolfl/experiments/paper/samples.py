"""What the samples look like: feature means by class for Comms-ML, class-mean pictures for the picture sets.

The paper shows 20 of Comms-ML's 112 features for one class. Here are all of them, for every class, because what matters
is where typical and anomalous ones differ. Its jobs are the plain baseline that knows such a mean: no rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tolfl.core.plot_style import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, bare, new_figure
from tolfl.core.spec import CommsMLSettings, DatasetSpec, RunSpec
from tolfl.datasets import RawData, load_raw
from tolfl.datasets.public_sets import PUBLIC_SETS
from tolfl.datasets.scaling import Moments, Scaler
from tolfl.datasets.split import choose
from tolfl.experiments.experiment import Experiment, Options
from tolfl.experiments.paper.published import published
from tolfl.experiments.result_rows import Row, distinct_values, rows_where
from tolfl.experiments.results import ExperimentReport, Table, Verdict
from tolfl.experiments.sweep import Job, Repetition

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PICTURES = {"fashion-mnist": (28, 28), "cifar-10": (32, 32), "cifar-100": (32, 32)}
_QUICK_WINDOWS = 100  #: per region
#: Typical classes, then anomalous ones.
_STYLES = ((BLUE, "o"), (GREEN, "s"), (SKY, "^"), (VERMILION, "D"), (ORANGE, "P"), (PURPLE, "X"))
_PER_LINE = 10  #: pictures
_SHOWN_READINGS = 50  #: more are not readable in one figure


def jobs(options: Options, rows: Sequence[Row] = ()) -> list[Job]:  # noqa: ARG001
    """Return one job per data set; quick: a hundred windows per region of Comms-ML."""
    generated = CommsMLSettings(windows_per_region=_QUICK_WINDOWS) if options.quick else CommsMLSettings()
    return [Job(name, RunSpec(scheme="mean-vector", data=name, comms_ml=generated)) for name in options.data]


def sample_rows(job: Job, repetitions: Sequence[Repetition]) -> list[dict[str, Any]]:
    """Return one row per class of a data set."""
    spec = job.spec
    found = (picture_rows if spec.data in _PICTURES else feature_rows)(load_raw(spec), spec.dataset)
    return [{**row, "job": repetitions[0].key} for row in found]


def feature_rows(raw: RawData, spec: DatasetSpec) -> list[Row]:
    """Return mean and standard deviation of every feature, class by class, and the mean on the scale of models."""
    typical, anomalous = choose(raw, spec)
    is_typical = np.isin(raw.labels, np.array(typical))
    scaler = Scaler.fit(Moments.of(_of(raw, is_typical)), "min-max")
    rows: list[Row] = []
    for name in (*typical, *anomalous):
        moments = Moments.of(_of(raw, raw.labels == name))
        rows.append(
            {
                "kind": "features",
                **_what(raw, name, name in anomalous),
                "feature_names": list(raw.feature_names),
                "means": moments.means.tolist(),
                "stds": moments.stds.tolist(),
                "scaled_means": scaler(moments.means).tolist(),
            }
        )
    return rows


def picture_rows(raw: RawData, spec: DatasetSpec) -> list[Row]:
    """Return the mean picture of every class; three digits are more than the eye resolves."""
    typical, anomalous = choose(raw, spec)
    names = () if spec.fine or raw.name not in PUBLIC_SETS else PUBLIC_SETS[raw.name].class_names
    rows: list[Row] = []
    for label in raw.classes:
        mean = _of(raw, raw.labels == label).mean(axis=0, dtype=np.float64)
        row = {"kind": "picture", **_what(raw, label, label in anomalous), "is_typical": label in typical}
        row["name"] = names[int(label)].replace("_", " ") if names else label
        rows.append({**row, "shape": list(_PICTURES[raw.name]), "mean": mean.round(3).tolist()})
    return rows


def _of(raw: RawData, is_meant: NDArray[np.bool_]) -> NDArray[np.float32]:
    return raw.samples[is_meant].astype(np.float32) * np.float32(raw.scale)


def _what(raw: RawData, name: str, is_anomalous: bool) -> dict[str, Any]:
    return {
        "data": raw.name,
        "class": name,
        "is_anomalous": is_anomalous,
        "n_samples": int((raw.labels == name).sum()),
        "n_features": int(np.prod(raw.samples.shape[1:])),
    }


def report(rows: Sequence[Row]) -> ExperimentReport:
    """Return the report of rows."""
    features, pictures = rows_where(rows, kind="features"), rows_where(rows, kind="picture")
    figures: dict[str, Callable[[], Figure]] = {}
    if features:
        figures["samples"] = lambda: _plot_features(features)
    if pictures:
        figures["samples-pictures"] = lambda: _plot_pictures(pictures)
    tables = [*([_means(features)] if features else []), _data_sets(rows)]
    title = "Samples: what typical and anomalous ones look like"
    return ExperimentReport("samples", title, rows, tables, [_differ(features)] if features else [], figures)


def _n_statistics(row: Row) -> int:
    """Return how many features come before the readings of the radio."""
    return sum(not name.startswith("reading_") for name in row["feature_names"])


def _means(rows: Sequence[Row]) -> Table:
    names, n = rows[0]["feature_names"], _n_statistics(rows[0])
    lines = [(names[place], *(f"{row['means'][place]:.4g}" for row in rows)) for place in range(n)]
    readings = (f"{float(np.mean(row['means'][n:])):.3f}" for row in rows)
    lines.append((f"mean of the {len(names) - n} readings (amplitude)", *readings))
    classes = tuple(f"{row['class']}{'*' if row['is_anomalous'] else ''}" for row in rows)
    notes = (
        f"* anomalous. {rows[0]['n_samples']:,} samples per class, each a window of traffic in which the router sends.",
        "All traffic is UDP. Amplitudes: a frame is sent with mean power 1.",
    )
    return Table(f"Means of {rows[0]['data']}'s features, by class", ("feature", *classes), tuple(lines), notes)


def _data_sets(rows: Sequence[Row]) -> Table:
    lines = []
    for name in distinct_values(rows, "data"):
        own, paper = rows_where(rows, data=name), published()["data_sets"][name]
        n_samples = min(row["n_samples"] for row in own)
        features = f"{own[0]['n_features']} ({math.prod(paper['shape'])})"
        samples = f"{n_samples:,} ({paper['samples_per_class']:,})"
        lines.append((name, features, f"{len(own)} ({paper['classes']})", samples))
    notes = (
        "Comms-ML: the paper's classes are its four regions; here regions 1 to 3, and three kinds of anomaly of which "
        "region 4 is one. Pictures: as in the files at hand; CIFAR is grey, CIFAR-100 by its 20 coarse classes.",
    )
    columns = ("data set", "features", "classes", "samples per class")
    return Table("Data sets: here (in the paper)", columns, tuple(lines), notes)


def _differ(rows: Sequence[Row]) -> Verdict:
    """Look for one feature per anomaly that tells it from every typical class by its mean."""
    typical = rows_where(rows, is_anomalous=False)
    evidence, distances = [], []
    for row in rows_where(rows, is_anomalous=True):
        apart = np.min([distance(row, other) for other in typical], axis=0)
        best = int(np.argmax(apart))
        distances.append(float(apart[best]))
        evidence.append(f"{row['class']}: {row['feature_names'][best]}, {apart[best]:.2f}")
    claim = "Each anomaly has a feature whose mean is a standard deviation or more from that of every typical class"
    return Verdict(claim, min(distances) >= 1.0, "; ".join(evidence) + " standard deviations")


def distance(a: Row, b: Row) -> NDArray[np.float64]:
    """Return how far apart the means of two classes are, in pooled standard deviations; 0 where nothing varies."""
    gap: NDArray[np.float64] = np.abs(np.subtract(a["means"], b["means"]))
    spread: NDArray[np.float64] = np.sqrt((np.square(a["stds"]) + np.square(b["stds"])) / 2)
    return np.divide(gap, spread, out=np.zeros_like(gap), where=spread > 0)


def _plot_features(rows: Sequence[Row]) -> Figure:
    """Return the statistics as points on the scale that models see, and the readings as lines."""
    figure = new_figure(7, 4.2)
    left, right = figure.subplots(1, 2, width_ratios=(1.0, 1.25))
    n, names = _n_statistics(rows[0]), rows[0]["feature_names"]
    for number, (row, (colour, mark)) in enumerate(zip(rows, _STYLES, strict=True)):
        line, what = ("--", " (anomalous)") if row["is_anomalous"] else ("-", "")
        places = np.arange(n) + (number + 0.5) / len(rows) * 0.7 - 0.35
        points = {"color": colour, "markersize": 4, "linestyle": "none", "label": row["class"] + what}
        left.plot(row["scaled_means"][:n], places, mark, **points)
        right.plot(row["means"][n : n + _SHOWN_READINGS], color=colour, linestyle=line, linewidth=1.2)
    left.set_yticks(range(n), names[:n])
    left.invert_yaxis()
    left.set_xlabel("mean, scaled: 0 to 1 is the typical range", fontsize=8)
    left.set_title("statistics of a window", fontsize=9)
    right.set_title(f"first {_SHOWN_READINGS} radio readings: amplitude", fontsize=9)
    right.set_xlabel("reading", fontsize=9)
    for axes in (left, right):
        bare(axes)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure


def _plot_pictures(rows: Sequence[Row]) -> Figure:
    """Return the mean picture of every class, one data set below the other."""
    lines: list[list[Row]] = []
    for name in distinct_values(rows, "data"):
        of_data = rows_where(rows, data=name)
        lines += [of_data[start : start + _PER_LINE] for start in range(0, len(of_data), _PER_LINE)]
    figure = new_figure(7, 0.98 * len(lines) + 0.3)
    grid = figure.subplots(len(lines), _PER_LINE, squeeze=False)
    for axes_row, line in zip(grid, lines, strict=True):
        for axes in axes_row:
            axes.set_axis_off()
        for axes, row in zip(axes_row, line, strict=False):
            axes.imshow(
                np.reshape(row["mean"], row["shape"]), cmap="gray_r" if row["data"].endswith("mnist") else "gray"
            )
            label = fill(row["name"], 13, break_long_words=False)
            colour = VERMILION if row["is_anomalous"] else BLUE if row["is_typical"] else "0.4"
            axes.set_title(f"{label}*" if row["is_anomalous"] else label, fontsize=5.5, color=colour, pad=2)
    names = ", ".join(distinct_values(rows, "data"))
    figure.suptitle(f"Class means: {names}. Blue: typical; red with *: anomalous; grey: not used", fontsize=8)
    return figure


EXPERIMENT = Experiment("samples", "feature means per class", ("comms-ml", *_PICTURES), jobs, sample_rows, report)
