"""A client: one epoch of SGD on its own samples.

SuperNode starts a process for every message, so whatever this imports is loaded in every round: torch, and nothing else
that takes long.
"""

from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

app = ClientApp()


def network(widths: list[int], dropout: float) -> nn.Sequential:
    """Return dense layers with ReLU and dropout between them; no ReLU after the narrowest."""
    code = widths.index(min(widths))
    layers: list[nn.Module] = []
    for place, (n_in, n_out) in enumerate(pairwise(widths)):
        layers.append(nn.Linear(n_in, n_out))
        if place + 1 < len(widths) - 1 and place + 1 != code:
            layers += [nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers)


@app.train()
def train(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    config = context.run_config
    module = network([int(width) for width in str(config["widths"]).split(",")], float(config["dropout"])).train()
    flat = torch.from_numpy(message.content["arrays"]["flat"].numpy().copy())
    nn.utils.vector_to_parameters(flat, module.parameters())
    optimizer = torch.optim.SGD(module.parameters(), lr=float(config["lr"]))
    path = Path(str(config["folder"])) / f"samples-{context.node_config['partition-id']}.npy"
    samples, size = torch.from_numpy(np.load(path)), int(config["batch-size"])
    order = torch.randperm(len(samples))
    for first in range(0, len(samples), size):
        batch = samples[order[first : first + size]]
        optimizer.zero_grad()
        (module(batch) - batch).square().sum(dim=1).mean().backward()
        optimizer.step()
    with torch.no_grad():
        trained = nn.utils.parameters_to_vector(module.parameters()).numpy()
    metrics = MetricRecord({"num-examples": len(samples)})
    return Message(RecordDict({"arrays": ArrayRecord({"flat": Array(trained)}), "metrics": metrics}), reply_to=message)
