"""One family of errors: each names the input at fault and says what to do about it.

Every error also inherits the built-in that a caller would expect, so `except ValueError` keeps working.
A failing peer is never an error: it is an event of the protocol.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question about the name that was probably meant; nothing where none is near.

    >>> did_you_mean("tolfl", ["fl", "tol-fl"])
    "; did you mean 'tol-fl'?"
    >>> did_you_mean("gossip", ["fl", "tol-fl"])
    ''
    """
    spelled = {_without_signs(one): one for one in known}
    near = get_close_matches(_without_signs(name), spelled, n=1, cutoff=0.6)
    return f"; did you mean {spelled[near[0]]!r}?" if near else ""


def _without_signs(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


class TolFLError(Exception):
    """The base of every error that tolfl raises on purpose."""

    ends_run = False  #: whether a learner that raises it wants the run to end, and has not failed on something forged


class SpecError(TolFLError, ValueError):
    """A run specification asks for something that cannot be done."""


class UnknownNameError(SpecError):
    """A name (scheme, data set, policy, preset) is not one that exists."""

    def __init__(self, what: str, name: str, known: list[str]) -> None:
        super().__init__(f"unknown {what} {name!r}; choose one of: {', '.join(known)}{did_you_mean(name, known)}")
        self.what, self.name, self.known = what, name, known


class PlanError(SpecError):
    """A failure plan cannot be read, or names a device that does not exist."""

    def __init__(self, text: str, problem: str) -> None:
        super().__init__(f"failure plan {text!r}: {problem}")
        self.text, self.problem = text, problem


class DataError(TolFLError, ValueError):
    """Data handed in cannot be trained on: wrong shape, not finite, or empty."""


class DataFileError(DataError):
    """A file does not hold what its kind promises."""

    def __init__(self, path: Path | str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path, self.problem = path, problem


class MissingDataError(DataError, FileNotFoundError):
    """A file or a public data set is not where it was looked for."""


#: What to do when training diverges, for both doors of the program.
_SMALLER_STEP = "use a smaller step (--lr, or train={'lr': ...} in Python), or check the scale of the data"


class DivergedError(TolFLError, ArithmeticError):
    """Training diverged: a loss, a model or what it says of a sample is no longer a finite number."""

    def __init__(self, what: str, device: int | None = None, round_index: int | None = None) -> None:
        super().__init__(f"{what} is not finite: training diverged; {_SMALLER_STEP}")
        self.what, self.device, self.round_index = what, device, round_index

    @classmethod
    def of_loss(cls, device: int, round_index: int) -> DivergedError:
        """Return the error about the loss of one device."""
        return cls(f"the loss of device {device} in round {round_index}", device, round_index)

    @classmethod
    def of_model(cls, round_index: int) -> DivergedError:
        """Return the error about the model that a round gave."""
        return cls(f"the model after round {round_index}", round_index=round_index)


class ModelError(TolFLError, RuntimeError):
    """A module that was handed in cannot be trained on the data."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"the model cannot be used on this data: {problem}")
        self.problem = problem


#: What a package is needed for that only some installations have, and the extra that brings it.
EXTRAS = {
    "pyarrow": ("tables", "fit, score and tables (a fleet trains on NPY, NPZ and captures without)"),
    "sklearn": ("tables", "FederatedDetector, FedGroup and IFCA"),
    "matplotlib": ("tables", "figures"),
    "scipy": ("study", "statistics of experiments, Bluetooth waveforms and spectrograms"),
    "torch": ("torch", "modules of your own"),
    "starlette": ("dashboard", "the page of a run"),
    "uvicorn": ("dashboard", "the page of a run"),
    "onnx": ("export", "tolfl export"),
    "onnxruntime": ("export", "tolfl export"),
    "paho": ("mqtt", "alarms to an MQTT broker"),
    "zeroconf": ("discovery", "finding devices in a local network"),
    "ray": ("ray", "tolfl reproduce --on ray"),
    "mlflow": ("track", "--track"),
    "tensorboard": ("track", "--track"),
}


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """Return one sentence about a package that is not installed, with the command that installs it.

    >>> missing_extra(ModuleNotFoundError("", name="matplotlib.figure"))
    "matplotlib is not installed, which is needed for figures; run: pip install 'tolfl[tables]'"
    """
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return None
    extra, what = EXTRAS[package]
    return f"{package} is not installed, which is needed for {what}; run: pip install 'tolfl[{extra}]'"


def sentence_and_status(error: Exception) -> tuple[str, int] | None:
    """Return what to say of an error that ends a program, and its exit status; None: a bug, which needs a traceback.

    >>> sentence_and_status(SpecError("rounds 0; at least 1"))
    ('rounds 0; at least 1', 2)
    >>> sentence_and_status(MemoryError())
    ('there is not enough memory for this; ask for less of it, or see `tolfl doctor`', 1)
    """
    if isinstance(error, ModuleNotFoundError):
        sentence = missing_extra(error)
        return None if sentence is None else (sentence, 1)
    if isinstance(error, TolFLError):
        return str(error), 2 if isinstance(error, SpecError | DataError) else 1
    if isinstance(error, MemoryError):
        return "there is not enough memory for this; ask for less of it, or see `tolfl doctor`", 1
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}; see `tolfl doctor`", 1
    return None


#: A run's own files, and those of results: by these endings a message calls them files.
_FILES = {".json", ".jsonl", ".lock", ".png", ".safetensors", ".toml"}


class RunDirectoryError(TolFLError, OSError):
    """A run directory, or a file of runs or results, cannot be written or read."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{'file' if path.suffix in _FILES else 'run directory'} {path}: {problem}")
        self.path, self.problem = path, problem
