"""Columns to samples: numbers as they are, words as one column per value, and a mask of what is missing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tolfl.datasets.federated import Samples
from tolfl.datasets.loaders.columns import Column, is_number, is_text, numbers, numbers_in_words, words
from tolfl.datasets.loaders.problems import DataFileError
from tolfl.datasets.loaders.rows import Rows

#: A column of words with more different values than this is a text or an identifier, not a category.
MAX_CATEGORIES = 50


@dataclass(frozen=True, eq=False)
class Features:
    """Samples, what each of their numbers is called, and where one is missing (None: nowhere)."""

    samples: Samples
    names: tuple[str, ...]
    missing: NDArray[np.bool_] | None


def to_features(rows: Rows, columns: dict[str, Column]) -> Features:
    """Return all columns as features, in their order; `columns` is emptied, so that no value is held twice."""
    n_rows = len(next(iter(columns.values())))
    categories: dict[str, list[str]] = {}
    names: list[str] = []
    for name, column in columns.items():
        columns[name], found = _as_feature(rows, name, column)
        if found is not None:
            categories[name] = found
        names += [name] if found is None else [f"{name}={value}" for value in found]
    samples = np.zeros((n_rows, len(names)), np.float32)
    missing: NDArray[np.bool_] | None = None
    at = 0
    for name in list(columns):
        values = _values(rows, name, columns.pop(name), categories.get(name))
        end = at + values.shape[1]
        is_missing = np.isnan(values)
        if is_missing.any():
            missing = np.zeros(samples.shape, np.bool_) if missing is None else missing
            missing[:, at:end] = is_missing
            values = np.where(is_missing, 0.0, values)
        samples[:, at:end] = values
        at = end
    return Features(samples, tuple(names), missing)


def _values(rows: Rows, name: str, column: Column, categories: list[str] | None) -> NDArray[np.float32 | np.float64]:
    """Return the features that a column becomes, shape `(n_rows, n_features)`; NaN where it is missing."""
    if categories is None:
        return numbers(rows, name, column)[:, None]
    places = pc.index_in(column, pa.array(categories, pa.string())).to_numpy()
    values: NDArray[np.float32] = (places[:, None] == np.arange(len(categories))).astype(np.float32)
    values[np.isnan(places)] = np.nan
    return values


def _as_feature(rows: Rows, name: str, column: Column) -> tuple[Column, list[str] | None]:
    """Return a column as numbers, or as words with their different values."""
    if pa.types.is_null(column.type) or is_number(column.type):
        return column, None
    if pa.types.is_temporal(column.type):
        raise DataFileError(
            rows.path, f"column {name!r} holds dates or times; name it as the time column, or remove it"
        )
    if not is_text(column.type):
        what = "text that is not UTF-8" if pa.types.is_binary(column.type) else str(column.type)
        raise DataFileError(rows.path, f"column {name!r} holds {what}; convert it to numbers or words, or remove it")
    column = words(column)
    as_numbers = numbers_in_words(rows, name, column)
    if as_numbers is not None:
        return as_numbers, None
    n_different = pc.count_distinct(column, mode="only_valid").as_py()
    if n_different > MAX_CATEGORIES:
        raise DataFileError(
            rows.path,
            f"column {name!r} holds words with {n_different} different values, such as "
            f"{column.drop_null()[0].as_py()!r}; more than {MAX_CATEGORIES} cannot become features: remove it, or name "
            "it as the device, label or time column",
        )
    return column, sorted(pc.unique(column).drop_null().to_pylist())
