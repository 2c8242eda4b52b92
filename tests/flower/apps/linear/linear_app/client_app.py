"""The client: trains on its partition, counts its rounds in its state, and misbehaves if it is told to."""

import os
import sys
import time

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from linear_app.task import data_of, loss_of, trained

app = ClientApp()


def _misbehave(context: Context, number: int) -> str:
    told = context.run_config
    is_victim = told["victim"] in (-1, context.node_config["partition-id"])
    if not is_victim or (told["at-round"] and told["at-round"] != number):
        return ""
    what = str(told["misbehaves"])
    if what == "raises":
        raise ValueError("no such\nfile")
    if what == "exits":
        sys.exit(3)
    if what == "crashes":
        os._exit(7)
    if what == "sleeps":
        time.sleep(0.2)
    if what == "hangs":
        time.sleep(10_000)
    if what == "prints":
        print("x" * 100_000)
        os.write(1, b"raw bytes on standard output\n")
    if what == "locks":
        sum(range(60_000_000))
    if what == "forks" and os.fork() == 0:
        os._exit(0)
    return what


@app.train()
def train(message: Message, context: Context) -> Message:
    number = message.content["config"]["server-round"]
    what = _misbehave(context, number)
    arrays = message.content["arrays"]
    rows, targets = data_of(context.node_config["partition-id"], context.node_config["num-partitions"])
    weights, bias = arrays["weights"].numpy(), float(arrays["bias"].numpy()[0])
    lr = message.content["config"].get("lr", context.run_config["learning-rate"])
    weights, bias = trained(weights, bias, rows, targets, lr)
    if what == "not finite":
        weights = weights * np.nan
    if what == "shape":
        weights = weights.reshape(2, -1)
    seen = context.state["seen"]["rounds"] + 1 if "seen" in context.state else 1
    context.state["seen"] = ConfigRecord({"rounds": seen})
    n = {"half": 0.5, "none": 0}.get(what, len(rows))
    metrics = MetricRecord(
        {"num-examples": n, "train_loss": loss_of(weights.ravel(), bias, rows, targets), "seen": seen}
    )
    model = ArrayRecord({"weights": Array(weights), "bias": Array(np.array([bias]))})
    if "padding" in arrays:
        model["padding"] = Array(arrays["padding"].numpy() + np.float32(1))
        model["steps"] = Array(np.asarray(arrays["steps"].numpy() + 1))
    return Message(RecordDict({"arrays": model, "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    arrays = message.content["arrays"]
    rows, targets = data_of(context.node_config["partition-id"], context.node_config["num-partitions"])
    loss = loss_of(arrays["weights"].numpy(), float(arrays["bias"].numpy()[0]), rows, targets)
    metrics = MetricRecord({"num-examples": len(rows), "eval_loss": loss})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
