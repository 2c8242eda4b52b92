"""Flower's own loop over an app, in one process: `strategy.start` as Flower wrote it, clients called one by one.

Run with the interpreter of the app's environment: flower_loop.py APP DEVICES SEED OUT [key=value ...]. Whatever draws
numbers is seeded as a fleet does, by run, device and round; the rest is Flower's. Of an app of the older kind Flower's
older loop is run, and `history.json` is what it measured.
"""

import hashlib
import importlib
import json
import os
import random
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.server import Server, SimpleClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.serverapp import Grid

try:
    from flwr.compat.common import recorddict_compat as compat
except ImportError:
    from flwr.common import recorddict_compat as compat

try:
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
except ImportError:
    pass


def seeded(seed: int, who: object, round_index: int) -> None:
    number = int.from_bytes(hashlib.sha256(f"{seed}/{who}/{round_index}".encode()).digest()[:4], "little")
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002


class OneProcess(Grid):
    """All clients in this process; train and evaluate take turns, from round 1."""

    def __init__(self, client, n_devices: int, seed: int, run_config: dict) -> None:
        self.client, self.n_devices, self.seed, self.run_config = client, n_devices, seed, run_config
        self.contexts = {
            device: Context(
                1, 1 + device, {"partition-id": device, "num-partitions": n_devices}, RecordDict(), dict(run_config)
            )
            for device in range(n_devices)
        }
        self.round_index, self.is_new = 1, True

    def set_run(self, run: object) -> None: ...

    @property
    def run(self) -> object:
        return SimpleNamespace(run_id=1)

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> list[int]:
        if self.is_new:
            seeded(self.seed, "sampling", self.round_index)
            self.is_new = False
        return [1 + device for device in range(self.n_devices)]

    def push_messages(self, messages):
        raise NotImplementedError

    def pull_messages(self, message_ids):
        raise NotImplementedError

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        for message in sorted(messages, key=lambda one: one.metadata.dst_node_id):
            device = message.metadata.dst_node_id - 1
            seeded(self.seed, device, self.round_index)
            replies.append(self.client(message, self.contexts[device]))
        seeded(self.seed, "closing", self.round_index)
        self.round_index, self.is_new = self.round_index + 1, True
        return replies


class Sampled(SimpleClientManager):
    """Counts the rounds: each asks for its nodes once."""

    round_index = 0

    def sample(self, *told, **options):
        self.round_index += 1
        return super().sample(*told, **options)


class Called(ClientProxy):
    """A client in this process."""

    def __init__(self, device: int, grid: OneProcess, nodes: Sampled) -> None:
        super().__init__(str(1 + device))
        self.device, self.grid, self.nodes = device, grid, nodes

    def _reply(self, kind, content):
        seeded(self.grid.seed, self.device, self.nodes.round_index)
        return self.grid.client(Message(content, 1 + self.device, kind), self.grid.contexts[self.device]).content

    def fit(self, ins, timeout, group_id):
        return compat.recorddict_to_fitres(self._reply("train", compat.fitins_to_recorddict(ins, True)), False)

    def evaluate(self, ins, timeout, group_id):
        return compat.recorddict_to_evaluateres(self._reply("evaluate", compat.evaluateins_to_recorddict(ins, True)))

    def get_parameters(self, *told):
        raise NotImplementedError

    get_properties = reconnect = get_parameters


def older_loop(server, grid: OneProcess, context: Context) -> None:
    nodes, parts = Sampled(), server._server_fn(context)
    for device in range(grid.n_devices):
        nodes.register(Called(device, grid, nodes))
    loop = Server(client_manager=nodes, strategy=parts.strategy)
    loop.set_max_workers(1)
    history, _ = loop.fit(num_rounds=parts.config.num_rounds, timeout=None)
    told = {name: [float(value) for _, value in one] for name, one in history.metrics_distributed.items()}
    Path("history.json").write_text(json.dumps({"loss": [loss for _, loss in history.losses_distributed], **told}))


def loaded(reference: str):
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


def main(app: str, n_devices: str, seed: str, out: str, *pairs: str) -> None:
    sys.path.insert(0, app)
    told = tomllib.loads(Path(app, "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    given = tomllib.loads("\n".join(pairs))
    config = {**told["config"], **given}
    grid = OneProcess(loaded(told["components"]["clientapp"]), int(n_devices), int(seed), config)
    server = loaded(told["components"]["serverapp"])
    seeded(int(seed), "server", 0)
    os.chdir(out)
    context = Context(1, 0, {}, RecordDict(), config)
    if getattr(server, "_server_fn", None) is not None:
        older_loop(server, grid, context)
    else:
        server(grid, context)


if __name__ == "__main__":
    main(*sys.argv[1:])
