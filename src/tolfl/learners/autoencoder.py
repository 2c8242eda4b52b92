"""The paper's model: a dense autoencoder whose reconstruction error is the anomaly score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from tolfl.core.errors import DataError, DivergedError, SpecError
from tolfl.core.seeding import Purpose, rng_for
from tolfl.core.spec import TrainSettings, checked
from tolfl.kernel import Network, TrainJob, Update, kernel
from tolfl.kernel.jobs import Floats, check_jobs
from tolfl.learners.threads import halves_of, in_threads

if TYPE_CHECKING:
    from torch import nn


class Autoencoder:
    """in - 128 - 64 - 32 - 64 - 128 - in with ReLU, a linear output and dropout on hidden layers only.

    The flat vector has the order of `torch.nn.utils.parameters_to_vector(model.to_module(params))`. Training and
    scoring give the same bits on every processor, for a device alone and for many in one call.

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
        self.n_features, self._dropout = n_features, dropout
        self.network = Network.autoencoder(n_features, hidden, code, dropout, code_activation == "relu")

    @property
    def n_params(self) -> int:
        """Return the length of the flat parameter vector."""
        return self.network.n_params

    def initial(self, seed: int) -> Floats:
        """Return PyTorch's default initialisation, uniform within 1 / sqrt(inputs of the layer), as float32.

        He's initialisation diverges here: the loss is a sum over features.
        """
        rng = rng_for(seed, Purpose.MODEL_INIT)
        # `rng.uniform` multiplies and adds, which some processors round once and others twice.
        parts = [
            (2 * rng.random((layer.n_in + 1) * layer.n_out) - 1) * (1 / np.sqrt(layer.n_in))
            for layer in self.network.layers
        ]
        return np.concatenate(parts).astype(np.float32)

    def train(self, jobs: Sequence[TrainJob], settings: TrainSettings) -> list[Update]:
        """Return one update per job; the deltas are rows of common arrays."""
        checked(settings)
        check_jobs(jobs, self.n_params, (self.n_features,))
        updates: list[Update] = []
        halves = halves_of(jobs)
        for half, (deltas, losses) in zip(
            halves, in_threads(lambda half: kernel().train(self.network, settings, half), halves), strict=True
        ):
            _check_finite(half, losses)
            updates += [
                Update(delta, loss, job.n_samples)
                for job, delta, loss in zip(half, deltas, losses.tolist(), strict=True)
            ]
        return updates

    def add_up(
        self, jobs: Sequence[TrainJob], settings: TrainSettings, weights: Sequence[int], total: Floats
    ) -> list[float]:
        """Add each job's weighted delta to `total`, in place and in order; return the losses.

        The bits are those of `total += weight * delta`, without the memory of the deltas.
        """
        checked(settings)
        check_jobs(jobs, self.n_params, (self.n_features,))
        losses = kernel().add(self.network, settings, jobs, np.array(weights, np.float32), total)
        _check_finite(jobs, losses)
        if not np.isfinite(total).all():
            self.train(jobs, settings)  # names the device that diverged
            raise DivergedError.of_model(jobs[0].round_index)
        found: list[float] = losses.tolist()
        return found

    def sample_losses(self, params: Floats, samples: Floats) -> Floats:
        """Return each sample's squared reconstruction error, summed over features; dropout is off."""
        self._check(params)
        if samples.ndim != 2 or samples.shape[1] != self.n_features:
            raise DataError(f"samples have shape {samples.shape}; the model takes (n_samples, {self.n_features})")
        return kernel().score(self.network, params, samples)[0]

    def tensors(self, params: Floats) -> dict[str, Floats]:
        """Return named views into `params`: `encoder.0.weight` and so on, as in `to_module`'s state dict."""
        self._check(params)
        found, first, n_half = {}, 0, len(self.network.layers) // 2
        for place, layer in enumerate(self.network.layers):
            # ReLU and dropout stand between two dense layers of a half.
            name = f"{'encoder' if place < n_half else 'decoder'}.{3 * (place % n_half)}"
            middle, last = first + layer.n_in * layer.n_out, first + (layer.n_in + 1) * layer.n_out
            found[f"{name}.weight"] = params[first:middle].reshape(layer.n_out, layer.n_in)
            found[f"{name}.bias"] = params[middle:last]
            first = last
        return found

    def _check(self, params: Floats) -> None:
        if params.shape != (self.n_params,):
            raise DataError(f"the model has {self.n_params} parameters; the vector has shape {params.shape}")

    def to_module(self, params: Floats) -> nn.Module:
        """Return a PyTorch module (`encoder`, `decoder`) in eval mode with a copy of these parameters."""
        from tolfl.learners.torch_module import autoencoder_module  # noqa: PLC0415  (torch is an extra)

        return autoencoder_module(self.network, self._dropout, self.tensors(params))


def _check_finite(jobs: Sequence[TrainJob], losses: Floats) -> None:
    is_finite = np.isfinite(losses)
    if not is_finite.all():
        diverged = jobs[int(np.argmin(is_finite))]
        raise DivergedError.of_loss(diverged.device, diverged.round_index)
