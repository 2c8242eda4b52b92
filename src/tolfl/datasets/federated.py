"""Samples with their classes, as every loader returns them; then one slice per device, and a common test set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tolfl.core.errors import DataError
from tolfl.tables.schema import name_and_unit, value_features, word_column

if TYPE_CHECKING:
    from tolfl.tables import Schema

#: Scaled rows are float32; rows as they are may be float64.
Samples = NDArray[np.floating]


#: The class of all rows where nothing says otherwise.
TYPICAL = "typical"


@dataclass(frozen=True, eq=False)
class RawData:
    """Samples with their classes, and what else is known of each.

    >>> raw = RawData("tiny", np.zeros((3, 2), np.float32), np.array(["a", "b", "a"]))
    >>> raw.classes, raw.n_samples
    (('a', 'b'), 3)
    """

    name: str
    samples: Samples | NDArray[np.uint8]
    """Shape `(n_samples, *sample_shape)`; bytes stay bytes until they are needed."""
    labels: NDArray[np.str_]
    """The class of each sample, by name: `normal`, `ok`, `0`, `false`, `benign` and `typical` are typical, everything
    else is anomalous, unless `dataset.typical` says which are."""
    is_test: NDArray[np.bool_] | None = None
    """Which samples their publisher set aside for testing; without it a fifth of the typical ones is."""
    owners: NDArray[np.str_] | None = None
    """Whose sample it is, where the data say so: a node, a site, a file. Each owner becomes a device; without it,
    classes are shared out (`dataset.partition`)."""
    times: NDArray[np.float64] | None = None
    """When it was taken, in any unit: with `dataset.split = "chronological"`, the last samples are tested."""
    feature_names: tuple[str, ...] = ()
    scale: float = 1.0
    """What samples are multiplied with first: 1/255 for bytes of pictures."""
    missing: NDArray[np.bool_] | None = None
    """Where a value is missing, shape of `samples`: 0 until it becomes the mean of the typical training samples."""
    schema: Schema | None = None
    """How a table of one's own was read."""
    networks: NDArray[np.uint64] | None = None
    """Hashes of the networks in captures of 802.11; they are not to leave the device."""

    @property
    def n_samples(self) -> int:
        """How many samples there are."""
        return len(self.labels)

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes in order: numbers by value, else by name."""
        return in_order(np.unique(self.labels).tolist())

    @property
    def names(self) -> tuple[str, ...]:
        """The names of a sample's features."""
        return self.feature_names or tuple(f"x{place}" for place in range(int(np.prod(self.samples.shape[1:]))))

    def values(self, rows: slice | NDArray[np.int64], advice: str = "") -> Samples:
        """Return rows as flat numbers, NaN where a value is missing; `advice`: what to do, where none may be.

        What is measured may be missing all the same: no signal strength of a second without a frame.
        """
        values = self.samples.reshape(self.n_samples, -1)[rows].astype(np.float32, copy=isinstance(rows, slice))
        if self.scale != 1.0:
            values *= np.float32(self.scale)
        if self.missing is None:
            return values
        values[self.missing.reshape(self.n_samples, -1)[rows]] = np.nan
        if advice and (gaps := self.gaps(values)).any():
            row, column = (int(place) for place in np.argwhere(gaps)[0])
            name = word_column(self.names[column]) or self.names[column]
            number = int(np.arange(self.n_samples)[rows][row]) + 1
            n_more = self.n_missing(values) - 1
            others = f" ({n_more} more {'is' if n_more == 1 else 'are'})" if n_more else ""
            raise DataError(f"{self.name}: data row {number}: {name!r} is missing{others}; {advice}")
        return values

    def gaps(self, values: Samples) -> NDArray[np.bool_]:
        """Return which values are missing and should not be."""
        may_miss = np.array([bool(name_and_unit(name)[3]) for name in self.names])
        return np.asarray(np.isnan(values) & ~may_miss)

    def n_missing(self, values: Samples) -> int:
        """Return how many values are missing and should not be; a word is one, however many features it has."""
        return int(self.gaps(values)[:, value_features(self.names)].sum())


def in_order(names: Sequence[str]) -> tuple[str, ...]:
    """Return names sorted, numbers among them by value.

    >>> in_order(["10", "9", "b"])
    ('9', '10', 'b')
    """
    return tuple(sorted(names, key=lambda name: (not name.isdecimal(), int(name) if name.isdecimal() else 0, name)))


# -- shared out over devices --------------------------------------------------------------------------------------


