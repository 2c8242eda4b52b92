"""The usual research loop: for each device deepcopy the model, go through a DataLoader, average state dicts.

This is how most published federated-learning code simulates a round; it is the rival that `make bench` measures
against. Same model, data, batch size, optimiser and dropout as ours.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tolfl.datasets import FederatedDataset


def one_round(model: nn.Module, data: FederatedDataset, lr: float, batch_size: int) -> nn.Module:
    """Return the model after one round of federated averaging."""
    states: list[dict[str, Tensor]] = []
    counts: list[int] = []
    for device in range(data.n_devices):
        local = copy.deepcopy(model).train()
        optimizer = torch.optim.SGD(local.parameters(), lr=lr)
        slices = TensorDataset(torch.from_numpy(data.slice_of(device)))
        for (batch,) in DataLoader(slices, batch_size=batch_size, shuffle=True):
            optimizer.zero_grad()
            loss = (local(batch) - batch).square().sum(dim=1).mean()
            loss.backward()
            optimizer.step()
        states.append(local.state_dict())
        counts.append(data.n_samples(device))
    total = sum(counts)
    average = {
        name: torch.stack([state[name] * (n / total) for state, n in zip(states, counts, strict=True)]).sum(dim=0)
        for name in states[0]
    }
    result = copy.deepcopy(model)
    result.load_state_dict(average)
    return result
