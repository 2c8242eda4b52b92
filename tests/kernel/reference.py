"""The training in float64, written from the equations and nothing else."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tolfl.core.seeding import Purpose, random_words, stream_keys
from tolfl.core.spec import TrainSettings
from tolfl.kernel import Network, TrainJob
from tolfl.kernel.jobs import Floats


def trained(network: Network, settings: TrainSettings, job: TrainJob) -> tuple[Floats, float]:
    """Return the delta and the mean loss of the last epoch."""
    rows = job.pool[job.first : job.last].astype(np.float64)
    params, n = job.start.astype(np.float64), len(rows)
    first_moment, second_moment = np.zeros_like(params), np.zeros_like(params)
    keys = [
        stream_keys([job.seed], purpose, [job.device], [job.round_index])
        for purpose in (Purpose.BATCH_ORDER, Purpose.DROPOUT)
    ]
    step, total = 0, 0.0
    for epoch in range(settings.epochs):
        order = np.arange(n)
        if settings.batch_size:
            order = np.argsort(random_words(keys[0], n, first=epoch * 2**32)[0])
        width = settings.batch_size or n
        for at in range(0, n, width):
            gradient, losses = gradient_of(network, params, rows[order[at : at + width]], keys[1], step)
            step += 1
            if epoch == settings.epochs - 1:
                total += losses.sum()
            if settings.optimizer == "sgd":
                params = params - settings.lr * gradient
            elif settings.optimizer == "momentum":
                first_moment = settings.momentum * first_moment + gradient
                params = params - settings.lr * first_moment
            else:
                first_moment = 0.9 * first_moment + 0.1 * gradient
                second_moment = 0.999 * second_moment + 0.001 * gradient**2
                root = np.sqrt(second_moment / (1 - 0.999**step)) + 1e-8
                params = params - settings.lr * first_moment / (1 - 0.9**step) / root
    return job.start - params, total / n


def gradient_of(
    network: Network, params: Floats, rows: Floats, key: NDArray[np.uint64], step: int
) -> tuple[Floats, Floats]:
    """Return the gradient of the mean loss of a batch, and each row's loss."""
    n_units = sum(layer.n_out for layer in network.layers if layer.has_dropout)
    n_words = math.ceil(n_units / 4)
    words = random_words(key, len(rows) * n_words, first=step * 2**32)
    kept = words.view(np.uint16).reshape(len(rows), -1)[:, :n_units] < network.threshold
    tensors, first = [], 0
    for layer in network.layers:
        weight = params[first : first + layer.n_in * layer.n_out].reshape(layer.n_out, layer.n_in)
        first += layer.n_in * layer.n_out
        tensors.append((weight, params[first : first + layer.n_out]))
        first += layer.n_out
    out, unit = rows, 0
    inputs, masks = [], []
    for layer, (weight, bias) in zip(network.layers, tensors, strict=True):
        inputs.append(out)
        out = out @ weight.T + bias
        mask = np.ones_like(out)
        if layer.has_relu:
            mask = mask * (out > 0)
        if layer.has_dropout:
            mask = mask * kept[:, unit : unit + layer.n_out] * 65536 / network.threshold
            unit += layer.n_out
        masks.append(mask)
        out = out * mask
    error = out - rows
    upper, parts = 2 * error / len(rows), []
    for place in reversed(range(len(tensors))):
        upper = upper * masks[place]
        parts += [upper.sum(0), (upper.T @ inputs[place]).ravel()]
        upper = upper @ tensors[place][0]
    return np.concatenate(parts[::-1]), (error**2).sum(1)
