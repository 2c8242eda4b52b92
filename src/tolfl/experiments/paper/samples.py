"""What the samples look like: feature means by class for Comms-ML, class-mean pictures for the picture sets.

The paper shows 20 of Comms-ML's 112 features for one class. Here are all of them, for every class, because what matters
is where typical and anomalous ones differ. Its jobs are the plain baseline that knows such a mean: no rounds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from operator import itemgetter
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tolfl.core.plot_style import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, bare, new_figure
from tolfl.core.spec import CommsMLSettings, DatasetSpec, RunSpec
from tolfl.datasets import RawData, load_raw
from tolfl.datasets.public_files import CLASS_NAMES
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
#: How features are called in tables and figures, with their units.
_LABELS = {
    "packets": "packets",
    "gap_min_s": "shortest gap (s)",
    "gap_max_s": "longest gap (s)",
    "gap_mean_s": "mean gap (s)",
    "tcp_packets": "TCP packets",
    "udp_packets": "UDP packets",
    "wire_min_bytes": "shortest packet (bytes)",
    "wire_max_bytes": "longest packet (bytes)",
    "wire_mean_bytes": "mean packet (bytes)",
    "unique_lengths": "different lengths",
    "unique_sources": "different sources",
    "unique_destinations": "different destinations",
}
#: Colour and mark of the typical classes, and of the anomalous ones.
_STYLES = {
    False: ((BLUE, "o"), (GREEN, "s"), (SKY, "^"), (BLACK, "v")),
    True: ((VERMILION, "D"), (ORANGE, "P"), (PURPLE, "X"), (BLACK, "*")),
}
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
    names = () if spec.fine else CLASS_NAMES.get(raw.name, ())
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
    features = rows_where(rows, kind="features")
    pictures = rows_where(rows, kind="picture")
    tables, figures = [_data_sets(rows)], dict[str, "Callable[[], Figure]"]()
    verdicts = [_as_published(rows)]
    if features:
        tables.insert(0, _means(features))
        verdicts.append(_differ(features))
        figures["samples"] = lambda: _plot_features(features)
    if pictures:
        figures["samples-pictures"] = lambda: _plot_pictures(pictures)
    return ExperimentReport(
        "samples", "Samples: what typical and anomalous ones look like", rows, tables, verdicts, figures
    )


def _n_statistics(row: Row) -> int:
    return sum(name in _LABELS for name in row["feature_names"])


def _means(rows: Sequence[Row]) -> Table:
    n_statistics = _n_statistics(rows[0])
    shown = [
        (_LABELS[name], *(f"{row['means'][place]:.4g}" for row in rows))
        for place, name in enumerate(rows[0]["feature_names"][:n_statistics])
    ]
    n_readings = len(rows[0]["means"]) - n_statistics
    readings = (f"{float(np.mean(row['means'][n_statistics:])):.3f}" for row in rows)
    shown.append((f"mean of the {n_readings} readings (amplitude)", *readings))
    classes = tuple(f"{row['class']}{'*' if row['is_anomalous'] else ''}" for row in rows)
    notes = (
        f"* anomalous. {rows[0]['n_samples']:,} samples per class, each a window of traffic in which the router sends.",
        "All traffic is UDP. Amplitudes: a frame is sent with mean power 1.",
    )
    return Table(f"Means of {rows[0]['data']}'s features, by class", ("feature", *classes), tuple(shown), notes)


def _data_sets(rows: Sequence[Row]) -> Table:
    shown = []
    for name in distinct_values(rows, "data"):
        paper = published()["data_sets"][name]
        n_features, n_classes, n_samples = _ours(rows, name)
        shown.append(
            (
                name,
                f"{n_features} ({' x '.join(map(str, paper['shape']))})",
                f"{n_classes} ({paper['classes']})",
                f"{n_samples:,} ({paper['samples_per_class']:,})",
            )
        )
    notes = (
        "Comms-ML: the paper's classes are its four regions; here regions 1 to 3, and three kinds of anomaly of which "
        "region 4 is one. Pictures: as in the files at hand; CIFAR is grey, CIFAR-100 by its 20 coarse classes.",
    )
    columns = ("data set", "features", "classes", "samples per class")
    return Table("Data sets: here (in the paper)", columns, tuple(shown), notes)


def _ours(rows: Sequence[Row], data: str) -> tuple[int, int, int]:
    """Return how many features, classes and samples per class a data set has here."""
    of_data = rows_where(rows, data=data)
    return of_data[0]["n_features"], len(of_data), min(row["n_samples"] for row in of_data)


def _as_published(rows: Sequence[Row]) -> Verdict:
    same, differing = [], []
    for name in distinct_values(rows, "data"):
        paper, ours = published()["data_sets"][name], _ours(rows, name)
        theirs = (math.prod(paper["shape"]), paper["classes"], paper["samples_per_class"])
        texts = [f"{classes} classes of {samples:,} with {n} features" for n, classes, samples in (ours, theirs)]
        if ours == theirs:
            same.append(f"{name}: as printed")
        else:
            differing.append(f"{name}: {texts[0]}, printed {texts[1]}")
    claim = "Classes, samples and features are as the paper prints them"
    return Verdict(claim, not differing, "; ".join([*differing, *same]))


def _differ(rows: Sequence[Row]) -> Verdict:
    """Look for one feature per anomaly that tells it from every typical class by its mean."""
    typical = [row for row in rows if not row["is_anomalous"]]
    evidence, distances = [], []
    for row in rows:
        if row["is_anomalous"]:
            apart = np.min([distance(row, other) for other in typical], axis=0)
            best = int(np.argmax(apart))
            distances.append(float(apart[best]))
            name = row["feature_names"][best]
            evidence.append(f"{row['class']}: {_LABELS.get(name, name.replace('_', ' '))}, {apart[best]:.2f}")
    claim = "Each anomaly has a feature whose mean is a standard deviation or more from that of every typical class"
    return Verdict(claim, min(distances, default=0.0) >= 1.0, "; ".join(evidence) + " standard deviations")


def distance(a: Row, b: Row) -> NDArray[np.float64]:
    """Return how far apart the means of two classes are, in pooled standard deviations; 0 where nothing varies."""
    gap: NDArray[np.float64] = np.abs(np.subtract(a["means"], b["means"]))
    spread: NDArray[np.float64] = np.sqrt((np.square(a["stds"]) + np.square(b["stds"])) / 2)
    return np.divide(gap, spread, out=np.zeros_like(gap), where=spread > 0)


def _plot_features(rows: Sequence[Row]) -> Figure:
    """Return the statistics as points on the scale that models see, and the readings as lines."""
    figure = new_figure(7, 4.2)
    panels = figure.subplot_mosaic([["statistics", "typical"], ["statistics", "anomalous"]], width_ratios=(1.0, 1.25))
    left, above, below = (panels[name] for name in ("statistics", "typical", "anomalous"))
    below.sharex(above)
    below.sharey(above)
    n_statistics = _n_statistics(rows[0])
    styles = {is_anomalous: itertools.cycle(own) for is_anomalous, own in _STYLES.items()}
    for number, row in enumerate(sorted(rows, key=itemgetter("is_anomalous"))):
        colour, mark = next(styles[row["is_anomalous"]])
        axes, line, what = (below, "--", " (anomalous)") if row["is_anomalous"] else (above, "-", "")
        points = row["scaled_means"][:n_statistics]
        places = np.arange(n_statistics) + (number + 0.5) / len(rows) * 0.7 - 0.35
        left.plot(points, places, mark, color=colour, markersize=4, linestyle="none", label=row["class"] + what)
        readings = row["means"][n_statistics : n_statistics + _SHOWN_READINGS]
        axes.plot(readings, color=colour, linestyle=line, linewidth=1.2)
    left.set_yticks(range(n_statistics), [_LABELS[name] for name in rows[0]["feature_names"][:n_statistics]])
    left.invert_yaxis()
    left.set_xlabel("mean, scaled: 0 to 1 is the typical range", fontsize=8)
    left.set_title("statistics of a window", fontsize=9)
    above.set_title(f"first {_SHOWN_READINGS} radio readings, typical", fontsize=9)
    below.set_title("anomalous", fontsize=9)
    above.tick_params(labelbottom=False)
    below.set_xlabel("reading", fontsize=9)
    for axes in (above, below):
        axes.set_ylabel("amplitude", fontsize=9)
    for axes in (left, above, below):
        bare(axes)
    left.tick_params(axis="y", length=0)
    figure.suptitle(f"{rows[0]['data']}: feature means by class", fontsize=10)
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
