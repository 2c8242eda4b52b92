"""Packages that only some people need: asked for by name, and where one is not installed, a sentence says how to."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from tolfl.core.errors import TolFLError


class MissingExtraError(TolFLError, ImportError):
    """Something was asked for that needs a package which is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"this needs {package}, which is not installed; run: pip install 'tolfl[{extra}]'")
        self.package, self.extra = package, extra


def module_of_extra(name: str, extra: str) -> ModuleType:
    """Return a module of an optional package.

    >>> module_of_extra("json.decoder", "export").__name__
    'json.decoder'
    """
    try:
        return import_module(name)
    except ImportError:
        raise MissingExtraError(name.partition(".")[0], extra) from None
