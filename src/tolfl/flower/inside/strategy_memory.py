"""What a strategy remembers between rounds: found by looking at its attributes, handed on, put back.

An attribute that is as it was after construction stays where it is, whatever its kind: every device has made its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flwr.serverapp.strategy import Strategy

from .flower_values import OddValueError, plain_value, value_of
from .older_apps import OlderStrategy
from .waiting_server import RefusedAppError

_MAX_DEPTH = 4


class StrategyMemory:
    """The attributes of a strategy, of strategies inside it, and of objects of the app's own classes there."""

    def __init__(self, strategy: Any, name: str, is_of_app: Callable[[Any], bool]) -> None:
        self._strategy, self._name, self._is_of_app = strategy, name, is_of_app
        self._first: dict[str, Any] = {}  #: path -> plain value
        self._odd: dict[str, Any] = {}  #: path -> an object that stays where it is
        for path, (_, _, value) in self._attributes().items():
            try:
                self._first[path] = plain_value(value)
            except OddValueError:
                self._odd[path] = value

    def changed(self) -> dict[str, Any]:
        """Return what differs from the start, in plain kinds; refuse what differs and cannot be handed on."""
        found = {}
        for path, (owner, name, value) in self._attributes().items():
            if path in self._odd and value is self._odd[path]:
                continue
            try:
                now = plain_value(value)
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
        attributes = self._attributes()
        owners = {"": self._strategy}
        for path, (owner, name, _) in attributes.items():
            owners[path.rpartition("/")[0]] = owner
            if path not in self._first and path not in self._odd and path not in changed:
                delattr(owner, name)
        for path, value in self._odd.items():
            if path not in changed:
                above, _, name = path.rpartition("/")
                setattr(owners[above], name, value)
        for path in {**self._first, **changed}:
            above, _, name = path.rpartition("/")
            if above in owners:
                setattr(owners[above], name, value_of(changed.get(path, self._first.get(path))))

    def _attributes(self) -> dict[str, tuple[Any, str, Any]]:
        """Return path -> owner, name, value."""
        found: dict[str, tuple[Any, str, Any]] = {}
        self._walk(self._strategy, "", found, {id(self._strategy)})
        return found

    def _walk(self, owner: Any, above: str, found: dict[str, tuple[Any, str, Any]], seen: set[int]) -> None:
        for name, value in list(vars(owner).items()):
            path = f"{above}/{name}" if above else name
            is_inner = isinstance(value, Strategy) or (isinstance(owner, OlderStrategy) and name == "inner")
            if (is_inner or self._is_of_app(value)) and path.count("/") < _MAX_DEPTH and id(value) not in seen:
                seen.add(id(value))
                self._walk(value, path, found, seen)
            elif not (isinstance(owner, OlderStrategy) and name == "_nodes"):
                found[path] = (owner, name, value)
