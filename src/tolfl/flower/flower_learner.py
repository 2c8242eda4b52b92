"""A Flower app as a learner: its ClientApp contributes, its ServerApp's strategy runs on the closer.

Round 0 distributes the closer's own initial arrays. Then rounds of training and evaluation take turns, as in Flower.
The state holds the model (`arrays/*`), the strategy's memory, the metrics so far (`log`), the devices that go on
(`present`) and the last round that each device's reply is part of (`replied`). Seeds follow from run, device and round.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast
from weakref import WeakValueDictionary

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.core.contribution import Contribution, Part
from tolfl.core.device_set import DeviceSet
from tolfl.core.errors import RunDirectoryError, SpecError
from tolfl.core.spec import RunSpec
from tolfl.flower.app_folder import PROBLEM_FILE, AppFolder, parsed_config
from tolfl.flower.app_process import AppEndedError, AppProcess, FlowerAppError
from tolfl.learners import Account, Closing, Fleet, Learner, Scorer, State, Turn
from tolfl.learners.learner import digest_of, encode_state
from tolfl.learners.registry import settings_from, what_of
from tolfl.runs.directory import write_file

_LOG = logging.getLogger("tolfl")
_CONTEXTS = "flower-context.msgpack"  #: what a device's Context keeps, in its folder
_MAX_COPIES = 80  #: of the model's bytes in one message: five in one array
_UNKNOWN_BYTES = 2**26  #: of a model that a client brings
#: What a device or a run directory keeps under these names is not the app's.
_NAMES_OF_DEVICES = {
    *("devices", "fleet", "life.json", "lock", "log.txt", "models", "node.toml", "records.jsonl"),
    *("round.safetensors", "samples.npy", "spec.toml", "summary.json", _CONTEXTS),
}
_NEVER = -1  #: no round has a reply of this device


class FlowerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `[learn]` may say of a Flower app."""

    run_config: str | dict[str, Any] = ""  #: in Flower's syntax, or as a table
    node_config: str | dict[str, Any] = ""  #: of this device
    python: str = ""  #: the app's interpreter, or its virtual environment; empty: `.venv` in the app's folder


@dataclass(frozen=True)
class _App:
    """An app, as a specification asks for it."""

    folder: AppFolder
    settings: FlowerSettings

    @classmethod
    def of(cls, spec: RunSpec) -> _App:
        name, colon, folder = what_of(spec).partition(":")
        if not colon or not folder:
            raise SpecError(
                f"learn.what {name!r}: name the folder of a Flower app, as in 'flower:.', or use --flower DIR"
            )
        return cls(AppFolder.read(folder), cast("FlowerSettings", settings_from(spec, FlowerSettings)))

    @cached_property
    def run_config(self) -> dict[str, Any]:
        return self.folder.fused(parsed_config(self.settings.run_config, "--run-config"))

    def process(self, fleet: Fleet) -> AppProcess:
        """Return the process of the app; in one process of tolfl, one for all that ask for the same.

        It ends with the last learner that uses it; the latest one stays for the next learner of a command.
        """
        settings = {
            "folder": str(self.folder.path),
            "name": self.folder.name,
            "clientapp": self.folder.clientapp,
            "serverapp": self.folder.serverapp,
            "run_config": self.run_config,
            "node_config": parsed_config(self.settings.node_config, "--node-config"),
            "n_devices": fleet.n_devices,
            "seed": fleet.seed,
        }
        python = self.folder.python(self.settings.python)
        # Another version of the app, in its files, is another process.
        key = (python, self.folder.digest(), msgspec.json.encode(settings))
        process = _PROCESSES.get(key)
        if process is None:
            process = _PROCESSES[key] = AppProcess(self.folder.name, python, settings, with_log=fleet.folder is None)
        _LATEST.append(process)
        return process


#: The app's processes that are in use.
_PROCESSES: WeakValueDictionary[tuple[Path, str, bytes], AppProcess] = WeakValueDictionary()
_LATEST: deque[AppProcess] = deque(maxlen=1)


