"""What a strategy remembers between rounds: found by looking at its attributes, handed on, put back.

An attribute that is as it was after construction stays where it is, whatever its kind: every device has made its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from flwr.serverapp.strategy import Strategy

from .kept_values import KeptValues, OddValueError
from .older_apps import OlderStrategy
from .waiting_server import RefusedAppError

_MAX_DEPTH = 4
_STATE = "state"  #: of an object that stays where it is, as its `state_dict` gives it


class StrategyMemory:
    """The attributes of a strategy, of strategies inside it, and of objects of the app's own classes there."""

    def __init__(self, strategy: Any, name: str, is_own: Callable[[type], bool]) -> None:
        self._name, self._values = name, KeptValues(is_own)
        self._owners: dict[str, Any] = {}  #: path -> the strategy, or an object inside it
        self._find(strategy, "")
        self._first: dict[str, Any] = {}  #: path -> plain value
        self._staying: dict[str, Any] = {}  #: path -> an object that stays where it is
        for path, owner, attribute in self._attributes():
            value = getattr(owner, attribute)
            with suppress(OddValueError):
                self._first[path] = self._values.plain(value)
            if path not in self._first:
                self._staying[path] = value
                if hasattr(value, "load_state_dict"):  # torch's modules, optimisers, schedulers
                    with suppress(OddValueError):
                        self._first[path] = self._plain_state(value)

    def _plain_state(self, value: Any) -> Any:
        return [_STATE, self._values.plain(value.state_dict())]

    def _find(self, owner: Any, path: str) -> None:
        self._owners[path] = owner
        for name, value in vars(owner).items():
            is_inner = isinstance(value, Strategy) or (isinstance(owner, OlderStrategy) and name == "inner")
            is_new = all(value is not one for one in self._owners.values())
            if (is_inner or self._values.is_object(value)) and is_new and path.count("/") < _MAX_DEPTH:
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
                now = self._plain_state(value) if stays else self._values.plain(value)
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
                self._staying[path].load_state_dict(self._values.made(plain[1]))
            else:
                self._put(path, self._values.made(plain))

    def _put(self, path: str, value: Any) -> None:
        above, _, name = path.rpartition("/")
        setattr(self._owners[above], name, value)


def _joined(above: str, name: str) -> str:
    return f"{above}/{name}" if above else name
