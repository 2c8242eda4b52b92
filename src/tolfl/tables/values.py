"""One column of a table as numbers, as names or as seconds, whatever type it comes in.

Columns of windows and of NumPy files are arrays, and need NumPy alone; `arrow_values` reads all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

Values = NDArray[Any] | Any  #: an array of NumPy, or one of pyarrow, which has no types
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def kind_of_values(values: Values) -> str:
    """Return what a column holds: `numbers`, `text`, `times`, `nothing`, or else the name of its type."""
    if isinstance(values, np.ndarray):
        return {"U": "text", "M": "times"}.get(values.dtype.kind, "numbers")
    from tolfl.tables import arrow_values  # noqa: PLC0415  (pyarrow is an extra)

    return arrow_values.kind_of_values(values)


def numbers(values: Values, decimal: str = ".") -> tuple[Floats, Flags]:
    """Return values as numbers, NaN where one is missing, and which are none at all; true and false are 1 and 0.

    Where the values themselves leave open what 1,234 is, `decimal` says it: "," (1.234), "1,000" (1234) or "." (none).

    >>> numbers(np.array([True, False]))[0].tolist()
    [1.0, 0.0]
    """
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        return values.astype(np.float64), np.zeros(len(values), bool)
    from tolfl.tables import arrow_values  # noqa: PLC0415  (pyarrow is an extra)

    return arrow_values.numbers(as_arrow(values), decimal)


def names(values: Values) -> tuple[NDArray[np.str_], Flags]:
    """Return values as names, whole numbers without a point, and which are missing.

    >>> names(np.array([1.0, 2.5, np.nan]))
    (array(['1', '2.5', ''], dtype='<U3'), array([False, False,  True]))
    """
    if not isinstance(values, np.ndarray):
        from tolfl.tables import arrow_values  # noqa: PLC0415  (pyarrow is an extra)

        return arrow_values.names(values)
    if values.dtype.kind == "f":
        texts = np.array(["" if np.isnan(one) else str(one).removesuffix(".0") for one in values.tolist()], str)
    elif values.dtype.kind == "b":
        texts = np.where(values, "true", "false")
    else:
        texts = np.char.strip(values.astype(str))
        if values.dtype.kind == "O":
            texts[np.isin(texts, ("None", "nan", "<NA>"))] = ""
    return texts, texts == ""


def seconds(values: Values, is_day_first: bool | None = None) -> tuple[Floats, Flags]:
    """Return values as seconds, dates since 1970, numbers as they are; and which are no time.

    The other values decide the order of 1/2/2024; else `is_day_first` does. (default: the first of February)
    """
    if not isinstance(values, np.ndarray) or values.dtype.kind == "U":
        from tolfl.tables import arrow_values  # noqa: PLC0415  (pyarrow is an extra)

        return arrow_values.seconds(as_arrow(values), is_day_first)
    found = values.astype(np.float64) if values.dtype.kind != "M" else values.astype("M8[us]").astype(np.int64) / 1e6
    is_bad = np.isnat(values) if values.dtype.kind == "M" else ~np.isfinite(found)
    return np.where(is_bad, np.nan, found), is_bad


def value_at(values: Values, row: int) -> object:
    """Return one value, None where it is missing."""
    if not isinstance(values, np.ndarray):
        return values[row].as_py()
    value = values[row].item()
    return None if value != value else value  # noqa: PLR0124  (NaN)


def as_arrow(values: Values) -> pa.Array:
    """Return values as pyarrow has them."""
    import pyarrow as pa  # noqa: PLC0415  (an extra)

    return pa.array(values, from_pandas=True) if isinstance(values, np.ndarray) else values
