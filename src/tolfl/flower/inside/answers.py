"""A Flower app, round by round: what its ClientApp replies, what its strategy makes of replies, how its `main` ends.

Nothing is remembered between calls but the state that was sent last: a process that takes the place of this one gives
the same answers.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import flwr
import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.serverapp.strategy import FedAdagrad, FedAdam, FedAvg, FedAvgM, FedProx, FedYogi

from .flower_values import (
    Arrays,
    is_finite,
    loaded_arrays,
    plain_record,
    record_of,
    stored_arrays,
)
from .mean_replies import BadReplyError, MeanTotal, mean_parts
from .older_apps import OlderStrategy, asked_client_for_arrays, has_methods_of, older_plan
from .packing import pack, receive, send, unpack
from .strategy_memory import StrategyMemory
from .waiting_server import (
    FIRST_NODE,
    FleetGrid,
    Plan,
    RefusedAppError,
    WaitingServer,
    in_words,
    result_of,
    seed_everything,
)

#: Strategies that see nothing of the replies but their weighted mean; one reply with that mean leads to the same model.
_OF_THE_MEAN = (FedAvg, FedAvgM, FedProx, FedAdam, FedAdagrad, FedYogi)
_MAX_TEXT = 300  #: characters of a sentence about a failed client

try:  # Newer Flower: no message can be made before the process has an identity.
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
except ImportError:
    pass


def serve(calls: BinaryIO, answers: BinaryIO) -> None:
    """Answer calls: the first makes the app, the others ask it."""
    app: FlowerApp | None = None
    while True:
        try:
            name, arguments, state = receive(calls)
        except EOFError:
            os._exit(0)
        try:
            if app is None:
                app = FlowerApp(**arguments)
                found: Any = app.description()
            else:
                if state is not None:
                    app.take(**state)
                found = getattr(app, f"answer_{name}")(**arguments)
            answer = {"found": found}
        except RefusedAppError as error:
            answer = {"refused": str(error)}
        except BaseException as error:  # raised where it was asked for
            traceback.print_exc()
            answer = {"failed": in_words(error)}
        sys.stderr.flush()
        try:
            send(answers, answer)
        except BrokenPipeError:
            os._exit(0)


class FlowerApp:
    """The app, its plan, and the state that was sent last."""

    def __init__(
        self,
        folder: str,
        name: str,
        clientapp: str,
        serverapp: str,
        run_config: dict[str, Any],
        node_config: dict[str, Any],
        n_devices: int,
        seed: int,
    ) -> None:
        self._name, self._n_devices, self._folder = name, n_devices, Path(folder)
        self._run_config, self._node_config = run_config, node_config
        sys.path.insert(0, folder)
        seed_everything(seed, "import", 0)
        _refuse("LocalDpMod", f"{name} uses LocalDpMod: its noise would be known to all devices")
        self._client = self._loaded("clientapp", clientapp)
        server = self._loaded("serverapp", serverapp)
        for kind in ("SecAggWorkflow", "SecAggPlusWorkflow"):
            _refuse(kind, "secure aggregation of Flower needs its server")
        self._grid = FleetGrid(name, n_devices)
        context = Context(1, 0, {}, RecordDict(), dict(run_config))
        self._waiting: WaitingServer | None = None
        if getattr(server, "_main", None) is None:
            seed_everything(seed, "server", 0)
            self._plan: Plan = older_plan(server, name, context, n_devices)
        else:
            self._waiting = WaitingServer(server, name, self._grid, context, seed)
            assert self._waiting.plan is not None
            self._plan = self._waiting.plan
        if type(self._plan.num_rounds) is not int or self._plan.num_rounds < 1:
            raise RefusedAppError(
                f"{name} asks for {self._plan.num_rounds!r} rounds; it needs a whole number, at least one"
            )
        strategy = self._plan.strategy
        self._is_older = isinstance(strategy, OlderStrategy)
        self._strategy_name = type(strategy.inner if self._is_older else strategy).__name__
        if self._strategy_name.startswith("DifferentialPrivacy"):
            raise RefusedAppError(f"{name} uses {self._strategy_name}: its noise would be known to all devices")
        self._gathers = not self._is_of_the_mean()
        self._evaluates = getattr(strategy, "fraction_evaluate", 1.0) != 0.0
        self._memory = StrategyMemory(strategy, name, self._is_own)
        self._first_configs = self._configs()
        self._first_arrays = None if self._plan.arrays is None else stored_arrays(self._plan.arrays)
        self._state: Arrays = {}
        self._configured: tuple[int, int] | None = None
        self._messages: list[Any] = []
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)

    def _loaded(self, what: str, reference: str) -> Any:
        module, _, name = reference.partition(":")
        try:
            found: Any = importlib.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
        except RefusedAppError:
            raise
        except BaseException as error:
            raise RefusedAppError(
                f"{self._name}: its {what} {reference!r} cannot be imported with {sys.executable} "
                f"({in_words(error)}); install the app there, or name its interpreter with --python"
            ) from error
        return found

    def _is_of_the_mean(self) -> bool:
        strategy = self._plan.strategy
        if isinstance(strategy, OlderStrategy):
            return strategy.is_of_the_mean
        names = ("aggregate_train", "aggregate_evaluate", "_check_and_log_replies")
        if not has_methods_of(strategy, _OF_THE_MEAN, names):
            return False
        functions = (strategy.train_metrics_aggr_fn, strategy.evaluate_metrics_aggr_fn)
        return all(getattr(one, "__module__", "").startswith("flwr.") for one in functions)

    def _is_own(self, kind: type) -> bool:
        """Return whether a class is one of the app's own, and so of every device's."""
        file = getattr(sys.modules.get(kind.__module__), "__file__", None)
        inside = Path(file).parts[len(self._folder.parts) :] if file and self._folder in Path(file).parents else ()
        return bool(inside) and "site-packages" not in inside

    def _configs(self) -> dict[str, Any]:
        return plain_record(RecordDict({"train": self._plan.train_config, "evaluate": self._plan.evaluate_config}))

    def description(self) -> dict[str, Any]:
        """Return what the fleet must know before the first round."""
        plan, strategy = self._plan, self._plan.strategy
        counts = ("min_available_nodes", "min_train_nodes", "min_evaluate_nodes")
        arrays = [] if plan.arrays is None else [array.numpy() for array in plan.arrays.values()]
        return {
            "flwr": _version(),
            "strategy": self._strategy_name,
            "num_rounds": plan.num_rounds,
            "evaluates": self._evaluates,
            "gathers": self._gathers,
            "min_nodes": max(int(getattr(strategy, name, 0)) for name in counts),
            "n_numbers": int(sum(array.size for array in arrays)),
            "n_bytes": int(sum(array.nbytes for array in arrays)),
            "timeout_s": float(plan.timeout),
        }

    # -- rounds ---------------------------------------------------------------------------------------------------

    def take(self, kept: list[str], news: Arrays) -> None:
        """Take in the state that this call and the next start from: arrays of the one before it, and new ones."""
        self._state, self._configured = {**{key: self._state[key] for key in kept}, **news}, None

    def _configure(self, seed: int, round_index: int, phase: str, number: int) -> list[Any]:
        """Return the messages of a round; the strategy is then as it is after `configure_*`."""
        if self._configured == (seed, round_index):
            return self._messages
        plan, strategy = self._plan, self._plan.strategy
        self._restore(*unpack(self._state["strategy"][1]))
        self._grid.show(np.frombuffer(self._state["present"][1], np.int64).tolist())
        seed_everything(seed, "sampling", round_index)  # the same nodes are chosen on every device
        arrays = loaded_arrays(self._state)
        configure = getattr(strategy, f"configure_{phase}")
        config = plan.train_config if phase == "train" else plan.evaluate_config
        try:
            self._messages = list(configure(number, arrays, config, self._grid))
        except RefusedAppError:
            raise
        except Exception as error:  # the app's code
            traceback.print_exc()
            sentence = f"{self._name}: configure_{phase} of its strategy raised {in_words(error)} in round {number}"
            raise RefusedAppError(sentence) from error
        self._configured = (seed, round_index)
        return self._messages

    def _restore(self, changed: dict[str, Any], configs: dict[str, Any]) -> None:
        self._memory.restore(changed)
        record = record_of(configs)
        self._plan.train_config, self._plan.evaluate_config = record["train"], record["evaluate"]

    # -- a device -------------------------------------------------------------------------------------------------

    def answer_contribute(
        self, seed: int, round_index: int, phase: str, number: int, device: int, context: bytes
    ) -> dict[str, Any]:
        """Return the parts that a device adds to a round, what its Context keeps, and what went wrong if it did."""
        messages = self._configure(seed, round_index, phase, number)
        mine = [one for one in messages if one.metadata.dst_node_id == FIRST_NODE + device]
        kept = self._context(device, context)
        seed_everything(seed, device, round_index)
        try:
            replies = [self._client(_copied(message), kept) for message in mine]
            parts = self._parts(device, [one for one in replies if not one.has_error()], phase == "train")
        except RefusedAppError:
            raise
        except BadReplyError as error:
            return {"parts": [], "context": b"", "problem": str(error)[:_MAX_TEXT]}
        except BaseException as error:  # as in Flower: a failed client is left out, the others go on
            traceback.print_exc()
            return {"parts": [], "context": b"", "problem": f"its ClientApp raised {in_words(error)}"[:_MAX_TEXT]}
        return {"parts": parts, "context": pack(plain_record(kept.state)) if mine else b"", "problem": ""}

    def _context(self, device: int, state: bytes) -> Any:
        kept = record_of(unpack(state)) if state else RecordDict()
        node_config = {"partition-id": device, "num-partitions": self._n_devices, **self._node_config}
        return Context(1, FIRST_NODE + device, node_config, kept, dict(self._run_config))

    def _parts(self, device: int, replies: list[Any], is_train: bool) -> list[Any]:
        if not replies:
            return []
        if self._gathers:
            for reply in replies:
                if not all(map(is_finite, reply.content.array_records.values())):
                    raise BadReplyError("its reply has numbers that are not finite; use a smaller step")
            return [(f"reply/{device}", "sum", 1, "u1", pack([plain_record(one.content) for one in replies]))]
        strategy, content = self._plan.strategy, replies[0].content
        if self._is_older:
            content = strategy.content_for_mean(content, is_train)
        return mean_parts(content, strategy.weighted_by_key, is_train)

    # -- whoever closes -------------------------------------------------------------------------------------------

    def answer_apply(
        self, seed: int, round_index: int, phase: str, number: int, present: list[int], parts: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the arrays of the state after a round that may have changed, and what there is to say of it."""
        closing = _Closing(unpack(self._state["log"][1]))
        seed_everything(seed, "closing", round_index)
        if phase == "start":
            changed = self._start(closing, present[0] if present else 0)
        else:
            messages = self._configure(seed, round_index, phase, number)
            self._configured = None
            seed_everything(seed, "closing", round_index)
            changed = self._close(closing, phase, number, messages, parts)
        changed["strategy"] = ("u1", self._remembered(closing))
        changed["log"] = ("u1", pack(closing.log))
        changed["present"] = ("i8", np.array(present, np.int64).tobytes())
        return {"state": changed, "left_out": closing.left_out, "notes": closing.notes, "stop": closing.stop}

    def _start(self, closing: _Closing, device: int) -> Arrays:
        """Distribute this device's own initial arrays: those of the others may differ, and are not used."""
        self._restore({}, self._first_configs)
        if self._first_arrays is not None:
            arrays = loaded_arrays(self._first_arrays)
        else:
            arrays = asked_client_for_arrays(self._client, device, self._context(device, b""))
        if not is_finite(arrays):
            closing.stop = f"{self._name}: its initial arrays have numbers that are not finite"
        closing.note("server", 0, self._evaluated(closing, 0, arrays))
        return stored_arrays(arrays)

    def _close(self, closing: _Closing, phase: str, number: int, messages: list[Any], parts: dict[str, Any]) -> Arrays:
        strategy, changed = self._plan.strategy, dict[str, Any]()
        arrays = loaded_arrays(self._state)
        replies = self._replies(closing, phase, messages, parts)
        had_before = bool(closing.log.get(f"closed {phase}"))
        try:
            if phase == "train":
                found, metrics = strategy.aggregate_train(number, replies)
                closing.note("train", number, metrics)
                if found is not None and is_finite(found):
                    arrays, changed = found, dict(stored_arrays(found))
                elif found is not None:
                    closing.notes.append(
                        f"{self._name}: the model after round {number} is not finite; the one before it is kept"
                    )
            else:
                closing.note("evaluate", number, strategy.aggregate_evaluate(number, replies))
        except BaseException as error:  # the app's code
            traceback.print_exc()
            sentence = f"{self._name}: aggregate_{phase} of its strategy raised {in_words(error)} in round {number}"
            closing.fail(sentence, had_before)
        else:
            closing.log[f"closed {phase}"] = had_before or bool(replies)
        if "weight" in parts and not np.frombuffer(parts["weight"][0], np.int64).any():
            closing.fail(f"{self._name}: no reply of round {number} has an example to {phase} on", had_before)
        failed = [bytes(parts[key][0]).decode() for key in sorted(parts) if key.startswith("failed/")]
        if failed and not replies and not had_before and number == 1:
            closing.stop = f"{self._name}: no device could {phase}; of one of them {failed[0]}"
        if phase == "evaluate" or not self._evaluates:
            closing.note("server", number, self._evaluated(closing, number, arrays))
        return changed

    def _evaluated(self, closing: _Closing, number: int, arrays: Any) -> Any:
        """Return the metrics of `evaluate_fn`; whoever closes may have no test data: a note, no more."""
        if self._plan.evaluate_fn is None:
            return None
        try:
            return self._plan.evaluate_fn(number, arrays)
        except BaseException as error:  # the app's code
            closing.notes.append(f"{self._name}: evaluate_fn raised {in_words(error)} in round {number}")
            return None

    def _replies(self, closing: _Closing, phase: str, messages: list[Any], parts: dict[str, Any]) -> list[Any]:
        by_node: dict[int, Any] = {one.metadata.dst_node_id: one for one in messages}
        if self._gathers:
            devices = sorted(int(key.partition("/")[2]) for key in parts if key.startswith("reply/"))
            return [
                Message(record_of(plain), reply_to=by_node[FIRST_NODE + device])
                for device in devices
                if FIRST_NODE + device in by_node
                for plain in unpack(parts[f"reply/{device}"][0])
            ]
        total = MeanTotal({key: (data, n, devices) for key, (data, n, devices) in parts.items()})
        for device in total.left_out:
            closing.left_out[device] = "its arrays have another shape than most"
        is_train = phase == "train"
        if not total.has_reply(is_train) or not by_node:
            return []
        content = total.content(self._plan.strategy.weighted_by_key, is_train)
        return [Message(content, reply_to=by_node[min(by_node)])]

    def _remembered(self, closing: _Closing) -> bytes:
        try:
            return pack([self._memory.changed(), self._configs()])
        except RefusedAppError as error:
            closing.stop = str(error)
            return pack([{}, self._configs()])

    # -- the end --------------------------------------------------------------------------------------------------

    def answer_finish(self, folder: str) -> str:
        """Let `main` run to its end in a folder, where it leaves its files; return what went wrong there."""
        if self._waiting is None:
            return ""
        os.chdir(folder)
        self._restore(*unpack(self._state["strategy"][1]))  # `main` may read what its strategy remembers
        result = result_of(loaded_arrays(self._state), unpack(self._state["log"][1]))
        return self._waiting.finish(result)


