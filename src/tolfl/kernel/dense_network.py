"""Chains of dense layers: the shape of what the kernel trains and scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from tolfl.core.errors import SpecError

MAX_LAYERS = 64
_LEVELS = 2**16  # dropout compares 16-bit numbers: drawing bits was half the cost of training


@dataclass(frozen=True, slots=True)
class Layer:
    """One dense layer, its weight `(n_out, n_in)` stored before its bias."""

    n_in: int
    n_out: int
    has_relu: bool = False
    has_dropout: bool = False
    gain: float = 1.0  #: scale of the inputs in training: makes up for what the layer below dropped


@dataclass(frozen=True)
class Network:
    """Layers from input to output; a row's loss is the squared distance from its reconstruction."""

    layers: tuple[Layer, ...]
    threshold: int = _LEVELS  #: how many of the 65,536 levels keep a unit
    is_residual: bool = False  #: whether the output is the error itself, and the row is not subtracted from it

    def __post_init__(self) -> None:
        """Reject what cannot be computed."""
        if not 1 <= len(self.layers) <= MAX_LAYERS:
            raise SpecError(f"a network of {len(self.layers)} layers; give 1 to {MAX_LAYERS}")
        for below, above in pairwise(self.layers):
            if below.n_out != above.n_in:
                raise SpecError(f"a layer of {below.n_out} outputs is followed by one of {above.n_in} inputs")
        if not self.is_residual and self.layers[0].n_in != self.layers[-1].n_out:
            raise SpecError(f"{self.layers[0].n_in} features cannot be compared with {self.layers[-1].n_out} outputs")

    @classmethod
    def autoencoder(
        cls, n_features: int, hidden: Sequence[int], code: int, dropout: float, has_code_relu: bool
    ) -> Network:
        """Return in - hidden - code - hidden reversed - in: ReLU and dropout on hidden layers, a linear output.

        >>> network = Network.autoencoder(4, [8], 2, dropout=0.2, has_code_relu=False)
        >>> [(layer.n_in, layer.n_out, layer.has_dropout) for layer in network.layers]
        [(4, 8, True), (8, 2, False), (2, 8, True), (8, 4, False)]
        """
        widths = [n_features, *hidden, code, *reversed(hidden), n_features]
        code_layer, output_layer = len(hidden), 2 * len(hidden) + 1
        # Never none, never all; and the gain makes the expectation exact although the rate is rounded.
        threshold = min(max(round((1 - dropout) * _LEVELS), 1), _LEVELS - 1) if dropout else _LEVELS
        layers: list[Layer] = []
        for place, (n_in, n_out) in enumerate(pairwise(widths)):
            is_hidden = place not in (code_layer, output_layer)
            is_after_dropout = bool(layers) and layers[-1].has_dropout
            gain = _LEVELS / threshold if is_after_dropout else 1.0
            has_relu = is_hidden or (place == code_layer and has_code_relu)
            layers.append(Layer(n_in, n_out, has_relu, is_hidden and dropout > 0, gain))
        return cls(tuple(layers), threshold)

    @property
    def n_features(self) -> int:
        """How many numbers a row has."""
        return self.layers[0].n_in

    @property
    def n_outputs(self) -> int:
        """How many numbers the last layer gives."""
        return self.layers[-1].n_out

    @cached_property
    def n_params(self) -> int:
        """The length of the flat parameters: weight and bias of one layer after the other."""
        return sum((layer.n_in + 1) * layer.n_out for layer in self.layers)

    @property
    def n_dropped_units(self) -> int:
        """How many units have a number of their own in every row's dropout."""
        return sum(layer.n_out for layer in self.layers if layer.has_dropout)
