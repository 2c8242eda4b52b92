"""Converts what a strategy may keep between rounds to plain types that can be sent, and back. Nothing is pickled."""

from __future__ import annotations

import datetime
import pathlib
import random
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from enum import Enum
from functools import reduce
from types import ModuleType
from typing import Any

import numpy as np
from flwr.app import Array, RecordDict

from .flower_values import plain_record, record_of
from .packing import pack, unpack

_FACTORIES: dict[str, Any] = {"NoneType": None, **{kind.__name__: kind for kind in (int, float, list, dict, set, str)}}


class OddValueError(Exception):
    """A value of a kind that cannot be handed on."""


class KeptValues:
    """Values of plain kinds, and objects of the app's own classes: every device has their code."""

    def __init__(self, is_own: Callable[[type], bool]) -> None:
        self._is_own = is_own

    def is_object(self, value: Any) -> bool:
        """Return whether a value is an object of one of the app's own classes, known by its attributes."""
        is_other = isinstance(value, (type, ModuleType, Enum)) or hasattr(value, "load_state_dict")
        return not is_other and hasattr(value, "__dict__") and self._is_own(type(value))

    def plain(self, value: Any) -> Any:
        """Return a value in a form that travels; `OddValueError` for one of another kind."""
        kind = type(value)
        if value is None or kind in (bool, float, str, bytes) or (kind is int and -(2**63) <= value < 2**63):
            return value
        if self._is_own(kind):
            name = f"{kind.__module__}:{kind.__qualname__}"
            if isinstance(value, Enum):
                return ["enum", name, value.name]
            if hasattr(value, "_fields"):
                return ["named", name, *map(self.plain, value)]
            if self.is_object(value):
                return ["object", name, self.plain(vars(value))]
        for base in kind.__mro__:
            name = f"{base.__module__.partition('.')[0]}.{base.__name__}"
            if name in _KINDS:
                return [name, *map(self.plain, _KINDS[name][0](value))]
        raise OddValueError(kind.__name__)

    def made(self, plain: Any) -> Any:
        """Return the value that was made plain, as a new object."""
        if not isinstance(plain, list):
            return plain
        kind, *parts = plain
        if kind in _KINDS:
            return _KINDS[kind][1](*map(self.made, parts))
        own = self._class_of(parts[0])
        if kind == "enum":
            return own[parts[1]]
        if kind == "named":
            return own(*map(self.made, parts[1:]))
        found = own.__new__(own)
        vars(found).update(self.made(parts[1]))
        return found

    def _class_of(self, name: str) -> Any:
        module, _, path = name.partition(":")
        found: Any = reduce(getattr, path.split("."), sys.modules[module])
        if not (isinstance(found, type) and self._is_own(found)):
            raise TypeError(f"{name} is no class of the app")
        return found


def _array_parts(values: Any) -> list[Any]:
    if values.dtype.kind not in "fiubcSUM":
        raise OddValueError(f"{values.dtype} array")
    return [values.dtype.str, values.shape, np.ascontiguousarray(values).tobytes()]


def _array(dtype: str, shape: tuple[int, ...], data: bytes) -> Any:
    return np.frombuffer(data, dtype).reshape(shape).copy()


def _tensor_parts(value: Any) -> list[Any]:
    try:
        return [value.detach().cpu().numpy(), str(value.device), value.requires_grad]
    except TypeError:
        raise OddValueError(f"tensor of {value.dtype}") from None


def _tensor(values: Any, device: str, requires_grad: bool) -> Any:
    return sys.modules["torch"].from_numpy(values).to(device).requires_grad_(requires_grad)


def _torch_generator(state: Any) -> Any:
    made = sys.modules["torch"].Generator()
    made.set_state(state)
    return made


def _generator(state: dict[str, Any]) -> Any:
    bits = getattr(np.random, state["bit_generator"])()
    bits.state = state
    return np.random.Generator(bits)


def _random_state(state: dict[str, Any]) -> Any:
    made = np.random.RandomState()
    made.set_state(state)
    return made


def _random(*state: Any) -> random.Random:
    made = random.Random()
    made.setstate(state)
    return made


def _parameters(tensors: list[bytes], kind: str) -> Any:
    from flwr.common import Parameters  # noqa: PLC0415  (of older apps)

    return Parameters(tensors, kind)


def _pairs(value: Any) -> list[Any]:
    return [part for pair in value.items() for part in pair]


def _dict(*parts: Any) -> dict[Any, Any]:
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _factory(value: Any) -> str:
    name = getattr(value.default_factory, "__name__", "NoneType")
    if _FACTORIES.get(name) is not value.default_factory:
        raise OddValueError("defaultdict with a function of its own")
    return name


def _in_order(value: Any) -> list[Any]:
    return sorted(value, key=repr)


def _record_parts(value: Any) -> list[Any]:
    return [pack(plain_record(RecordDict({"it": value})))]


def _record(data: bytes) -> Any:
    return record_of(unpack(data))["it"]


#: Kinds by their package and name: the parts of a value, which are made plain in turn, and the value of such parts.
#: A value of a subclass comes back as one of these.
_KINDS: dict[str, tuple[Callable[[Any], Any], Callable[..., Any]]] = {
    "builtins.int": (lambda value: [str(int(value))], int),
    "builtins.float": (lambda value: [float(value)], float),
    "builtins.str": (lambda value: [str(value)], str),
    "builtins.bytearray": (lambda value: [bytes(value)], bytearray),
    "builtins.complex": (lambda value: [value.real, value.imag], complex),
    "builtins.list": (list, lambda *items: list(items)),
    "builtins.tuple": (list, lambda *items: items),
    "builtins.set": (_in_order, lambda *items: set(items)),
    "builtins.frozenset": (_in_order, lambda *items: frozenset(items)),
    "builtins.dict": (_pairs, _dict),
    "collections.OrderedDict": (_pairs, lambda *parts: OrderedDict(_dict(*parts))),
    "collections.Counter": (_pairs, lambda *parts: Counter(_dict(*parts))),
    "collections.defaultdict": (
        lambda value: [_factory(value), dict(value)],
        lambda name, items: defaultdict(_FACTORIES[name], items),
    ),
    "collections.deque": (lambda value: [list(value), value.maxlen], deque),
    "pathlib.PurePath": (lambda value: [str(value)], pathlib.Path),
    "datetime.datetime": (lambda value: [value.isoformat()], datetime.datetime.fromisoformat),
    "datetime.date": (lambda value: [value.isoformat()], datetime.date.fromisoformat),
    "datetime.timedelta": (lambda value: [value.days, value.seconds, value.microseconds], datetime.timedelta),
    "random.Random": (lambda value: value.getstate(), _random),
    "numpy.generic": (lambda value: [np.asarray(value)], lambda values: values[()]),
    "numpy.ndarray": (_array_parts, _array),
    "numpy.Generator": (lambda value: [value.bit_generator.state], _generator),
    "numpy.RandomState": (lambda value: [value.get_state(legacy=False)], _random_state),
    "torch.Tensor": (_tensor_parts, _tensor),
    "torch.Generator": (lambda value: [value.get_state()], _torch_generator),
    "flwr.Array": (lambda value: [value.numpy()], Array),
    "flwr.Parameters": (lambda value: [value.tensors, value.tensor_type], _parameters),
    **dict.fromkeys(
        ("flwr.ArrayRecord", "flwr.MetricRecord", "flwr.ConfigRecord", "flwr.RecordDict"), (_record_parts, _record)
    ),
}
