"""The autoencoder's layers, and where each of them lies in the flat vector."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from torch import nn

from tolfl.models.dropout import keep_gain


@dataclass(frozen=True, slots=True)
class Layer:
    """One dense layer, its weight `(n_out, n_in)` stored before its bias, as in `nn.Linear`."""

    n_in: int
    n_out: int
    first: int
    """Index of the weight's first entry in the flat vector."""
    has_relu: bool
    units: slice | None
    """Which units of the step's dropout mask are this layer's; None without dropout."""
    input_gain: float
    """Scale of the inputs: what the layer below dropped is made up for here, where it costs nothing."""

    @property
    def bias_first(self) -> int:
        """Return the index of the bias's first entry in the flat vector."""
        return self.first + self.n_in * self.n_out

    @property
    def last(self) -> int:
        """Return the index after the bias's last entry."""
        return self.bias_first + self.n_out


@dataclass(frozen=True, slots=True)
class Network:
    """An autoencoder: in - hidden - code - hidden reversed - in."""

    n_features: int
    hidden: tuple[int, ...]
    code: int
    dropout: float
    has_code_relu: bool
    layers: tuple[Layer, ...] = field(init=False)
    """From input to output."""

    def __post_init__(self) -> None:
        """Work the layers out once: training asks for them in every group."""
        object.__setattr__(self, "layers", tuple(self._layers()))

    def _layers(self) -> Iterator[Layer]:
        widths = [self.n_features, *self.hidden, self.code, *reversed(self.hidden), self.n_features]
        code_layer, output_layer = len(self.hidden), 2 * len(self.hidden) + 1
        first, unit, gain = 0, 0, 1.0
        for index, (n_in, n_out) in enumerate(pairwise(widths)):
            is_hidden = index not in (code_layer, output_layer)
            is_dropped = is_hidden and self.dropout > 0
            has_relu = is_hidden or (index == code_layer and self.has_code_relu)
            layer = Layer(n_in, n_out, first, has_relu, slice(unit, unit + n_out) if is_dropped else None, gain)
            yield layer
            first = layer.last
            unit += n_out if is_dropped else 0
            gain = keep_gain(self.dropout) if is_dropped else 1.0

    def to_module(self) -> nn.Module:
        """Return the same network in PyTorch, untrained: an `encoder` and a `decoder`."""
        encoder = self._stack([self.n_features, *self.hidden, self.code])
        if self.has_code_relu:
            encoder.append(nn.ReLU())
        decoder = self._stack([self.code, *reversed(self.hidden), self.n_features])
        return nn.Sequential(OrderedDict(encoder=encoder, decoder=decoder))

    def _stack(self, widths: Sequence[int]) -> nn.Sequential:
        """Return dense layers with ReLU and dropout between them."""
        stack = nn.Sequential(nn.Linear(widths[0], widths[1]))
        for n_in, n_out in pairwise(widths[1:]):
            stack.extend([nn.ReLU(), nn.Dropout(self.dropout), nn.Linear(n_in, n_out)])
        return stack
