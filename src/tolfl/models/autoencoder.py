"""The paper's model: a dense autoencoder whose reconstruction error is the anomaly score."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tolfl.core.errors import DataError, SpecError
from tolfl.core.seeding import Purpose, rng_for
from tolfl.kernel.jobs import Floats, TrainJob, Update, check_jobs
from tolfl.models.blocked import GroupTrainer
from tolfl.models.grouping import group_jobs
from tolfl.models.layout import FlatLayout
from tolfl.models.network import Network
from tolfl.models.settings import TrainSettings, check_settings
from tolfl.models.threads import in_threads
from tolfl.models.workspace import Workspace

_MAX_DEVICES = 50  # beyond it, a call is no longer the cost that counts
_MAX_WEIGHT_BYTES = 16 * 2**20  # weights of a group that a shared cache can hold between two steps
_MAX_ACTIVATION_BYTES = 256 * 2**20
_SCORE_ROWS = 4096


class Autoencoder:
    """in - 128 - 64 - 32 - 64 - 128 - in with ReLU, a linear output and dropout on hidden layers only.

    The flat vector has the order of `torch.nn.utils.parameters_to_vector(model.to_module(params))`.

    Parameters
    ----------
    n_features
        Numbers per sample.
    hidden
        Widths from the input to the code; the decoder mirrors them.
    code
        Width of the code.
    dropout
        Share of hidden units dropped in training; the code and the output are never dropped.
    code_activation
        "linear" (default) or "relu".

    Examples
    --------
    >>> model = Autoencoder(n_features=4, hidden=(8,), code=2)
    >>> params = model.initial(seed=0)
    >>> params.size == model.n_params == 4 * 8 + 8 + 8 * 2 + 2 + 2 * 8 + 8 + 8 * 4 + 4
    True
    >>> samples = np.ones((6, 4), dtype=np.float32)
    >>> job = TrainJob(seed=0, device=3, round_index=0, start=params, pool=samples, first=0, last=6)
    >>> update = model.train([job], TrainSettings(lr=0.01))[0]
    >>> trained = params - update.delta
    >>> bool(model.sample_losses(trained, samples).mean() < model.sample_losses(params, samples).mean())
    True
    """

    def __init__(
        self,
        n_features: int,
        hidden: Sequence[int] = (128, 64),
        code: int = 32,
        dropout: float = 0.2,
        code_activation: Literal["linear", "relu"] = "linear",
    ) -> None:
        if min(n_features, code, *hidden) < 1:
            raise SpecError(f"an autoencoder of widths {[n_features, *hidden, code]} cannot be built; give at least 1")
        if not 0 <= dropout < 1:
            raise SpecError(f"dropout is {dropout}; give a number from 0 up to, but not including, 1")
        self.n_features = n_features
        self._network = Network(n_features, tuple(hidden), code, dropout, code_activation == "relu")
        with torch.device("meta"):
            self._layout = FlatLayout.of(self._network.to_module())
        # Working memory is lent to one call at a time: deque's pop and append are safe between threads.
        self._spare: deque[Workspace] = deque()

    @property
    def n_params(self) -> int:
        """Return the length of the flat parameter vector."""
        return self._layout.n_params

    def initial(self, seed: int) -> Floats:
        """Return PyTorch's default initialisation, uniform within 1 / sqrt(inputs of the layer), as float32.

        He's initialisation diverges here: the loss is a sum over features.
        """
        rng = rng_for(seed, Purpose.MODEL_INIT)
        parts = [
            rng.uniform(-(layer.n_in**-0.5), layer.n_in**-0.5, layer.last - layer.first)
            for layer in self._network.layers
        ]
        return np.concatenate(parts).astype(np.float32)

    def groups(self, jobs: Sequence[TrainJob], settings: TrainSettings) -> list[list[int]]:
        """Return indices into `jobs`, split into groups that train together."""
        if not jobs:
            return []
        itemsize = max(job.start.itemsize for job in jobs)
        rows = max(min(job.n_samples, settings.batch_size or job.n_samples) for job in jobs)
        n_units = self.n_features + sum(layer.n_out for layer in self._network.layers)
        fit_in_cache = _MAX_WEIGHT_BYTES // (itemsize * self.n_params)
        fit_in_memory = _MAX_ACTIVATION_BYTES // (itemsize * rows * 3 * n_units)  # values, gradients, masks
        return group_jobs(jobs, settings, max(1, min(_MAX_DEVICES, fit_in_cache, fit_in_memory)))

    def train(self, jobs: Sequence[TrainJob], settings: TrainSettings) -> list[Update]:
        """Return one update per job; the deltas of one group are rows of one array."""
        check_settings(settings)
        check_jobs(jobs, self.n_params, (self.n_features,))
        groups = self.groups(jobs, settings)
        updates: dict[int, Update] = {}
        for group, of_group in zip(
            groups, in_threads(lambda group: self._train_group([jobs[i] for i in group], settings), groups), strict=True
        ):
            updates.update(zip(group, of_group, strict=True))
        return [updates[index] for index in range(len(jobs))]

    def _train_group(self, jobs: Sequence[TrainJob], settings: TrainSettings) -> list[Update]:
        workspace = self._spare.pop() if self._spare else Workspace()
        try:
            return GroupTrainer(self._network, jobs, settings, workspace).train()
        finally:
            self._spare.append(workspace)

    def sample_losses(self, params: Floats, samples: Floats) -> Floats:
        """Return each sample's squared reconstruction error, summed over features; dropout is off."""
        if samples.ndim != 2 or samples.shape[1] != self.n_features:
            raise DataError(f"samples have shape {samples.shape}; the model takes (n_samples, {self.n_features})")
        tensors = [torch.tensor(values) for values in self._layout.views(params).values()]
        losses = np.empty(len(samples), params.dtype)
        with torch.no_grad():
            for first in range(0, len(samples), _SCORE_ROWS):
                chunk = torch.tensor(samples[first : first + _SCORE_ROWS], dtype=tensors[0].dtype)
                out = chunk
                for layer, weight, bias in zip(self._network.layers, tensors[::2], tensors[1::2], strict=True):
                    out = functional.linear(out, weight, bias)
                    out = out.relu_() if layer.has_relu else out
                losses[first : first + _SCORE_ROWS] = out.sub_(chunk).square_().sum(1).numpy()
        return losses

    def tensors(self, params: Floats) -> dict[str, Floats]:
        """Return named views into `params`: `encoder.0.weight` and so on, as in `to_module`'s state dict."""
        return self._layout.views(params)

    def to_module(self, params: Floats) -> nn.Module:
        """Return a PyTorch module (`encoder`, `decoder`) in eval mode with a copy of these parameters."""
        module = self._network.to_module().to(torch.tensor(params[:1]).dtype)
        self._layout.load(module, params)
        return module.eval()