def bounds_of(slices: Iterable[Sized]) -> tuple[int, ...]:
    """Return where each device's rows begin when all slices lie one after the other, and where the last ones end.

    >>> bounds_of(["ab", "", "cde"])
    (0, 2, 2, 5)
    """
    return (0, *accumulate(map(len, slices)))


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)  # arrays: equality is identity
class FederatedDataset:
    """Typical samples of every device, and a test set of typical and anomalous ones.

    All slices lie in one array, so that 10,000 devices are one block of memory and not 10,000.

    >>> data = FederatedDataset.from_arrays([np.zeros((3, 2)), np.ones((1, 2))])
    >>> data.n_devices, data.n_samples(0), data.slice_of(1).tolist()
    (2, 3, [[1.0, 1.0]])
    """

    name: str
    pool: Samples
    """Training samples of all devices, shape `(n_samples, *sample_shape)`."""
    bounds: tuple[int, ...]
    """Device d has the rows from `bounds[d]` to `bounds[d + 1]`."""
    test: Samples | None = None
    is_anomalous: NDArray[np.bool_] | None = None
    validation: Samples | None = None
    """Held-back typical samples, to choose between models without looking at the test set."""
    labels: NDArray[np.str_] | None = None
    """The class of every training sample, where it is known; it is not used in training."""
    test_labels: NDArray[np.str_] | None = None
    """The class of every test sample, or the kind of anomaly."""
    feature_names: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """Of the devices, where they have any but their numbers."""
    schema: Schema | None = None
    """How a table of one's own was read."""
    networks: NDArray[np.uint64] | None = None
    """Hashes of the networks in captures of 802.11; they are not to leave the device."""

    @classmethod
    def from_arrays(
        cls,
        slices: Sequence[ArrayLike],
        test: tuple[ArrayLike, ArrayLike] | None = None,
        name: str = "arrays",
        validation: ArrayLike | None = None,
    ) -> FederatedDataset:
        """Return a data set of one array per device; `test` is samples and labels, 1 = anomalous."""
        if len(slices) == 0:
            raise DataError("no device has data; give at least one array")
        arrays = [_checked(array, f"the data of device {device}") for device, array in enumerate(slices)]
        shape = next((array.shape[1:] for array in arrays if len(array)), None)
        if shape is None:
            raise DataError("no device has a single sample")
        arrays = [array if len(array) else np.empty((0, *shape), np.float32) for array in arrays]
        for device, array in enumerate(arrays):
            if array.shape[1:] != shape:
                raise DataError(
                    f"the data of device {device} has samples of shape {array.shape[1:]}, those before it {shape}; "
                    "all devices need the same features"
                )
        bounds = bounds_of(arrays)
        held_back = None if validation is None else _checked(validation, "the validation set")
        if held_back is not None and held_back.shape[1:] != shape:
            raise DataError(f"the validation set has samples of shape {held_back.shape[1:]}, the training data {shape}")
        if test is None:
            return cls(name, np.concatenate(arrays), bounds, validation=held_back)
        samples, labels = _checked(test[0], "the test set"), np.asarray(test[1])
        if samples.shape[1:] != shape:
            raise DataError(f"the test set has samples of shape {samples.shape[1:]}, the training data {shape}")
        if labels.shape != (len(samples),) or not np.isin(labels, (0, 1)).all():
            raise DataError(f"the test labels must be {len(samples)} values of 0 (typical) or 1 (anomalous)")
        if labels.all() or not labels.any():
            raise DataError("the test set needs typical samples (0) and anomalous ones (1) to be scored")
        return cls(name, np.concatenate(arrays), bounds, samples, labels.astype(bool), held_back)

    @property
    def n_devices(self) -> int:
        """How many devices there are."""
        return len(self.bounds) - 1

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return self.pool.shape[1:]

    @property
    def n_features(self) -> int:
        """How many numbers one sample has."""
        return int(np.prod(self.sample_shape))

    def n_samples(self, device: int) -> int:
        """Return how many training samples a device has."""
        return self.bounds[device + 1] - self.bounds[device]

    def slice_of(self, device: int) -> Samples:
        """Return the training samples of a device (a view)."""
        return self.pool[self.bounds[device] : self.bounds[device + 1]]


def _checked(array: ArrayLike, what: str) -> Samples:
    try:
        with np.errstate(over="ignore"):  # too large for float32 becomes infinite, which has an error of its own
            samples = np.ascontiguousarray(array, dtype=np.float32)
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor that is part of a graph
        raise DataError(f"{what} is not an array of numbers with rows of equal length") from None
    if samples.ndim < 2:
        raise DataError(f"{what} has shape {samples.shape}; give one row per sample")
    if not np.isfinite(samples).all():
        raise DataError(f"{what} has values that are not finite (NaN or infinite); remove or replace them")
    return samples
