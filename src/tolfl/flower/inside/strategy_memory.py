"""What a strategy remembers between rounds: found by looking at its attributes, sent as plain types, put back.

An attribute that is as it was after construction stays where it is, whatever its kind: every device has made its own.
Nothing is pickled.
"""

from __future__ import annotations

import datetime
import pathlib
import random
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum
from functools import reduce
from types import ModuleType
from typing import Any

import numpy as np
from flwr.app import Array, RecordDict
from flwr.serverapp.strategy import Strategy

from .flower_values import plain_record, record_of
from .older_apps import OlderStrategy
from .packing import pack, unpack
from .waiting_server import RefusedAppError

_MAX_DEPTH = 4
_STATE = "state"  #: of an object that stays where it is, as its `state_dict` gives it


_FACTORIES: dict[str, Any] = {"NoneType": None, **{kind.__name__: kind for kind in (int, float, list, dict, set, str)}}


class OddValueError(Exception):
    """A value of a kind that cannot be handed on."""


class StrategyMemory:
    """The attributes of a strategy, of strategies inside it, and of objects of the app's own classes there."""

    def __init__(self, strategy: Any, name: str, is_own: Callable[[type], bool]) -> None:
        self._name, self._is_own = name, is_own
        self._owners: dict[str, Any] = {}  #: path -> the strategy, or an object inside it
        self._find(strategy, "")
        self._first: dict[str, Any] = {}  #: path -> plain value
        self._staying: dict[str, Any] = {}  #: path -> an object that stays where it is
        for path, owner, attribute in self._attributes():
            value = getattr(owner, attribute)
            with suppress(OddValueError):
                self._first[path] = self._plain(value)
            if path not in self._first:
                self._staying[path] = value
                if hasattr(value, "load_state_dict"):  # torch's modules, optimisers, schedulers
                    with suppress(OddValueError):
                        self._first[path] = self._plain_state(value)

    def _plain_state(self, value: Any) -> Any:
        return [_STATE, self._plain(value.state_dict())]

    def _find(self, owner: Any, path: str) -> None:
        self._owners[path] = owner
        for name, value in vars(owner).items():
            is_inner = isinstance(value, Strategy) or (isinstance(owner, OlderStrategy) and name == "inner")
            is_new = all(value is not one for one in self._owners.values())
            if (is_inner or self._is_object(value)) and is_new and path.count("/") < _MAX_DEPTH:
                self._find(value, _joined(path, name))

    def _attributes(self) -> Iterator[tuple[str, Any, str]]:
        """Yield path, owner and name of all but the owners themselves."""
        for above, owner in self._owners.items():
            for name, value in list(vars(owner).items()):
                path = _joined(above, name)
                is_of_adapter = isinstance(owner, OlderStrategy) and name == "_nodes"
                if not is_of_adapter and value is not self._owners.get(path, self):
                    yield path, owner, name

    def changed(self) -> dict[str, Any]:
        """Return what differs from the start, in plain kinds; refuse what differs and cannot be handed on."""
        found = {}
        for path, owner, name in self._attributes():
            value = getattr(owner, name)
            stays = path in self._staying and value is self._staying[path]
            if stays and path not in self._first:
                continue
            try:
                now = self._plain_state(value) if stays else self._plain(value)
            except OddValueError as kind:
                raise RefusedAppError(
                    f"{self._name}: {type(owner).__name__}.{name} is a {kind} that changes during training, and the "
                    "next closer cannot be given it; keep numbers, texts, bytes, arrays, records, lists or dicts there"
                ) from None
            if path not in self._first or now != self._first[path]:
                found[path] = now
        return found

    def restore(self, changed: dict[str, Any]) -> None:
        """Put the strategy into the state of another device's: as after construction, but for what changed."""
        for path, owner, name in self._attributes():
            if path not in self._first and path not in self._staying and path not in changed:
                delattr(owner, name)
        for path, value in {**self._owners, **self._staying}.items():
            if path:
                self._put(path, value)
        for path, plain in {**self._first, **changed}.items():
            if isinstance(plain, list) and plain[0] == _STATE:
                self._staying[path].load_state_dict(self._made(plain[1]))
            else:
                self._put(path, self._made(plain))

    def _put(self, path: str, value: Any) -> None:
        above, _, name = path.rpartition("/")
        setattr(self._owners[above], name, value)

    # -- values of attributes, and objects of the app's own classes: every device has their code -----------------------

    def _is_object(self, value: Any) -> bool:
        """Return whether a value is an object of one of the app's own classes, known by its attributes."""
        is_other = isinstance(value, (type, ModuleType, Enum)) or hasattr(value, "load_state_dict")
        return not is_other and hasattr(value, "__dict__") and self._is_own(type(value))

    def _plain(self, value: Any) -> Any:
        """Return a value in a form that travels; `OddValueError` for one of another kind."""
        kind = type(value)
        if value is None or kind in (bool, float, str, bytes) or (kind is int and -(2**63) <= value < 2**63):
            return value
        if self._is_own(kind):
            name = f"{kind.__module__}:{kind.__qualname__}"
            if isinstance(value, Enum):
                return ["enum", name, value.name]
            if hasattr(value, "_fields"):
                return ["named", name, *map(self._plain, value)]
            if self._is_object(value):
                return ["object", name, self._plain(vars(value))]
        for base in kind.__mro__:
            name = f"{base.__module__.partition('.')[0]}.{base.__name__}"
            if name in _KINDS:
                return [name, *map(self._plain, _KINDS[name][0](value))]
        raise OddValueError(kind.__name__)

    def _made(self, plain: Any) -> Any:
        """Return the value that was made plain, as a new object."""
        if not isinstance(plain, list):
            return plain
        kind, *parts = plain
        if kind in _KINDS:
            return _KINDS[kind][1](*map(self._made, parts))
        own = self._class_of(parts[0])
        if kind == "enum":
            return own[parts[1]]
        if kind == "named":
            return own(*map(self._made, parts[1:]))
        found = own.__new__(own)
        vars(found).update(self._made(parts[1]))
        return found

    def _class_of(self, name: str) -> Any:
        module, _, path = name.partition(":")
        found: Any = reduce(getattr, path.split("."), sys.modules[module])
        if not (isinstance(found, type) and self._is_own(found)):
            raise TypeError(f"{name} is no class of the app")
        return found


def _joined(above: str, name: str) -> str:
    return f"{above}/{name}" if above else name


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
