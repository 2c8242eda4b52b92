"""Models that reconstruct rows, PCA and the autoencoder: a score is the squared reconstruction error.

PCA is two linear layers, so both are scored, explained, saved and exported in one way. Rows go through in blocks of one
size, in double precision, and widths are filled up with zeros: matrix products of another shape add in another order,
those in single precision even by the row's place in its block, and a row alone would not get the score it has among
others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tolfl.datasets.scaling import Scaler
from tolfl.detect.cells import Arrays, Floats, Floats32, Rows, blocks, filled_up, one_thread

if TYPE_CHECKING:
    from tolfl.core.contribution import Vector
    from tolfl.learners.autoencoder import Autoencoder


@dataclass(frozen=True, eq=False)
class Dense:
    """One layer: `weight @ x + bias`, then ReLU or nothing."""

    weight: Floats32
    bias: Floats32
    has_relu: bool = False


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """A trained model that reconstructs scaled rows."""

    kind: str  #: `pca` or `autoencoder`
    scaler: Scaler
    low: Floats  #: of the training rows: what is expected in place of a value is never below
    high: Floats
    layers: tuple[Dense, ...]

    @classmethod
    def of_subspace(cls, scaler: Scaler, low: Floats, high: Floats, mean: Vector, directions: Vector) -> Reconstruction:
        """Return PCA's reconstruction: onto `directions`, shape `(n_components, n_features)`, and back."""
        down = Dense(_f32(directions), _f32(-(directions @ mean)))
        return cls("pca", scaler, low, high, (down, Dense(_f32(directions.T), _f32(mean))))

    @classmethod
    def of_autoencoder(
        cls, scaler: Scaler, low: Floats, high: Floats, model: Autoencoder, params: Vector
    ) -> Reconstruction:
        """Return the autoencoder with these parameters."""
        tensors = list(model.tensors(params).values())
        n_layers = len(tensors) // 2
        linear = {n_layers // 2 - 1, n_layers - 1}  # the code and the output
        layers = [
            Dense(_f32(weight), _f32(bias), place not in linear)
            for place, (weight, bias) in enumerate(zip(tensors[::2], tensors[1::2], strict=True))
        ]
        return cls("autoencoder", scaler, low, high, tuple(layers))

    @property
    def n_features(self) -> int:
        """How many numbers a row has."""
        return len(self.layers[-1].weight)

    @property
    def name(self) -> str:
        """Its name in tables: the kind, and the width of the code."""
        return f"{self.kind}-{len(self.layers[len(self.layers) // 2 - 1].bias)}"

    @property
    def fill(self) -> Floats:
        """The value that replaces a missing one."""
        return self.scaler.fill

    @cached_property
    def _padded(self) -> list[tuple[Floats, Floats, bool]]:
        """Weights `(n_in, n_out)`, biases and ReLUs, filled up with zeros."""
        wide = [(one.weight.T.astype(np.float64), one.bias.astype(np.float64), one.has_relu) for one in self.layers]
        return [(filled_up(weight), filled_up(bias), has_relu) for weight, bias, has_relu in wide]

    def scores(self, rows: Rows, own: Floats | None = None) -> Floats32:  # noqa: ARG002  (own cells: of `Cells` only)
        """Return one score per row, the same for a row alone and among others."""
        scaled = self.scaler(rows)
        scores = np.empty(len(scaled), np.float32)
        with one_thread.limit(limits=1):
            for first, last, block in blocks(scaled):
                gap = self._forward(block) - block
                scores[first:last] = np.einsum("ij,ij->i", gap, gap)[: last - first]
        return scores

    def attributions(self, rows: Rows, own: Floats | None = None) -> tuple[Floats, Floats]:  # noqa: ARG002
        """Return what the model expects in place of each value, and what each adds to the score."""
        scaled = self.scaler(rows)
        out = np.empty(scaled.shape)
        with one_thread.limit(limits=1):
            for first, last, block in blocks(scaled):
                out[first:last] = self._forward(block)[: last - first, : self.n_features]
        expected = np.clip(out / self.scaler.factor + self.scaler.shift, self.low, self.high)
        return np.asarray(expected), np.square(scaled - out)

    def _forward(self, block: Floats) -> Floats:
        out = block
        for weight, bias, has_relu in self._padded:
            out = out @ weight
            out += bias
            if has_relu:
                np.maximum(out, 0.0, out=out)
        return out

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything as arrays by name."""
        scaler = self.scaler
        arrays: dict[str, NDArray[Any]] = {
            "scaler/shift": scaler.shift,
            "scaler/factor": scaler.factor,
            "scaler/fill": scaler.fill,
            "scaler/low": self.low,
            "scaler/high": self.high,
            "relus": np.array([layer.has_relu for layer in self.layers], np.int64),
        }
        for place, layer in enumerate(self.layers):
            arrays |= {f"layer/{place}/weight": layer.weight, f"layer/{place}/bias": layer.bias}
        return arrays

    @classmethod
    def from_arrays(cls, kind: str, arrays: Arrays) -> Reconstruction:
        """Return the model that `arrays` gave."""
        layers = []
        for place, has_relu in enumerate(arrays["relus"].tolist()):
            weight, bias = arrays[f"layer/{place}/weight"], arrays[f"layer/{place}/bias"]
            if weight.ndim != 2 or bias.shape != weight.shape[:1] or weight.dtype != np.float32:
                raise ValueError(f"layer {place} has shapes {weight.shape} and {bias.shape}")
            layers.append(Dense(weight, bias, bool(has_relu)))
        shift, factor, fill, low, high = (
            arrays[f"scaler/{name}"] for name in ("shift", "factor", "fill", "low", "high")
        )
        return cls(kind, Scaler(shift, factor, fill), low, high, tuple(layers))


def _f32(values: NDArray[np.floating]) -> Floats32:
    return np.array(values, dtype=np.float32, order="C")