class _Closing:
    """What a closer has to say of a round."""

    def __init__(self, log: dict[str, Any]) -> None:
        self.log = log
        self.left_out: dict[int, str] = {}
        self.notes: list[str] = []
        self.stop = ""

    def fail(self, sentence: str, had_before: bool) -> None:
        """Say what went wrong in a round; where no round before it led to anything, none will."""
        if had_before:
            self.notes.append(f"{sentence}; what there was before is kept")
        else:
            self.stop = sentence

    def note(self, kind: str, number: int, metrics: Any) -> None:
        if metrics is not None:
            self.log.setdefault(kind, []).append([number, {key: _number(value) for key, value in metrics.items()}])


def _number(value: Any) -> Any:
    return [_number(one) for one in value] if isinstance(value, list) else getattr(value, "item", lambda: value)()


def _copied(message: Any) -> Any:
    """Return a message with a content of its own: a client may change what it gets."""
    header = message.metadata
    content = record_of(plain_record(message.content))
    return Message(content, header.dst_node_id, header.message_type, ttl=header.ttl, group_id=header.group_id)


def _version() -> str:
    return str(getattr(flwr, "__version__", None) or importlib.import_module("importlib.metadata").version("flwr"))


def _refuse(kind: str, sentence: str) -> None:
    """Let nobody make an object of a class of Flower's, wherever it is imported from."""

    def refuse(*_: Any, **__: Any) -> None:
        raise RefusedAppError(sentence)

    for module in ("flwr.clientapp.mod", "flwr.client.mod", "flwr.server.workflow"):
        with suppress(ImportError):
            if (found := getattr(importlib.import_module(module), kind, None)) is not None:
                found.__init__ = refuse
