"""Scoring: one chain of dense layers for every model: autoencoder, PCA and Mahalanobis distance.

PCA's reconstruction is two linear layers and the distance is one, so whatever was trained is scored, explained, saved
and exported in one way: a score is a sum of squares, one for each feature.
Rows go through in blocks of one size, in double precision, and widths are filled up with zeros: matrix products of
another shape add in another order, those in single precision even by the row's place in its block, and a sample would
get another score alone than in company.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from tolfl.core.contribution import Vector

if TYPE_CHECKING:
    from tolfl.learners.autoencoder import Autoencoder

Floats32 = NDArray[np.float32]
Floats64 = NDArray[np.float64]

_BLOCK_ROWS = 256
_WIDTH_STEP = 16  #: a multiple of every vector register: there is no edge


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
    def _padded(self) -> list[tuple[Floats64, Floats64, bool]]:
        """Weights `(n_in, n_out)`, biases and ReLUs, filled up with zeros."""
        return [(_filled_up(one.weight.T), _filled_up(one.bias), one.has_relu) for one in self.layers]

    def reconstructed(self, scaled: Floats32) -> Floats64:
        """Return what the model expects in place of each value, in the samples' shape.

        Of a distance, that is the feature's conditional mean: what all the others lead to, by its covariance.
        """
        out = self._outputs(scaled)
        if not self.is_residual:
            return out
        root = self.layers[0].weight.astype(np.float64)
        # Of a normal distribution with precision P = root root: x_j - (P (x - mean))_j / P_jj.
        return np.asarray(scaled - out @ root / np.square(root).sum(axis=1))

    def feature_errors(self, scaled: Floats32) -> NDArray[np.float64]:
        """Return what each feature adds to the score, in the samples' shape."""
        out = self._outputs(scaled)
        return np.square(out if self.is_residual else scaled - out)

    def _outputs(self, scaled: Floats32) -> Floats64:
        out = np.empty(scaled.shape)
        with threadpool_limits(limits=1):
            for first, last, block in _blocks(scaled):
                out[first:last] = self._forward(block)[: last - first, : scaled.shape[1]]
        return out

    def errors(self, scaled: Floats32) -> Floats32:
        """Return each sample's score: the squared errors, summed over features."""
        errors = np.empty(len(scaled), np.float32)
        with threadpool_limits(limits=1):
            for first, last, block in _blocks(scaled):
                out = self._forward(block)
                out = out if self.is_residual else np.subtract(out, block, out=out)
                errors[first:last] = np.einsum("ij,ij->i", out, out)[: last - first]
        return errors

    def _forward(self, block: Floats64) -> Floats64:
        out = block
        for weight, bias, has_relu in self._padded:
            out = out @ weight
            out += bias
            if has_relu:
                np.maximum(out, 0.0, out=out)
        return out


def lowest_errors(networks: Sequence[ScoringNetwork], scaled: Floats32) -> Floats32:
    """Return the least error over the models: typical is what at least one of them explains."""
    lowest = networks[0].errors(scaled)
    for network in networks[1:]:
        np.minimum(lowest, network.errors(scaled), out=lowest)
    return lowest


def _blocks(scaled: Floats32) -> Iterator[tuple[int, int, Floats64]]:
    """Yield rows from `first` to `last` as blocks of one shape, the last one filled up with zeros."""
    n_rows, width = len(scaled), _up_to(scaled.shape[1], _WIDTH_STEP)
    for first in range(0, n_rows, _BLOCK_ROWS):
        last = min(first + _BLOCK_ROWS, n_rows)
        block = np.zeros((_BLOCK_ROWS, width))
        block[: last - first, : scaled.shape[1]] = scaled[first:last]
        yield first, last, block


def _filled_up(array: Floats32) -> Floats64:
    filled = np.zeros([_up_to(size, _WIDTH_STEP) for size in array.shape])
    filled[tuple(slice(size) for size in array.shape)] = array
    return filled


def _up_to(size: int, step: int) -> int:
    return -(-size // step) * step


def _f32(values: NDArray[np.floating]) -> Floats32:
    return np.array(values, dtype=np.float32, order="C")
