"""The app's process: answers calls that come in on standard input, until that is closed.

Started by its path, with the interpreter of the app's environment. The files beside it become a package under a name
that no app has: an app's own modules may be called anything.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import signal
import sys
from pathlib import Path
from typing import Any

_PACKAGE = "tolfl_inside_flower"
_PR_SET_PDEATHSIG = 1


def package() -> Any:
    """Return the module with the calls, imported as part of a package of its own."""
    here = Path(__file__).resolve().parent
    spec = importlib.util.spec_from_file_location(
        _PACKAGE, here / "__init__.py", submodule_search_locations=[str(here)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{here} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_PACKAGE] = module
    spec.loader.exec_module(module)
    return importlib.import_module(f"{_PACKAGE}.answers")


def die_with_parent() -> None:
    """Ask the system to end this process with the device that started it, in the middle of a training too."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == 1:
            os._exit(0)


def main() -> None:
    """Keep standard output for answers: what the app prints goes to standard error."""
    die_with_parent()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    calls = os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    sys.path.pop(0)  # the folder of this file: its names are not the app's
    package().serve(calls, answers)


if __name__ == "__main__":
    main()
