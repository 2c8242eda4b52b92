"""The rival: federated averaging as a Flower app, on the data, model and settings that tolfl's side has.

Written with the API that Flower recommends today (a `ClientApp` and a `ServerApp` that exchange messages, the `FedAvg`
strategy), and to be fast: a worker process makes the data, the model and the optimiser once and keeps them, computes on
one thread, and writes no log. `run_simulation` is deprecated in favour of the command `flwr run`, which starts the same
engine in another process and talks to it over HTTP; from Python there is less around the rounds.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from functools import lru_cache

os.environ |= {
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # silences a warning about GPUs
    "RAY_worker_niceness": "0",  # Ray's own choice is 15, and whatever else the machine does would go first
}

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.simulator import BATCH_SIZE, LR, N_SAMPLES, spec_for
from tolfl.core.spec import RunSpec
from tolfl.datasets import load
from tolfl.learners.autoencoder import Autoencoder

#: The name of the one array of a message that carries all parameters as one vector.
FLAT = "flat"


@dataclass(frozen=True)
class Settings:
    """What a user of Flower may choose without changing the result."""

    actors: int = 2  #: worker processes, one core each
    flat: bool = True  #: parameters travel as one vector, not as twelve arrays
    pull_s: float = 0.02  #: the server app looks for replies this often; Flower's own choice is 0.1


@dataclass(frozen=True)
class Simulated:
    """When the rounds of a simulation ended, and the model after the last."""

    seconds_to_first: float  #: from the call to the end of the first round
    seconds: list[float]  #: of each round after the first
    params: NDArray[np.float32]


def architecture_of(spec: RunSpec) -> Autoencoder:
    return Autoencoder(spec.blobs.n_features, spec.model.hidden, spec.model.code, spec.model.dropout)


# -- a client ---------------------------------------------------------------------------------------------------------

client_app = ClientApp()


@lru_cache(maxsize=1)
def kept_by_worker(n_devices: int) -> tuple[nn.Module, torch.optim.Optimizer, list[Tensor]]:
    """Return what a worker process makes once: a model, its optimiser (plain SGD has no state), everybody's samples."""
    torch.set_num_threads(1)
    spec = spec_for(n_devices, N_SAMPLES // n_devices, rounds=1)
    architecture, data = architecture_of(spec), load(spec)
    module = architecture.to_module(architecture.initial(spec.seed)).train()
    slices = [torch.from_numpy(data.slice_of(device)) for device in range(n_devices)]
    return module, torch.optim.SGD(module.parameters(), lr=LR), slices


@client_app.train()
def train(message: Message, context: Context) -> Message:
    module, optimizer, slices = kept_by_worker(int(context.node_config["num-partitions"]))
    samples = slices[int(context.node_config["partition-id"])]
    arrays = message.content["arrays"]
    is_flat = FLAT in arrays
    read(arrays, module, is_flat)
    order = torch.randperm(len(samples))
    for first in range(0, len(samples), BATCH_SIZE):
        batch = samples[order[first : first + BATCH_SIZE]]
        optimizer.zero_grad()
        loss = (module(batch) - batch).square().sum(dim=1).mean()
        loss.backward()
        optimizer.step()
    reply = {"arrays": written(module, is_flat), "metrics": MetricRecord({"num-examples": len(samples)})}
    return Message(RecordDict(reply), reply_to=message)


@torch.no_grad()
def read(arrays: ArrayRecord, module: nn.Module, is_flat: bool) -> None:
    """Load the parameters of a message into a module."""
    if not is_flat:
        module.load_state_dict(arrays.to_torch_state_dict())
        return
    parameters = list(module.parameters())
    flat = torch.from_numpy(arrays[FLAT].numpy())
    for parameter, values in zip(parameters, torch.split(flat, [p.numel() for p in parameters]), strict=True):
        parameter.copy_(values.view_as(parameter))


@torch.no_grad()
def written(module: nn.Module, is_flat: bool) -> ArrayRecord:
    """Return the parameters of a module as they travel."""
    if not is_flat:
        return ArrayRecord(module.state_dict())
    return ArrayRecord({FLAT: Array(torch.nn.utils.parameters_to_vector(module.parameters()).numpy())})


# -- the server -------------------------------------------------------------------------------------------------------


def simulate(n_devices: int, rounds: int, settings: Settings) -> Simulated:
    """Run Flower's simulation engine for some rounds of all devices."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    spec = spec_for(n_devices, N_SAMPLES // n_devices, rounds)
    architecture = architecture_of(spec)
    module = architecture.to_module(architecture.initial(spec.seed))
    n_samples = spec.devices * spec.blobs.samples_per_device
    ends: list[float] = []
    models: list[ArrayRecord] = []
    server_app = ServerApp()

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:  # noqa: ARG001  (Flower hands it over)
        grid.pull_interval = settings.pull_s

        def note_the_time(server_round: int, arrays: ArrayRecord) -> None:
            if server_round > 0:  # Flower asks before the first round too
                ends.append(time.perf_counter())
                models[:] = [arrays]

        strategy = FedAvg(
            fraction_evaluate=0.0,
            min_train_nodes=n_devices,  # or else the first round starts with those that happen to be there already
            min_available_nodes=n_devices,
            train_metrics_aggr_fn=counted,
        )
        result = strategy.start(grid, written(module, settings.flat), num_rounds=rounds, evaluate_fn=note_the_time)
        for server_round in range(1, rounds + 1):
            taken = result.train_metrics_clientapp.get(server_round)
            if taken is None or taken["clients"] != n_devices or taken["samples"] != n_samples:
                raise RuntimeError(f"round {server_round} has not all clients in it: {taken}")

    started = time.perf_counter()
    run_simulation(
        server_app,
        client_app,
        num_supernodes=n_devices,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": settings.actors, "log_to_driver": False},
        },
    )
    params = np.concatenate([array.numpy().ravel() for array in models[0].values()]).astype(np.float32)
    return Simulated(ends[0] - started, np.diff(ends).tolist(), params)


def counted(replies: list[RecordDict], weighted_by_key: str) -> MetricRecord:
    """Return how many clients and samples are in a round: the comparison is of rounds that nobody missed."""
    counts = [int(metrics[weighted_by_key]) for reply in replies for metrics in reply.metric_records.values()]
    return MetricRecord({"clients": len(counts), "samples": sum(counts)})
