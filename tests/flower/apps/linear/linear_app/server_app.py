"""The server: any of Flower's strategies by name, or one of its own; saves the model at the end."""

import datetime
import enum
import os
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp, strategy

from linear_app.task import N_FEATURES, data_of, loss_of

app = ServerApp()


class Trend(enum.Enum):
    BETTER, WORSE = range(2)


class Size(NamedTuple):
    replies: int
    examples: int


@dataclass
class Round:
    number: int
    loss: float
    trend: Trend = Trend.BETTER


class Smoothed:
    """Called like a module of torch, and changed in place like one."""

    def __init__(self):
        self.weights = np.zeros(N_FEATURES)

    def __call__(self, weights):
        self.weights *= 0.5
        self.weights += weights / 2

    def state_dict(self):
        return OrderedDict(weights=self.weights)

    def load_state_dict(self, state):
        self.weights[:] = state["weights"]


class Bound:
    """Called like a function, and remembers the largest number."""

    def __init__(self):
        self.largest = 0.0

    def __call__(self, number):
        self.largest = max(self.largest, number)


class Keeping(strategy.FedAvg):
    """Remembers values of many kinds, some of which are changed in place."""

    def __init__(self, **options):
        super().__init__(**options)
        self.inner = strategy.FedMedian(**options)
        self.window, self.counts, self.by_node = deque(maxlen=2), Counter(), defaultdict(list)
        self.smoothed, self.bound, self.legacy, self.rounds = Smoothed(), Bound(), np.random.RandomState(3), []
        self.worst = self.folder = self.day = self.size = None

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        arrays, metrics = self.inner.aggregate_train(server_round, replies)
        self.smoothed(arrays["weights"].numpy())
        self.window.append(float(self.legacy.uniform()))
        self.bound(self.window[-1])
        for reply in replies:
            self.counts[reply.metadata.src_node_id] += 1
            self.by_node[reply.metadata.src_node_id].append(server_round)
        self.folder, self.day = Path("rounds") / str(server_round), datetime.date(2000, 1, server_round)
        self.size = Size(len(replies), sum(reply.content["metrics"]["num-examples"] for reply in replies))
        return arrays, metrics

    def aggregate_evaluate(self, server_round, replies):
        metrics = self.inner.aggregate_evaluate(server_round, replies)
        done = Round(server_round, metrics["eval_loss"])
        if self.rounds and done.loss > self.rounds[-1].loss:
            done.trend = Trend.WORSE
        self.rounds.append(done)
        self.worst = done if self.worst is None or done.loss > self.worst.loss else self.worst
        return metrics

    def told(self):
        kept = [self.window, self.counts, self.by_node, self.rounds, self.worst, self.folder, self.day, self.size]
        return repr([*kept, self.smoothed.weights, self.bound.largest, self.legacy.uniform()])


class Decaying(strategy.FedAvg):
    """Remembers between rounds: a step that halves whenever the evaluation gets worse, and a generator."""

    def __init__(self, **options):
        super().__init__(**options)
        self.rng = np.random.default_rng(5)
        self.best = None
        self.chosen = []

    def configure_train(self, server_round, arrays, config, grid):
        if server_round > 1:
            config["lr"] = config["lr"] * 0.7
        self.chosen.append(int(self.rng.integers(1000)))
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round, replies):
        metrics = super().aggregate_evaluate(server_round, replies)
        self.best = metrics if self.best is None or metrics["eval_loss"] < self.best["eval_loss"] else self.best
        return metrics


class Odd(strategy.FedAvg):
    """Keeps something that cannot be handed on."""

    def aggregate_train(self, server_round, replies):
        self.file = open(os.devnull)
        return super().aggregate_train(server_round, replies)


def _strategy(told):
    options = {
        "fraction_train": told["fraction-train"],
        "fraction_evaluate": told["fraction-evaluate"],
        "min_train_nodes": told["min-nodes"],
        "min_evaluate_nodes": told["min-nodes"],
        "min_available_nodes": told["min-nodes"],
    }
    name = told["strategy"]
    if name in ("Decaying", "Keeping", "Odd"):
        return {"Decaying": Decaying, "Keeping": Keeping, "Odd": Odd}[name](**options)
    if name == "FedProx":
        options["proximal_mu"] = 0.1
    if name in ("Krum", "MultiKrum", "Bulyan"):
        options["num_malicious_nodes"] = 0
    if name == "MultiKrum":
        options["num_nodes_to_select"] = 2
    if name == "QFedAvg":
        options["client_learning_rate"] = 0.1
    if name.startswith("DifferentialPrivacy"):
        inner = strategy.FedAvg(**options)
        return strategy.DifferentialPrivacyClientSideFixedClipping(inner, 1.0, 1.0, 2)
    return getattr(strategy, name)(**options)


@app.main()
def main(grid: Grid, context: Context) -> None:
    told = context.run_config
    first = ArrayRecord(
        {"weights": Array(np.random.normal(size=N_FEATURES).astype(np.float32)), "bias": Array(np.zeros(1))}
    )
    if told["padding"]:
        first["padding"] = Array(np.zeros(told["padding"], np.float32))
        first["steps"] = Array(np.array(0))  # as a batch norm counts them
    rows, targets = data_of(0, 999)

    def central(number: int, arrays: ArrayRecord) -> MetricRecord:
        if told["progress"]:
            with open(told["progress"], "a") as file:
                file.write(f"{number}\n")
        return MetricRecord(
            {"loss": loss_of(arrays["weights"].numpy(), float(arrays["bias"].numpy()[0]), rows, targets)}
        )

    chosen = _strategy(told)
    result = chosen.start(
        grid=grid,
        initial_arrays=first,
        num_rounds=told["num-server-rounds"],
        train_config=ConfigRecord({"lr": told["learning-rate"]}),
        evaluate_fn=central,
    )
    np.save("final_weights.npy", result.arrays["weights"].numpy())
    with open("metrics.txt", "w") as file:
        for number, metrics in sorted(result.train_metrics_clientapp.items()):
            file.write(f"{number} {dict(metrics)}\n")
        if isinstance(chosen, Keeping):
            file.write(chosen.told())
