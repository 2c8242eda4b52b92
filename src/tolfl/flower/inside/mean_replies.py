"""Replies that are averaged on their way: what a device adds of its reply, and the one reply that the total makes.

Arrays of another layout are added up under another key, and each metric under its own: what does not belong together
is never mixed. The closer takes the layout with the most examples.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict

from .packing import pack, unpack

#: A part of a contribution: key, how it adds up, its weight, its kind of number, its bytes.
Part = tuple[str, str, int, str, bytes]


_ONE = -1  #: in place of a length: a number, and no list


class BadReplyError(Exception):
    """A reply that cannot be averaged; the sentence says why."""


def mean_parts(content: Any, weighted_by: str, is_train: bool) -> list[Part]:
    """Return what a reply adds to the fleet's mean."""
    if len(content.metric_records) != 1 or (is_train and len(content.array_records) != 1):
        expected = "one ArrayRecord and one MetricRecord" if is_train else "one MetricRecord"
        raise BadReplyError(f"its reply must have {expected}")
    metrics = dict(next(iter(content.metric_records.values())))
    weight = metrics.pop(weighted_by, None)
    if isinstance(weight, bool) or not isinstance(weight, (int, float)):
        raise BadReplyError(f"its reply has no number {weighted_by!r} among its metrics")
    if weight != int(weight) or weight < 0:
        raise BadReplyError(f"{weighted_by} = {weight}: a weight is a whole number")
    parts: list[Part] = [("weight", "sum", 1, "i8", np.array([int(weight)], np.int64).tobytes())]
    if weight:
        parts += _metric_parts(metrics, int(weight))
        parts += _array_parts(next(iter(content.array_records.values())), int(weight)) if is_train else []
    return parts


def _metric_parts(metrics: dict[str, Any], weight: int) -> list[Part]:
    """Return a part of each metric; numbers that are not finite have no mean, and are left out."""
    parts: list[Part] = []
    for name, value in metrics.items():
        numbers = np.atleast_1d(np.array(value, np.float64))
        if numbers.size and np.isfinite(numbers).all():
            length = len(value) if isinstance(value, list) else _ONE
            parts.append((f"metric/{length}/{name}", "mean", weight, "f8", numbers.tobytes()))
    return parts


def _array_parts(arrays: Any, weight: int) -> list[Part]:
    layout = []
    values: dict[str, list[Any]] = {}
    for name, array in arrays.items():
        numbers = np.asarray(array.numpy())
        if numbers.dtype.kind not in "fiub":
            raise BadReplyError(f"array {name!r} holds {numbers.dtype}, which has no mean")
        if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
            raise BadReplyError(f"array {name!r} has numbers that are not finite; use a smaller step")
        kind = _mean_kind(numbers.dtype)
        values.setdefault(kind, []).append(numbers.ravel().astype(kind))
        layout.append([name, numbers.dtype.str, list(numbers.shape)])
    packed = pack(layout)
    name = hashlib.sha256(packed).hexdigest()[:12]
    parts: list[Part] = [
        (f"arrays/{kind}/{name}", "mean", weight, kind, np.concatenate(found).tobytes())
        for kind, found in values.items()
        if sum(map(len, found))
    ]
    return [*parts, (f"arrays/layout/{name}", "max", 1, "u1", packed)]


def _mean_kind(dtype: Any) -> str:
    return "f4" if dtype.kind == "f" and dtype.itemsize <= 4 else "f8"


class MeanTotal:
    """The sum of a round: parts by key, each its mean or sum, how many examples it is over, and whose."""

    def __init__(self, parts: dict[str, tuple[bytes, int, list[int]]]) -> None:
        self._parts = parts
        layouts = [key.rpartition("/")[2] for key in parts if key.startswith("arrays/layout/")]
        self._layout = max(sorted(layouts), key=self._n_examples, default="")
        chosen = set(self._devices(self._layout))
        self.left_out = sorted({device for name in layouts for device in self._devices(name)} - chosen)

    def _keys(self, layout: str) -> list[str]:
        return [f"arrays/{kind}/{layout}" for kind in ("f4", "f8") if f"arrays/{kind}/{layout}" in self._parts]

    def _n_examples(self, layout: str) -> int:
        return max((self._parts[key][1] for key in self._keys(layout)), default=0)

    def _devices(self, layout: str) -> list[int]:
        return self._parts[f"arrays/layout/{layout}"][2] if layout else []

    def has_reply(self, is_train: bool) -> bool:
        """Return whether anybody replied with examples, and nothing of that is missing."""
        if "weight" not in self._parts or self._weight <= 0:
            return False
        if not is_train:
            return True
        layout = self._parts.get(f"arrays/layout/{self._layout}")
        kinds = (
            {_mean_kind(np.dtype(dtype)) for _, dtype, shape in unpack(layout[0]) if 0 not in shape} if layout else None
        )
        return kinds is not None and all(f"arrays/{kind}/{self._layout}" in self._parts for kind in kinds)

    @property
    def _weight(self) -> int:
        return int(np.frombuffer(self._parts["weight"][0], np.int64)[0])

    def content(self, weighted_by: str, is_train: bool) -> Any:
        """Return the one reply that stands for all."""
        weight = self._n_examples(self._layout) if is_train else self._weight
        record = RecordDict({"metrics": MetricRecord({weighted_by: weight, **self._metrics()})})
        if is_train:
            record["arrays"] = ArrayRecord(self._arrays())
        return record

    def _arrays(self) -> dict[str, Any]:
        means = {
            key.split("/")[1]: np.frombuffer(self._parts[key][0], key.split("/")[1]) for key in self._keys(self._layout)
        }
        place = dict.fromkeys(means, 0)
        found = {}
        for name, dtype, shape in unpack(self._parts[f"arrays/layout/{self._layout}"][0]):
            kind, n = _mean_kind(np.dtype(dtype)), int(np.prod(shape, dtype=np.int64))
            values = means[kind][place[kind] : place[kind] + n] if n else np.zeros(0, kind)
            if n:
                place[kind] += n
            # A mean of whole numbers is none, as in Flower.
            is_float = np.dtype(dtype).kind == "f"
            found[name] = Array(values.reshape(shape).astype(dtype if is_float else values.dtype))
        return found

    def _metrics(self) -> dict[str, Any]:
        """Return the mean of each metric over those who gave it."""
        found: dict[str, Any] = {}
        for key in sorted(key for key in self._parts if key.startswith("metric/")):
            _, length, name = key.split("/", 2)
            values = np.frombuffer(self._parts[key][0], np.float64).tolist()
            found[name] = values[0] if int(length) == _ONE else values
        return found
