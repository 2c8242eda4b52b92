"""A linear model, and data of each partition: no download, no framework."""

import numpy as np

N_FEATURES = 6


def data_of(partition: int, n_partitions: int):
    """Return rows and targets of a partition: more rows, and other ones, for each."""
    rng = np.random.default_rng(1000 * n_partitions + partition)
    n_rows = 20 + 7 * partition
    rows = rng.normal(size=(n_rows, N_FEATURES)).astype(np.float32)
    targets = rows @ np.arange(1, N_FEATURES + 1, dtype=np.float32) + rng.normal(size=n_rows).astype(np.float32)
    return rows, targets


def trained(weights, bias, rows, targets, lr):
    """Return the model after a few noisy steps: the noise comes from the global generator, as in many apps."""
    for _ in range(5):
        chosen = np.random.permutation(len(rows))[: len(rows) // 2]
        error = rows[chosen] @ weights + bias - targets[chosen]
        weights = weights - np.float32(lr) * (rows[chosen].T @ error / np.float32(len(chosen)))
        bias = bias - lr * float(error.mean())
    return weights.astype(np.float32), np.float64(bias)


def loss_of(weights, bias, rows, targets):
    """Return the mean squared error."""
    return float(np.mean((rows @ weights + bias - targets) ** 2))
