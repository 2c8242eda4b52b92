"""What is in a data set: counts per device and class, and a picture of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tolfl.datasets.federated import TYPICAL, FederatedDataset, Samples, in_order
from tolfl.datasets.public_sets import PUBLIC_SETS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PICTURE_SIZES = {784: (28, 28), 1024: (32, 32)}  #: features of pictures that we know
_COLOUR_FEATURES = 3072


@dataclass(frozen=True)
class Description:
    """Counts of a data set as its devices see it."""

    name: str
    n_features: int
    per_device: list[dict[str, int]]  #: training samples by class
    test: dict[str, int]  #: test samples by class or kind of anomaly
    anomalous: list[str]  #: which of the test classes are anomalies
    n_validation: int


def describe(data: FederatedDataset) -> Description:
    """Count what a data set holds."""
    labels = _labels(data)
    per_device = [_counts(labels[data.bounds[d] : data.bounds[d + 1]]) for d in range(data.n_devices)]
    test, anomalous = {}, []
    if data.is_anomalous is not None:
        names = np.where(data.is_anomalous, "anomalous", "typical") if data.test_labels is None else data.test_labels
        test = _counts(names)
        anomalous = list(in_order(np.unique(names[data.is_anomalous]).tolist()))
    n_validation = 0 if data.validation is None else len(data.validation)
    return Description(data.name, data.n_features, per_device, test, anomalous, n_validation)


def _counts(labels: np.ndarray) -> dict[str, int]:
    counts = Counter(labels.tolist())
    return {name: counts[name] for name in in_order(list(counts))}


def plot_classes(data: FederatedDataset) -> Figure:
    """Return a figure of the test set: pictures of each class, or the mean of each feature by class."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (slow to import, and not everybody draws)

    samples, names = _shown(data)
    classes = in_order(np.unique(names).tolist())
    if data.n_features in _PICTURE_SIZES or data.n_features == _COLOUR_FEATURES:
        figure = Figure(figsize=(8, 0.85 * len(classes) + 0.6), layout="constrained")
        axes = figure.subplots(len(classes), 8, squeeze=False)
        for row, name in enumerate(classes):
            _draw_pictures(list(axes[row]), samples[names == name], class_name(data.name, name))
        return figure
    figure = Figure(figsize=(8, 4), layout="constrained")
    plot = figure.subplots()
    for name in classes:
        plot.plot(samples[names == name].mean(axis=0), label=name, linewidth=1)
    plot.set(xlabel="feature", ylabel="mean, scaled", title=f"{data.name}: feature means by class")
    plot.legend(frameon=False, fontsize=9)
    return figure


def class_name(data_name: str, label: str) -> str:
    """Return the display name of a class, where its publisher gave it one.

    >>> class_name("fashion-mnist", "8"), class_name("comms-ml", "rate")
    ('8 Bag', 'rate')
    """
    # A number of CIFAR-100 may be a coarse or a fine class, and MNIST's names are its numbers.
    names = PUBLIC_SETS[data_name].class_names if data_name in ("fashion-mnist", "cifar-10") else ()
    return f"{label} {names[int(label)]}" if label.isdecimal() and int(label) < len(names) else label


def _shown(data: FederatedDataset) -> tuple[Samples, np.ndarray]:
    if data.test is not None and data.test_labels is not None:
        return data.test.reshape(len(data.test), -1), data.test_labels
    return data.pool.reshape(len(data.pool), -1), _labels(data)


def _labels(data: FederatedDataset) -> np.ndarray:
    return np.full(len(data.pool), TYPICAL) if data.labels is None else data.labels


def _draw_pictures(axes: list[Axes], samples: Samples, name: str) -> None:
    for place, cell in enumerate(axes):
        cell.set_axis_off()
        if place < len(samples):
            picture = samples[place]
            if len(picture) == _COLOUR_FEATURES:
                cell.imshow(picture.reshape(3, 32, 32).transpose(1, 2, 0).clip(0, 1))
            else:
                cell.imshow(picture.reshape(_PICTURE_SIZES[len(picture)]), cmap="gray_r")
    axes[0].set_title(name, fontsize=8, loc="left")
