"""Converts Flower's records and arrays to plain types that can be sent, and back. Nothing is pickled."""

from __future__ import annotations

from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from .packing import pack, unpack

#: Arrays by name, each its kind of number and its bytes: as they travel between this process and the device.
Arrays = dict[str, tuple[str, bytes]]

_RECORDS = {"A": ArrayRecord, "M": MetricRecord, "C": ConfigRecord}


# -- records ------------------------------------------------------------------------------------------------------


def plain_record(record: Any) -> dict[str, Any]:
    """Return what a RecordDict holds."""
    out: dict[str, Any] = {}
    for name, one in record.items():
        if isinstance(one, ArrayRecord):
            out[name] = ["A", {key: [a.dtype, list(a.shape), a.stype, a.data] for key, a in one.items()}]
        else:
            out[name] = ["M" if isinstance(one, MetricRecord) else "C", dict(one)]
    return out


def record_of(plain: dict[str, Any]) -> Any:
    """Return the RecordDict that was made plain; arrays are new objects, their bytes are shared."""
    out = RecordDict()
    for name, (kind, items) in plain.items():
        if kind == "A":
            arrays = {
                key: Array(dtype, tuple(shape), stype, data) for key, (dtype, shape, stype, data) in items.items()
            }
            out[name] = ArrayRecord(arrays)
        else:
            out[name] = _RECORDS[kind](dict(items))
    return out


# -- arrays in the state: numbers where they are numbers -------------------------------------------------------------


def number_kind(dtype: Any) -> str:
    """Return under which kind of number an array is kept as it is: `f4`, `f8`, or `raw` bytes."""
    name = np.dtype(dtype).str[1:]
    return name if name in ("f4", "f8") else "raw"


def stored_arrays(record: Any) -> Arrays:
    """Return an ArrayRecord as arrays of a state: one of each kind of number, and a layout of names and shapes."""
    groups: dict[str, list[bytes]] = {"f4": [], "f8": [], "raw": []}
    layout = []
    for name, array in record.items():
        values = np.asarray(array.numpy())
        kind = number_kind(values.dtype)
        groups[kind].append(np.ascontiguousarray(values).tobytes())
        layout.append([name, kind, values.dtype.str, list(values.shape)])
    stored = {f"arrays/{kind}": ("u1" if kind == "raw" else kind, b"".join(found)) for kind, found in groups.items()}
    return {**{key: one for key, one in stored.items() if one[1]}, "arrays/layout": ("u1", pack(layout))}


def loaded_arrays(state: Arrays) -> Any:
    """Return the ArrayRecord of a state; its arrays are copies."""
    place = {"f4": 0, "f8": 0, "raw": 0}
    found = {}
    for name, kind, dtype, shape in unpack(state["arrays/layout"][1]):
        n_bytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        data = state.get(f"arrays/{kind}", ("", b""))[1][place[kind] : place[kind] + n_bytes]
        place[kind] += n_bytes
        found[name] = Array(np.frombuffer(data, dtype).reshape(shape).copy())
    return ArrayRecord(found)


def is_finite(record: Any) -> bool:
    """Return whether the numbers of an ArrayRecord are finite."""
    arrays = (np.asarray(array.numpy()) for array in record.values())
    return all(bool(np.isfinite(values).all()) for values in arrays if values.dtype.kind == "f")