class FlowerLearner(Learner):
    """A Flower app, round by round."""

    brings_own_data = True

    def __init__(self, fleet: Fleet) -> None:
        self._app = _App.of(fleet.spec)
        self.name = self._app.folder.name
        self._fleet = fleet
        self._process = self._app.process(fleet)
        self.description = self._process.description
        described = self.description
        if described.min_nodes > fleet.n_devices:
            raise SpecError(f"the strategy waits for {described.min_nodes} nodes; this fleet has {fleet.n_devices}")
        self.min_devices = described.min_nodes
        self.rounds = 1 + described.num_rounds * (2 if described.evaluates else 1)
        self._contexts = _Contexts(fleet.folder)
        self._timeout_s = fleet.spec.deadline_s or described.timeout_s

    @classmethod
    def fingerprint(cls, spec: RunSpec) -> str:
        """Return a name of the app's code, its configuration and Flower's version: the same on every device."""
        app = _App.of(spec)
        version = app.process(Fleet(spec, (0,))).description.flwr
        described = ("flower", app.folder.name, app.folder.digest(), app.run_config, version)
        return hashlib.sha256(msgspec.json.encode(described, order="sorted")).hexdigest()[:16]

    def __str__(self) -> str:
        described = self.description
        n_numbers = f", {described.n_numbers:,} numbers" if described.n_numbers else ""
        way = "the closer gets every reply" if described.gathers else "replies are averaged along the chain"
        version = f" {self._app.folder.version}" if self._app.folder.version else ""
        rounds = f"{described.num_rounds} round{'s' * (described.num_rounds != 1)}"
        return f"{self.name}{version} on flwr {described.flwr}: {described.strategy}, {rounds}{n_numbers}; {way}"

    # -- rounds ---------------------------------------------------------------------------------------------------

    def stage(self, round_index: int) -> tuple[str, int, int]:
        """Return what a round is for: `start`, `train` or `evaluate`, its number there, and how many there are."""
        if round_index == 0:
            return "start", 0, 1
        n_rounds, evaluates = self.description.num_rounds, self.description.evaluates
        place = min(round_index, self.rounds - 1) - 1
        return ("evaluate" if evaluates and place % 2 else "train"), place // (2 if evaluates else 1), n_rounds

    def all_stages(self) -> tuple[tuple[str, int], ...]:
        """Return the rounds one by one: stages take turns."""
        return tuple((self.stage(index)[0], 1) for index in range(self.rounds))

    def nbytes(self, round_index: int) -> tuple[int, int]:
        """Return the bytes of the model where it travels: up from training, down after it."""
        stage, n_bytes = self.stage(round_index)[0], self.description.n_bytes
        return {"start": (64, n_bytes), "train": (n_bytes + 64, n_bytes + 64), "evaluate": (64, 64)}[stage]

    @property
    def max_message_bytes(self) -> int:
        """How large a message may be: every reply, or the model with what a strategy such as FedAdam remembers."""
        # One array has at most a 16th of the numbers, and bytes count as numbers there.
        n_copies = max(_MAX_COPIES, 2 * self._fleet.n_devices if self.description.gathers else 0)
        return max(super().max_message_bytes, n_copies * (self.description.n_bytes or _UNKNOWN_BYTES))

    def start(self, state: State) -> State:
        """Return a state without a model: the first round distributes one."""
        everybody = np.arange(self._fleet.n_devices, dtype=np.int64)
        nobody = np.full(self._fleet.n_devices, _NEVER, np.int64)
        return {**state, "log": _bytes(msgspec.msgpack.encode({})), "present": everybody, "replied": nobody}

    def contribute(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        """Return what each device's ClientApp replies; one that fails is not in the round, as in Flower."""
        return [self._contribution(turn) for turn in turns]

    def _contribution(self, turn: Turn) -> dict[str, Part]:
        if "stop" in turn.state:
            raise FlowerAppError(turn.state["stop"].tobytes().decode())
        if turn.round == 0:
            return {}
        before = int(turn.state["replied"][turn.device])
        arguments = {
            **self._round(turn.seed, turn.round),
            "device": turn.device,
            "context": self._contexts.get(turn.seed, turn.device, before),
        }
        try:
            found = self._process.ask("contribute", arguments, self._timeout_s, turn.state)
        except AppEndedError as error:
            found = {"parts": [], "context": b"", "problem": str(error)}
        if found["problem"]:
            _LOG.warning(
                "tolfl: %s: device %s is not in round %s: %s", self.name, turn.device, turn.round, found["problem"]
            )
            return {f"failed/{turn.device}": turn.total(_bytes(found["problem"].encode()))}
        if found["context"]:
            self._contexts.keep(turn.seed, turn.device, turn.round, before, found["context"])
        return {
            key: turn.mean(np.frombuffer(data, dtype), weight=weight)
            if how == "mean"
            else turn.total(np.frombuffer(data, dtype), how)
            for key, how, weight, dtype, data in found["parts"]
        }

    def _round(self, seed: int, round_index: int) -> dict[str, Any]:
        """Return what the process must know of a round; Flower counts from 1."""
        phase, place, _ = self.stage(round_index)
        return {"seed": seed, "round_index": round_index, "phase": phase, "number": place + (phase != "start")}

    def apply(self, state: State, total: Contribution, closing: Closing) -> State:
        """Return the state after the strategy has aggregated the replies."""
        arguments = {
            **self._round(closing.seed, closing.round),
            "present": sorted(closing.present),
            "parts": {key: _reported(part) for key, part in total.parts.items()},
        }
        self._process.interrupt()
        try:
            found = self._process.ask("apply", arguments, self._timeout_s, state)
        except AppEndedError:
            found = self._process.ask("apply", arguments, self._timeout_s, state)
        for note in found["notes"]:
            _LOG.warning("tolfl: round %s: %s", closing.round, note)
        changed = {key: np.frombuffer(data, dtype) for key, (dtype, data) in found["state"].items()}
        kept = (
            {key: array for key, array in state.items() if not key.startswith("arrays/")}
            if "arrays/layout" in changed
            else state
        )
        replied = state["replied"].copy()
        for key, part in total.parts.items():
            if key == "weight" or key.startswith("reply/"):
                replied[list(part.included)] = closing.round
        after = {**kept, **changed, "replied": replied, "left_out": _bytes(msgspec.msgpack.encode(found["left_out"]))}
        if found["stop"]:
            after["stop"] = _bytes(found["stop"].encode())
        return {key: _old_or_new(state.get(key), array) for key, array in after.items()}

    def account(self, before: State, after: State, total: Contribution, round_index: int) -> Account:  # noqa: ARG002
        """Return the metrics of a round, its training loss among them, and whose replies are not in it."""
        was, now = (msgspec.msgpack.decode(state["log"].tobytes()) for state in (before, after))
        metrics = dict(_numbers(was, now))
        losses = [value for name, value in metrics.items() if name.startswith("train/") and "loss" in name]
        left_out = msgspec.msgpack.decode(after["left_out"].tobytes(), type=dict[int, str])
        for key, part in total.parts.items():
            if key.startswith("failed/"):
                left_out[next(iter(part.included))] = part.vector.tobytes().decode()
        present = tuple(after["present"].tolist())
        return Account(losses[0] if losses else None, left_out=left_out, metrics=metrics, present=present)

    def results(self, state: State) -> dict[str, Scorer]:
        """Return what the app's own code saves, once there is a model."""
        return {"flower": FlowerResult(self, state)} if "arrays/layout" in state else {}

    def saved_files(self, state: State) -> dict[str, bytes]:
        """Run the app's `main` to its end and return the files that it writes; its arrays are among them, too."""
        name, saved = digest_of(state), self._process.saved
        if name not in saved:
            with tempfile.TemporaryDirectory(prefix="tolfl-flower-") as folder:
                try:
                    problem = self._process.ask("finish", {"folder": folder}, self._timeout_s, state)
                except AppEndedError as error:
                    problem = str(error)
                self._process.close()  # it stands in a folder that goes, and its `main` has ended: another goes on
                files = [path for path in sorted(Path(folder).rglob("*")) if path.is_file()]
                found = {_beside_ours(path.relative_to(folder)): path.read_bytes() for path in files}
                if problem:
                    sentence = f"after the last round the ServerApp of {self.name} failed: {problem}"
                    _LOG.warning("tolfl: %s", sentence)
                    found[PROBLEM_FILE] = f"{sentence}\n".encode()
            saved[name] = {"model.safetensors": encode_state(_arrays_of(state)), **found}
        return saved[name]


@dataclass(frozen=True)
class FlowerResult:
    """What a Flower app leaves: the files of its own code."""

    learner: FlowerLearner
    state: State
    users: DeviceSet | None = None

    def anomaly_score(self, rows: NDArray[np.floating]) -> NDArray[np.floating]:
        """Refuse: only the app knows what its model is for."""
        raise FlowerAppError(f"{self.learner.name} is a Flower app: its model scores nothing here ({len(rows)} rows)")

    def files(self) -> dict[str, bytes]:
        """Return what the app's `main` writes after the last round."""
        return self.learner.saved_files(self.state)


class _Contexts:
    """What the Contexts of devices keep from round to round, on disk where a device has a folder.

    A round that is trained twice starts twice from what the last round with a reply of the device left.
    """

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / _CONTEXTS
        self._kept: dict[tuple[int, int], dict[int, bytes]] = {}
        if self._path is not None and self._path.is_file():
            try:
                kept = msgspec.msgpack.decode(self._path.read_bytes(), type=list[tuple[int, int, int, bytes]])
            except (OSError, msgspec.DecodeError) as error:
                raise RunDirectoryError(self._path.parent, f"{_CONTEXTS} cannot be read ({error}); remove it") from None
            for seed, device, round_index, context in kept:
                self._kept.setdefault((seed, device), {})[round_index] = context

    def get(self, seed: int, device: int, replied: int) -> bytes:
        """Return what a device's Context held after the last round with a reply of it; nothing, if that is lost."""
        return self._kept.get((seed, device), {}).get(replied, b"")

    def keep(self, seed: int, device: int, round_index: int, replied: int, context: bytes) -> None:
        """Keep what a device's Context holds after a round; what came before the last reply is of no use any more."""
        kept = self._kept.setdefault((seed, device), {})
        kept[round_index] = context
        for old in [one for one in kept if one < replied]:
            del kept[old]
        if self._path is not None:
            rows = [(*who, number, one) for who, rounds in self._kept.items() for number, one in rounds.items()]
            try:
                write_file(self._path.parent, _CONTEXTS, msgspec.msgpack.encode(rows))
            except RunDirectoryError as error:
                _LOG.warning("tolfl: %s; training goes on", error)


def _beside_ours(path: Path) -> str:
    """Return where an app's file is kept: in a folder of its own, if a device has one of that name."""
    return f"app/{path}" if path.parts[0] in _NAMES_OF_DEVICES else str(path)


def _bytes(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


def _reported(part: Part) -> tuple[bytes, int, list[int]]:
    values = part.mean if part.how == "mean" else part.vector
    return np.ascontiguousarray(values).tobytes(), part.n_samples, list(part.included)


def _old_or_new(old: NDArray[Any] | None, new: NDArray[Any]) -> NDArray[Any]:
    """Return the old array where the new one is equal: what is the same object is not sent again."""
    is_same = old is not None and old.dtype == new.dtype and old.shape == new.shape and old.tobytes() == new.tobytes()
    return cast("NDArray[Any]", old) if is_same else new


def _numbers(was: Mapping[str, list[Any]], now: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Return the metrics that a round has added, `train/loss` and the like."""
    for kind in ("train", "evaluate", "server"):
        for _, metrics in now.get(kind, [])[len(was.get(kind, [])) :]:
            for name, value in metrics.items():
                if isinstance(value, int | float) and np.isfinite(value):
                    yield f"{kind}/{name}", float(value)


def _arrays_of(state: State) -> dict[str, NDArray[Any]]:
    """Return the model's arrays by their names."""
    place = {"f4": 0, "f8": 0, "raw": 0}
    found: dict[str, NDArray[Any]] = {}
    for name, kind, dtype, shape in _layout(state):
        itemsize = np.dtype(dtype).itemsize
        n = int(np.prod(shape, dtype=np.int64)) * (itemsize if kind == "raw" else 1)
        values = state.get(f"arrays/{kind}", np.zeros(0, np.uint8))[place[kind] : place[kind] + n]
        place[kind] += n
        if np.dtype(dtype).kind in "fiub":
            found[name] = np.frombuffer(values.tobytes(), dtype).reshape(shape)
    return found


def _layout(state: State) -> Iterable[tuple[str, str, str, list[int]]]:
    return msgspec.msgpack.decode(state["arrays/layout"].tobytes(), type=list[tuple[str, str, str, list[int]]])
