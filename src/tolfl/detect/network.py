"""Scoring: one chain of dense layers for every model: autoencoder, PCA and Mahalanobis distance.

PCA's reconstruction is two linear layers and the distance is one, so whatever was trained is scored, explained, saved
and exported in one way: a score is a sum of squares, one for each feature.
Rows go through in blocks of one size, and widths are filled up with zeros: matrix products of another shape, and the
edges of narrow ones, add in another order, and a sample would get another score alone than in company.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from tolfl.core.contribution import Vector
from tolfl.models import Autoencoder
from tolfl.models.threads import one_torch_thread

Floats32 = NDArray[np.float32]

_BLOCK_ROWS = 256
_WIDTH_STEP = 16  #: floats of the widest vector register: a multiple has no edge


@dataclass(frozen=True, eq=False)
class Dense:
    """One layer: `weight @ x + bias`, then ReLU or nothing."""

    weight: Floats32
    bias: Floats32
    has_relu: bool = False


@dataclass(frozen=True, eq=False)
class ScoringNetwork:
    """A trained model that reconstructs scaled samples, or says directly how far each feature is off."""

    layers: tuple[Dense, ...]
    #: Whether the layers give what is squared and summed. A reconstruction has the sample subtracted first.
    is_residual: bool = False

    @classmethod
    def of_subspace(cls, mean: Vector, directions: Vector) -> ScoringNetwork:
        """Return PCA's reconstruction: onto `directions`, shape `(n_components, n_features)`, and back."""
        down = Dense(_f32(directions), _f32(-(directions @ mean)))
        return cls((down, Dense(_f32(directions.T), _f32(mean))))

    @classmethod
    def of_distance(cls, mean: Vector, root: Vector) -> ScoringNetwork:
        """Return the distance to `mean`, by the symmetric `root` of the precision: `(n_features, n_features)`."""
        return cls((Dense(_f32(root), _f32(-(root @ mean))),), is_residual=True)

    @classmethod
    def of_autoencoder(cls, model: Autoencoder, params: Vector, has_code_relu: bool = False) -> ScoringNetwork:
        """Return the autoencoder with these parameters."""
        tensors = list(model.tensors(params).values())
        n_layers = len(tensors) // 2
        code, output = n_layers // 2 - 1, n_layers - 1
        layers = [
            Dense(_f32(weight), _f32(bias), place != output and (place != code or has_code_relu))
            for place, (weight, bias) in enumerate(zip(tensors[::2], tensors[1::2], strict=True))
        ]
        return cls(tuple(layers))

    @property
    def n_features(self) -> int:
        """How many numbers a sample has."""
        return len(self.layers[-1].weight)

    @cached_property
    def _tensors(self) -> list[tuple[Tensor, Tensor, bool]]:
        return [
            (torch.from_numpy(_filled_up(one.weight)), torch.from_numpy(_filled_up(one.bias)), one.has_relu)
            for one in self.layers
        ]

    def reconstructed(self, scaled: Floats32) -> Floats32:
        """Return what the model expects in place of each value, in the samples' shape.

        Of a distance, that is the feature's conditional mean: what all the others lead to, by its covariance.
        """
        out = self._outputs(scaled)
        if not self.is_residual:
            return out
        root = self.layers[0].weight.astype(np.float64)
        # Of a normal distribution with precision P = root root: x_j - (P (x - mean))_j / P_jj.
        return _f32(scaled - out @ root / np.square(root).sum(axis=1))

    def feature_errors(self, scaled: Floats32) -> NDArray[np.float64]:
        """Return what each feature adds to the score, in the samples' shape."""
        out = self._outputs(scaled).astype(np.float64)
        return np.square(out if self.is_residual else scaled - out)

    def _outputs(self, scaled: Floats32) -> Floats32:
        out = np.empty_like(scaled)
        with one_torch_thread():
            for first, last, block in _blocks(scaled):
                out[first:last] = self._forward(block)[: last - first, : scaled.shape[1]].numpy()
        return out

    def errors(self, scaled: Floats32) -> Floats32:
        """Return each sample's score: the squared errors, summed over features."""
        errors = np.empty(len(scaled), np.float32)
        with one_torch_thread():
            for first, last, block in _blocks(scaled):
                out = self._forward(block)
                out = out if self.is_residual else out.sub_(block)
                errors[first:last] = out.square_().sum(1)[: last - first].numpy()
        return errors

    def _forward(self, block: Tensor) -> Tensor:
        out = block
        with torch.no_grad():
            for weight, bias, has_relu in self._tensors:
                out = functional.linear(out, weight, bias)
                out = out.relu_() if has_relu else out
        return out

    def to_module(self) -> nn.Sequential:
        """Return the layers as a PyTorch module with a copy of the parameters; see `is_residual` for what they give."""
        module = nn.Sequential()
        for layer in self.layers:
            n_out, n_in = layer.weight.shape
            linear = nn.Linear(n_in, n_out)
            with torch.no_grad():
                linear.weight.copy_(torch.from_numpy(layer.weight))
                linear.bias.copy_(torch.from_numpy(layer.bias))
            module.append(linear)
            if layer.has_relu:
                module.append(nn.ReLU())
        return module.eval()


def lowest_errors(networks: Sequence[ScoringNetwork], scaled: Floats32) -> Floats32:
    """Return the least error over the models: typical is what at least one of them explains."""
    lowest = networks[0].errors(scaled)
    for network in networks[1:]:
        np.minimum(lowest, network.errors(scaled), out=lowest)
    return lowest


def _blocks(scaled: Floats32) -> Iterator[tuple[int, int, Tensor]]:
    """Yield rows from `first` to `last` as blocks of one shape, the last one filled up with zeros."""
    n_rows, width = len(scaled), _up_to(scaled.shape[1], _WIDTH_STEP)
    shape = (_up_to(n_rows, _BLOCK_ROWS), width)
    filled = scaled
    if shape != scaled.shape:
        filled = np.zeros(shape, np.float32)
        filled[:n_rows, : scaled.shape[1]] = scaled
    whole = torch.from_numpy(np.ascontiguousarray(filled))
    for first in range(0, n_rows, _BLOCK_ROWS):
        yield first, min(first + _BLOCK_ROWS, n_rows), whole[first : first + _BLOCK_ROWS]


def _filled_up(array: Floats32) -> Floats32:
    filled = np.zeros([_up_to(size, _WIDTH_STEP) for size in array.shape], np.float32)
    filled[tuple(slice(size) for size in array.shape)] = array
    return filled


def _up_to(size: int, step: int) -> int:
    return -(-size // step) * step


def _f32(values: NDArray[np.floating]) -> Floats32:
    return np.array(values, dtype=np.float32, order="C")
