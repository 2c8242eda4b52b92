"""What every loader returns: samples as they are on disk, each with its class, before anybody splits or scales them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import DataError
from tolfl.datasets.federated import Samples
from tolfl.tables.schema import name_and_unit, value_features, word_column

if TYPE_CHECKING:
    from tolfl.tables import Schema

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
    """The class of each sample, by name."""
    is_test: NDArray[np.bool_] | None = None
    """Which samples their publisher set aside for testing."""
    owners: NDArray[np.str_] | None = None
    """Whose sample it is, where the data say so: a node, a site, a file."""
    times: NDArray[np.float64] | None = None
    """When it was taken, in any unit."""
    feature_names: tuple[str, ...] = ()
    scale: float = 1.0
    """What samples are multiplied with first: 1/255 for bytes of pictures."""
    missing: NDArray[np.bool_] | None = None
    """Where a value is missing, shape of `samples`; such values are 0 until they are imputed."""
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
        """What the numbers of a sample are called."""
        return self.feature_names or tuple(f"x{place}" for place in range(int(np.prod(self.samples.shape[1:]))))

    def values(self, rows: slice | NDArray[np.int64], advice: str = "") -> Samples:
        """Return rows as flat numbers, NaN where a value is missing; `advice`: what to do, where none may be.

        What is measured may be missing all the same: no signal strength of a second without a frame.
        """
        values = self.samples.reshape(self.n_samples, -1)[rows].astype(np.float32)
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
