"""A ServerApp that has called `strategy.start(...)` and waits, in a thread of its own, for what that returns."""

from __future__ import annotations

import hashlib
import random
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

FIRST_NODE = 1  #: Flower's node ids are positive
_MAX_QUESTIONS = 4  #: strategies ask every second until there are enough nodes: here for ever
_MAX_EARLY_QUESTIONS = 30  #: before `start`, a `main` may wait for its nodes in the same way


class RefusedAppError(Exception):
    """An app that cannot run without its server; the sentence says why."""


def in_words(error: BaseException) -> str:
    """Return an error of the app's in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def seed_everything(seed: int, who: object, round_index: int) -> None:
    """Seed whatever apps draw from: the same device in the same round draws the same numbers, in any process."""
    number = int.from_bytes(hashlib.sha256(f"{seed}/{who}/{round_index}".encode()).digest()[:4], "little")
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002  (apps draw from it)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(number)
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None:
        tensorflow.random.set_seed(number)


@dataclass
class Plan:
    """What the ServerApp asked for."""

    strategy: Any
    arrays: Any  #: None: an older app asks a client for them
    num_rounds: int
    timeout: float
    train_config: Any
    evaluate_config: Any
    evaluate_fn: Any


class FleetGrid(Grid):  # type: ignore[misc]
    """What the ServerApp sees of the fleet: its devices, and nobody to send anything to."""

    def __init__(self, name: str, n_devices: int) -> None:
        self._name = name
        self.nodes = [FIRST_NODE + device for device in range(n_devices)]
        self._questions_left = _MAX_EARLY_QUESTIONS

    def show(self, devices: Iterable[int]) -> None:
        """Take these devices for the live ones: those of the last closing, the same for everybody."""
        self.nodes, self._questions_left = [FIRST_NODE + device for device in devices], _MAX_QUESTIONS

    def set_run(self, run: Any) -> None:
        """Take no note: there is one run."""

    @property
    def run(self) -> Any:
        """The run."""
        return SimpleNamespace(run_id=1)

    def create_message(
        self, content: Any, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Any:
        """Return a message to a node."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Any:
        """Return the nodes; who asks again and again waits for more of them, and none will come."""
        self._questions_left -= 1
        if self._questions_left < 0:
            raise RefusedAppError(f"{self._name} waits for more nodes; {len(self.nodes)} are there")
        return list(self.nodes)

    def push_messages(self, messages: Any) -> Any:  # noqa: ARG002
        """Refuse: a fleet has no server that could send them."""
        raise RefusedAppError(
            f"{self._name} sends messages itself instead of calling strategy.start(); it needs its server"
        )

    def pull_messages(self, message_ids: Any) -> Any:
        """Refuse."""
        return self.push_messages(message_ids)

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:  # noqa: ARG002
        """Refuse."""
        return self.push_messages(messages)


class WaitingServer:
    """Runs `main` up to `strategy.start(...)`, and on to its end when the result is known."""

    _of_thread = threading.local()

    def __init__(self, app: Any, name: str, grid: FleetGrid, context: Any, seed: int) -> None:
        self._name, self._seed = name, seed
        self.plan: Plan | None = None
        self.error: BaseException | None = None
        self._asked, self._answered = threading.Event(), threading.Event()
        self._result: Any = None
        Strategy.start = _start
        self._thread = threading.Thread(target=self._run, args=(app, grid, context), daemon=True)
        self._thread.start()
        self._asked.wait()
        if self.plan is None:
            if isinstance(self.error, RefusedAppError):
                raise self.error
            if self.error is not None:
                why = in_words(self.error)
                raise RefusedAppError(f"the ServerApp of {name} failed before its first round ({why})") from self.error
            raise RefusedAppError(
                f"the ServerApp of {name} ended without calling strategy.start(); there is nothing to train"
            )

    def _run(self, app: Any, grid: FleetGrid, context: Any) -> None:
        WaitingServer._of_thread.it = self
        seed_everything(self._seed, "server", 0)
        try:
            app(grid, context)
        except BaseException as error:  # reported to the caller
            self.error = error
        self._asked.set()

    def hold(self, plan: Plan) -> Any:
        """Keep `main` waiting until the last round is over."""
        if self.plan is not None:
            raise RefusedAppError(f"{self._name} calls strategy.start() twice; a fleet runs the first")
        self.plan = plan
        self._asked.set()
        self._answered.wait()
        return self._result

    def finish(self, result: Any) -> str:
        """Let `main` go on with the result, and wait for its end; return what went wrong there, if anything did."""
        self._result = result
        self._answered.set()
        self._thread.join()
        if self.error is None or (isinstance(self.error, SystemExit) and not self.error.code):
            return ""
        return in_words(self.error)


def _start(
    self: Any,
    grid: Any,
    initial_arrays: Any,
    num_rounds: int = 3,
    timeout: float = 3600,
    train_config: Any = None,
    evaluate_config: Any = None,
    evaluate_fn: Any = None,
) -> Any:
    """Take the place of `Strategy.start`: hand over what it was given, and wait."""
    del grid
    if not isinstance(initial_arrays, ArrayRecord):
        raise TypeError("strategy.start() takes an ArrayRecord as initial_arrays")
    train, evaluate = (ConfigRecord() if one is None else one for one in (train_config, evaluate_config))
    return WaitingServer._of_thread.it.hold(
        Plan(self, initial_arrays, num_rounds, timeout, train, evaluate, evaluate_fn)
    )


def result_of(arrays: Any, log: dict[str, Any]) -> Any:
    """Return what `strategy.start` returns, from the metrics of all rounds."""
    result = Result()
    result.arrays = arrays
    for kind, into in (
        ("train", result.train_metrics_clientapp),
        ("evaluate", result.evaluate_metrics_clientapp),
        ("server", result.evaluate_metrics_serverapp),
    ):
        for number, metrics in log.get(kind, []):
            into[number] = MetricRecord(metrics)
    return result
