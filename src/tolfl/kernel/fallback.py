"""The kernel in NumPy, for where there is no compiler: the same bits, slowly.

A fused multiply-add of float32 is rounded once. In float64 the product is exact and only the sum is rounded; rounding
that to float32 goes wrong only where it lies half way between two floats, or below the normal ones. There the sum is
rounded to odd first (Boldo and Melquiond, 2008), after which the last rounding is the only one that counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tolfl.core.seeding import random_words
from tolfl.core.spec import TrainSettings
from tolfl.kernel.cell_statistics import NumpyStatistics
from tolfl.kernel.dense_network import Layer, Network
from tolfl.kernel.jobs import WORDS_PER_STEP, Floats, TrainJob, keys_of

F4 = NDArray[np.float32]
F8 = NDArray[np.float64]

_LOW_BITS, _HALF_WAY = np.int64(2**29 - 1), np.int64(2**28)
_LEAST_NORMAL = 2.0**-126
_LANES = 16
_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, np.float32(1e-8)


def fma(a: Floats | np.float32, b: Floats, c: Floats) -> F4:
    """Return `a * b + c` of float32, rounded once.

    >>> tiny = np.float32(2**-24)
    >>> one = np.array([1], np.float32)
    >>> bool(fma(1 + 2 * tiny * one, 1 - tiny * one, -one)[0] == tiny - 2 * tiny * tiny)
    True
    """
    product = np.multiply(a, b, dtype=np.float64)
    total = np.atleast_1d(product + c)
    doubtful = ((total.view(np.int64) & _LOW_BITS) == _HALF_WAY) | (np.abs(total) < _LEAST_NORMAL)
    if doubtful.any():
        exact = np.broadcast_to(product, total.shape)[doubtful]
        total[doubtful] = _rounded_to_odd(exact, np.broadcast_to(c, total.shape)[doubtful], total[doubtful])
    return total.astype(np.float32)


def _rounded_to_odd(a: F8, b: Floats, total: F8) -> F8:
    back = total - a
    error = (a - (total - back)) + (b - back)
    bits = total.view(np.int64).copy()
    is_even = (error != 0) & (bits & 1 == 0)
    bits[is_even] += np.where((error > 0) == (total > 0), 1, -1)[is_even]
    return bits.view(np.float64)


def _product(left: F4, right: F4) -> F4:
    """Return `left @ right`, each number a sum over k in order."""
    total = np.zeros((len(left), right.shape[1]), np.float32)
    for k in range(left.shape[1]):
        total = fma(left[:, k, None], right[k], total)
    return total


def _sum_of_rows(rows: F4) -> F4:
    total = np.zeros(rows.shape[1], np.float32)
    for row in rows:
        total = total + row
    return total


def _squared(errors: F4) -> F4:
    """Return each row's sum of squares: sixteen running sums over every sixteenth column, then a fixed tree."""
    n_rows, width = errors.shape
    filled = np.zeros((n_rows, -(-width // _LANES) * _LANES), np.float32)
    filled[:, :width] = errors
    lanes = np.zeros((n_rows, _LANES), np.float32)
    for first in range(0, width, _LANES):
        part = filled[:, first : first + _LANES]
        lanes = fma(part, part, lanes)
    half = _LANES // 2
    while half:
        lanes = lanes[:, :half] + lanes[:, half : 2 * half]
        half //= 2
    return lanes[:, 0]


class NumpyKernel:
    """The kernel in NumPy."""

    name = "NumPy"
    statistics = NumpyStatistics()

    def train(
        self, network: Network, settings: TrainSettings, jobs: Sequence[TrainJob]
    ) -> tuple[Floats, NDArray[np.float64]]:
        """Return each job's delta, shape `(n_jobs, n_params)`, and its loss: not finite where it diverged."""
        deltas = np.empty((len(jobs), network.n_params), np.float32)
        losses = np.empty(len(jobs), np.float64)
        order_keys, dropout_keys = keys_of(jobs)
        with np.errstate(all="ignore"):
            for place, job in enumerate(jobs):
                keys = order_keys[place : place + 1], dropout_keys[place : place + 1]
                deltas[place], losses[place] = _Training(network, settings, job, *keys).run()
        losses[~np.isfinite(deltas).all(axis=1)] = np.nan
        return deltas, losses

    def add(
        self, network: Network, settings: TrainSettings, jobs: Sequence[TrainJob], weights: Floats, total: Floats
    ) -> NDArray[np.float64]:
        """Add each job's weighted delta to `total`, in place and in order; return the losses."""
        losses = np.empty(len(jobs), np.float64)
        for place, job in enumerate(jobs):
            (delta,), (losses[place],) = self.train(network, settings, [job])
            with np.errstate(all="ignore"):
                total += np.float32(weights[place]) * delta
        return losses

    def score(self, network: Network, params: Floats, rows: Floats) -> tuple[Floats, Floats]:
        """Return each row's squared error and the outputs `(n_rows, n_outputs)`; dropout is off."""
        given: F4 = np.ascontiguousarray(rows, np.float32)
        out = given
        with np.errstate(all="ignore"):
            for layer, (weight, bias) in zip(network.layers, _tensors(network, params), strict=True):
                out = _forward(layer, 1, out, weight, bias)
            return _squared(out if network.is_residual else out - given), out


def _forward(layer: Layer, gain: float, rows: F4, weight: F4, bias: F4) -> F4:
    """Return what a layer gives, dropout apart."""
    out = fma(np.float32(gain), _product(rows, weight.T), np.broadcast_to(bias, (len(rows), len(bias))))
    return np.where(out <= 0, np.float32(0), out) if layer.has_relu else out  # keeps NaN: divergence must show


def _tensors(network: Network, params: Floats) -> list[tuple[F4, F4]]:
    """Return weight and bias of each layer, as views into flat parameters."""
    found, first = [], 0
    params = params.astype(np.float32, copy=False)
    for layer in network.layers:
        middle, last = first + layer.n_in * layer.n_out, first + (layer.n_in + 1) * layer.n_out
        found.append((params[first:middle].reshape(layer.n_out, layer.n_in), params[middle:last]))
        first = last
    return found


class _Training:
    """One device's training in one round."""

    def __init__(
        self,
        network: Network,
        settings: TrainSettings,
        job: TrainJob,
        order_key: NDArray[np.uint64],
        dropout_key: NDArray[np.uint64],
    ) -> None:
        self._network, self._settings = network, settings
        self._order_key, self._dropout_key = order_key, dropout_key
        self._rows = np.ascontiguousarray(job.pool[job.first : job.last], np.float32)
        self._start = job.start.astype(np.float32, copy=False)
        self._lr = np.float32(settings.lr)
        self._n_steps = 0

    def run(self) -> tuple[F4, float]:
        """Return the delta and the mean loss of the last epoch."""
        settings, n = self._settings, len(self._rows)
        width = min(settings.batch_size or n, n)
        is_single = settings.optimizer == "sgd" and settings.epochs * -(-n // width) == 1
        weights, state = self._start.copy(), (np.zeros_like(self._start), np.zeros_like(self._start))
        total, betas = 0.0, (1.0, 1.0)
        for epoch in range(settings.epochs):
            order = np.arange(n)
            if settings.batch_size:
                words = random_words(self._order_key, n, first=epoch * WORDS_PER_STEP)[0]
                order = np.argsort(words, kind="stable")
            for first in range(0, n, width):
                rows = self._rows[order[first : first + width]]
                if settings.optimizer == "sgd":
                    # The only step gives the delta itself.
                    weights, losses = self._gradient(rows, weights, None if is_single else weights, self._lr)
                else:
                    gradient, losses = self._gradient(rows, weights, None, np.float32(1))
                    betas = betas[0] * _BETA_1, betas[1] * _BETA_2
                    weights, state = self._moved(weights, gradient, state, betas)
                self._n_steps += 1
                if epoch == settings.epochs - 1:
                    for loss in losses.tolist():
                        total += loss
        return (weights if is_single else self._start - weights), total / n

    def _moved(
        self, weights: F4, gradient: F4, state: tuple[F4, F4], betas: tuple[float, float]
    ) -> tuple[F4, tuple[F4, F4]]:
        """Return the weights after a step of the optimiser, and its state."""
        mean, square = state
        if self._settings.optimizer == "momentum":
            velocity = fma(np.float32(self._settings.momentum), mean, gradient)
            return fma(-self._lr, velocity, weights), (velocity, square)
        mean = fma(np.float32(1 - _BETA_1), gradient - mean, mean)
        square = fma(np.float32(1 - _BETA_2), gradient * gradient, np.float32(_BETA_2) * square)
        step = np.float32(self._settings.lr / (1 - betas[0]))
        root = np.sqrt(square) / np.float32(math.sqrt(1 - betas[1])) + _EPSILON
        return fma(-step, mean / root, weights), (mean, square)

    def _dropout(self, n_rows: int) -> NDArray[np.bool_]:
        """Return which units are kept, shape `(n_rows, n_dropped_units)`."""
        n_units = self._network.n_dropped_units
        n_words = -(-n_units // 4)
        words = random_words(self._dropout_key, n_rows * n_words, first=self._n_steps * WORDS_PER_STEP)
        numbers = words.astype("<u8").view("<u2").reshape(n_rows, -1)
        kept: NDArray[np.bool_] = numbers[:, :n_units] < self._network.threshold
        return kept

    def _gradient(self, rows: F4, params: F4, into: F4 | None, rate: np.float32) -> tuple[F4, F4]:
        """Return `rate * gradient` or, where `into` is given, `into - rate * gradient`; and each row's loss."""
        layers, tensors = self._network.layers, _tensors(self._network, params)
        kept, unit = self._dropout(len(rows)), 0
        activations = [rows]
        for layer, (weight, bias) in zip(layers, tensors, strict=True):
            out = _forward(layer, layer.gain, activations[-1], weight, bias)
            if layer.has_dropout:
                out = np.where(kept[:, unit : unit + layer.n_out], out, np.float32(0))
                unit += layer.n_out
            activations.append(out)
        error = activations[-1] - rows
        losses = _squared(error)
        upper = np.float32(2) / np.float32(len(rows)) * error
        parts: list[F4] = []
        for place in reversed(range(len(layers))):
            (weight, _), inputs, gain = tensors[place], activations[place], np.float32(layers[place].gain)
            slope = _product(np.ascontiguousarray(upper.T), inputs).ravel()
            parts += [self._placed(_sum_of_rows(upper), rate, into, sum(map(len, parts)))]
            parts += [self._placed(slope, rate * gain, into, sum(map(len, parts)))]
            if place:
                below = gain * _product(upper, weight)
                upper = np.where(inputs > 0, below, np.float32(0)) if layers[place - 1].has_relu else below
        return np.concatenate(parts[::-1]), losses

    @staticmethod
    def _placed(slope: F4, rate: np.float32, into: F4 | None, n_above: int) -> F4:
        """Return `rate * slope` or, where `into` is given, its numbers at this place less that."""
        if into is None:
            return rate * slope
        last = len(into) - n_above
        return fma(-rate, slope, into[last - len(slope) : last])
