"""Flower's records, arrays and strategies in plain kinds that travel, and back. Nothing is pickled."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from .packing import pack, unpack

#: Arrays by name, each its kind of number and its bytes: as they travel between this process and the device.
Arrays = dict[str, tuple[str, bytes]]

_RECORDS = {"A": ArrayRecord, "M": MetricRecord, "C": ConfigRecord}


class OddValueError(Exception):
    """A value of a kind that cannot be handed on."""


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


# -- what a strategy keeps ----------------------------------------------------------------------------------------


def plain_value(value: Any) -> Any:  # noqa: PLR0911  (one for each kind)
    """Return a value in a form that travels; `OddValueError` for one of another kind."""
    if value is None or isinstance(value, (bool, float, str, bytes)):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else ["int", str(value)]
    if isinstance(value, np.generic):
        return ["np", value.dtype.str, value.tobytes()]
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiubSU":
        return ["nd", value.dtype.str, list(value.shape), np.ascontiguousarray(value).tobytes()]
    if isinstance(value, (ArrayRecord, MetricRecord, ConfigRecord)):
        return ["record", plain_record(RecordDict({"it": value}))]
    if isinstance(value, RecordDict):
        return ["records", plain_record(value)]
    if isinstance(value, np.random.Generator):
        return ["generator", json.dumps(value.bit_generator.state)]
    if isinstance(value, random.Random):
        return ["random", json.dumps(value.getstate())]
    if type(value).__name__ == "Parameters" and hasattr(value, "tensors"):
        return ["parameters", value.tensor_type, list(value.tensors)]
    if isinstance(value, (set, frozenset)):
        return [type(value).__name__, sorted((plain_value(one) for one in value), key=repr)]
    if isinstance(value, (list, tuple)):
        return ["tuple" if isinstance(value, tuple) else "list", [plain_value(one) for one in value]]
    if isinstance(value, dict):
        return ["dict", [[plain_value(key), plain_value(one)] for key, one in value.items()]]
    raise OddValueError(type(value).__name__)


def value_of(plain: Any) -> Any:
    """Return the value that was made plain, as a new object."""
    return _VALUES[plain[0]](*plain[1:]) if isinstance(plain, list) else plain


def _generator(state: str) -> Any:
    told = json.loads(state)
    bits = getattr(np.random, told["bit_generator"])()
    bits.state = told
    return np.random.Generator(bits)


def _random(state: str) -> random.Random:
    version, numbers, gauss = json.loads(state)
    made = random.Random()
    made.setstate((version, tuple(numbers), gauss))
    return made


def _parameters(kind: str, tensors: list[bytes]) -> Any:
    from flwr.common import Parameters  # noqa: PLC0415  (of older apps)

    return Parameters(tensors, kind)


_VALUES: dict[str, Callable[..., Any]] = {
    "int": int,
    "np": lambda dtype, data: np.frombuffer(data, dtype)[0],
    "nd": lambda dtype, shape, data: np.frombuffer(data, dtype).reshape(shape).copy(),
    "record": lambda plain: record_of(plain)["it"],
    "records": record_of,
    "generator": _generator,
    "random": _random,
    "parameters": _parameters,
    "set": lambda items: {value_of(one) for one in items},
    "frozenset": lambda items: frozenset(value_of(one) for one in items),
    "list": lambda items: [value_of(one) for one in items],
    "tuple": lambda items: tuple(value_of(one) for one in items),
    "dict": lambda items: {value_of(key): value_of(one) for key, one in items},
}


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
    """Tell whether the numbers of an ArrayRecord are finite."""
    arrays = (np.asarray(array.numpy()) for array in record.values())
    return all(bool(np.isfinite(values).all()) for values in arrays if values.dtype.kind == "f")
