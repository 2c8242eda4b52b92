"""Any PyTorch module as a federated model; its devices train one after the other, each as it would by itself.

The only file that needs torch, which is an extra: nothing here is imported unless somebody brings a module.
"""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from tolfl.core.errors import DataError, DivergedError
from tolfl.core.seeding import Purpose, random_words, rng_for, stream_keys
from tolfl.core.spec import TrainSettings, checked
from tolfl.kernel import Network, TrainJob, Update
from tolfl.kernel.jobs import WORDS_PER_STEP, Floats, check_jobs

_MAX_SCORE_ROWS = 4096
_NO_DEVICE = 2**32 - 1  # the weights of a module must not follow the stream of a device that trains it
_MAX_SCORE_BYTES = 256 * 2**20
_COPIES_OF_SAMPLES = 32  # a guess at what a module's layers keep while they compute, as multiples of its input

LossFunction: TypeAlias = Callable[[nn.Module, Tensor], Tensor]
"""Takes a module and samples `(n_samples, ...)`; returns one loss per sample, `(n_samples,)`."""


@dataclass(frozen=True, slots=True)
class TensorSlice:
    """One named tensor: `flat[first:last]`, of this shape."""

    name: str
    shape: tuple[int, ...]
    first: int
    last: int
    is_trained: bool
    """False for buffers and for parameters that are frozen: they travel but are not moved by gradients."""


@dataclass(frozen=True, slots=True)
class FlatLayout:
    """The order of all tensors in the flat vector: parameters, then floating-point buffers."""

    segments: tuple[TensorSlice, ...]
    n_params: int

    @classmethod
    def of(cls, module: nn.Module) -> FlatLayout:
        """Return the layout of a module's parameters and floating-point buffers."""
        segments: list[TensorSlice] = []
        first = 0
        for name, tensor in named_state(module):
            last = first + math.prod(tensor.shape)
            segments.append(TensorSlice(name, tuple(tensor.shape), first, last, tensor.requires_grad))
            first = last
        return cls(tuple(segments), first)

    def views(self, params: Floats) -> dict[str, Floats]:
        """Return named views into a flat vector."""
        if params.shape != (self.n_params,):
            raise DataError(f"the model has {self.n_params} parameters; the vector has shape {params.shape}")
        return {part.name: params[part.first : part.last].reshape(part.shape) for part in self.segments}

    def load(self, module: nn.Module, params: Floats) -> None:
        """Copy a flat vector into a module."""
        state = dict(named_state(module))
        with torch.no_grad():
            for name, values in self.views(params).items():
                state[name].copy_(torch.tensor(values))


def named_state(module: nn.Module) -> Iterable[tuple[str, Tensor]]:
    """Yield what the flat vector holds: parameters first, then floating-point buffers."""
    yield from module.named_parameters()
    yield from ((name, buffer) for name, buffer in module.named_buffers() if buffer.is_floating_point())


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch compute on one thread: many of them inside small products only get in each other's way."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class SampleLoss(nn.Module):
    """A module whose output is one loss per sample.

    It wraps the user's module and whatever loss comes with it, so that both are copied and converted as one.
    """

    def __init__(self, module: nn.Module, loss: LossFunction | None) -> None:
        super().__init__()
        self.module = module
        self._loss = loss or _loss_of(module)

    def forward(self, samples: Tensor) -> Tensor:
        """Return the losses, shape `(n_samples,)`."""
        losses = self._loss(self.module, samples)
        if losses.shape != samples.shape[:1]:
            raise DataError(
                f"the loss has shape {tuple(losses.shape)} for {len(samples)} samples; return one value per sample"
            )
        return losses


def seeded(seed: int, make: Callable[[], nn.Module]) -> nn.Module:
    """Return a new module whose initial weights follow the seed of a run; the global generator stays as it was.

    >>> one, other = (seeded(7, lambda: nn.Linear(2, 1)) for _ in range(2))
    >>> torch.equal(one.weight, other.weight)
    True
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(rng_for(seed, Purpose.MODULE, _NO_DEVICE).integers(2**63)))
        return make()


class ModuleModel:
    """A model made from an `nn.Module` and, if it does not reconstruct its input, a loss per sample.

    The flat vector holds the parameters and, after them, the floating-point buffers (running statistics), which are
    averaged with everything else; integer buffers stay as they are. Frozen parameters travel but do not change.
    The module handed in is copied and never changed.

    Devices train one after the other, with PyTorch's global generator seeded for each and put back afterwards: do not
    train on several threads of one process. Batch normalisation cannot train on a single sample: choose a batch size
    that leaves no device with a last batch of one.

    Parameters
    ----------
    module
        Takes samples `(n_samples, ...)`.
    loss
        Takes the module and samples and returns one value per sample, of that sample alone. Default: the module's
        own method `sample_losses(samples)` if it has one, else the squared reconstruction error, summed.

    Examples
    --------
    >>> model = ModuleModel(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 3)))
    >>> params = model.initial(seed=0)
    >>> model.sample_losses(params, np.zeros((5, 3), dtype=np.float32)).shape
    (5,)
    """

    def __init__(self, module: nn.Module, loss: LossFunction | None = None) -> None:
        self._loss = SampleLoss(copy.deepcopy(module).cpu(), loss)
        self._layout = FlatLayout.of(self._loss.module)
        # The first optimiser imports 800 modules: in its first round, a device would send no heartbeat meanwhile.
        torch.optim.SGD([torch.zeros(1)])

    @property
    def n_params(self) -> int:
        """Return the length of the flat vector, floating-point buffers included."""
        return self._layout.n_params

    def initial(self, seed: int) -> Floats:  # noqa: ARG002 - the model contract has a seed, a ready module has none
        """Return the parameters of the module that was handed in, whatever the seed."""
        parts = [tensor.detach().flatten().numpy() for _, tensor in named_state(self._loss.module)]
        is_double = all(part.dtype == np.float64 for part in parts)
        return np.concatenate(parts).astype(np.float64 if is_double else np.float32)

    def train(self, jobs: Sequence[TrainJob], settings: TrainSettings) -> list[Update]:
        """Return one update per job, in the order of the jobs."""
        checked(settings)
        check_jobs(jobs, self.n_params, None)
        with _one_thread():
            return [train_alone(self._loss, self._layout, job, settings) for job in jobs]

    def sample_losses(self, params: Floats, samples: Floats) -> Floats:
        """Return each sample's loss, with the module in eval mode."""
        loss = copy.deepcopy(self._loss).to(torch.tensor(params[:1]).dtype).eval()
        self._layout.load(loss.module, params)
        losses = np.empty(len(samples), params.dtype)
        bytes_per_row = params.itemsize * math.prod(samples.shape[1:]) * _COPIES_OF_SAMPLES
        n_rows = max(1, min(_MAX_SCORE_ROWS, _MAX_SCORE_BYTES // bytes_per_row))
        with torch.no_grad(), _one_thread():
            for first in range(0, len(samples), n_rows):
                chunk = torch.tensor(samples[first : first + n_rows].astype(params.dtype))
                losses[first : first + n_rows] = loss(chunk).numpy()
        return losses

    def tensors(self, params: Floats) -> dict[str, Floats]:
        """Return named views into `params`, as in the module's state dict."""
        return self._layout.views(params)

    def to_module(self, params: Floats) -> nn.Module:
        """Return a copy of the module, in eval mode, with these parameters."""
        module = copy.deepcopy(self._loss.module).to(torch.tensor(params[:1]).dtype)
        self._layout.load(module, params)
        return module.eval()


def train_alone(loss: SampleLoss, layout: FlatLayout, job: TrainJob, settings: TrainSettings) -> Update:
    """Return the update of one device, the module's own random draws seeded by (seed, device, round)."""
    flat = torch.tensor(job.start)
    # A fresh copy for every device: integer buffers, such as a count of batches, must not pass from one to the next.
    loss = copy.deepcopy(loss).to(flat.dtype).train()
    state = dict(named_state(loss.module))
    for part in layout.segments:
        state[part.name].data = flat[part.first : part.last].view(part.shape)
    trained = [state[part.name] for part in layout.segments if part.is_trained]
    optimizer = _optimizer_for(settings, trained) if trained else None
    total = 0.0
    seed = int(rng_for(job.seed, Purpose.MODULE, job.device, job.round_index).integers(2**63))
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        # The processor's generator alone: torch.manual_seed queues a call for every other kind of device, each time.
        torch.default_generator.manual_seed(seed)
        for rows, is_last_epoch in _batches(job, settings):
            samples = torch.tensor(rows, dtype=flat.dtype)
            batch_loss = (loss(samples) * torch.full((len(rows),), 1 / len(rows), dtype=flat.dtype)).sum()
            if optimizer is not None:
                slopes = torch.autograd.grad(batch_loss, trained, allow_unused=True, materialize_grads=True)
                for tensor, slope in zip(trained, slopes, strict=True):
                    tensor.grad = slope
                optimizer.step()
            total += float(batch_loss.detach()) * len(rows) if is_last_epoch else 0.0
    _collect_buffers(loss.module, layout, flat)
    delta, mean_loss = (torch.tensor(job.start) - flat).numpy(), total / job.n_samples
    if not (math.isfinite(mean_loss) and np.isfinite(delta).all()):
        raise DivergedError.of_loss(job.device, job.round_index)
    return Update(delta, mean_loss, job.n_samples)


def _batches(job: TrainJob, settings: TrainSettings) -> Iterator[tuple[Floats, bool]]:
    """Yield the rows of each step, in the order of the device's own stream, and whether they are of the last epoch."""
    own = job.pool[job.first : job.last]
    width = settings.batch_size or len(own)
    key = stream_keys([job.seed], Purpose.BATCH_ORDER, [job.device], [job.round_index])
    for epoch in range(settings.epochs):
        order = np.arange(len(own))
        if settings.batch_size:
            order = np.argsort(random_words(key, len(own), first=epoch * WORDS_PER_STEP)[0], kind="stable")
        for first in range(0, len(own), width):
            yield own[order[first : first + width]], epoch == settings.epochs - 1


def _optimizer_for(settings: TrainSettings, tensors: Sequence[Tensor]) -> torch.optim.Optimizer:
    """Return a fresh optimiser, with no memory of earlier rounds."""
    if settings.optimizer == "adam":
        return torch.optim.Adam(tensors, lr=settings.lr)
    return torch.optim.SGD(tensors, lr=settings.lr, momentum=settings.momentum * (settings.optimizer == "momentum"))


def _collect_buffers(module: nn.Module, layout: FlatLayout, flat: Tensor) -> None:
    """Copy back what is not trained: a module may have put a new tensor in the place of a buffer."""
    state = dict(named_state(module))
    for part in layout.segments:
        if not part.is_trained:
            flat[part.first : part.last] = state[part.name].detach().flatten()


def _loss_of(module: nn.Module) -> LossFunction:
    """Return the module's own loss if it brings one, and the squared reconstruction error otherwise."""
    return _own_losses if callable(getattr(module, "sample_losses", None)) else _squared_errors


def _own_losses(module: nn.Module, samples: Tensor) -> Tensor:
    own_losses: Callable[[Tensor], Tensor] = module.sample_losses  # type: ignore[assignment]  # nn.Module cannot tell
    return own_losses(samples)


def _squared_errors(module: nn.Module, samples: Tensor) -> Tensor:
    output: Tensor = module(samples)
    if output.shape != samples.shape:
        raise DataError(
            f"the module turns shape {tuple(samples.shape)} into {tuple(output.shape)}; "
            "only a module that reconstructs its input can do without a loss of its own"
        )
    return (output - samples).square().reshape(len(samples), -1).sum(1)


def autoencoder_module(network: Network, dropout: float, tensors: Mapping[str, Floats]) -> nn.Module:
    """Return the built-in autoencoder in PyTorch: an `encoder` and a `decoder` in eval mode, with these tensors."""
    n_half = len(network.layers) // 2
    encoder, decoder = nn.Sequential(), nn.Sequential()
    for place, layer in enumerate(network.layers):
        half = encoder if place < n_half else decoder
        half.append(nn.Linear(layer.n_in, layer.n_out))
        if layer.has_relu:
            half.append(nn.ReLU())
        if (place + 1) % n_half:
            half.append(nn.Dropout(dropout))
    module = nn.Sequential(OrderedDict([("encoder", encoder), ("decoder", decoder)]))
    module.load_state_dict({name: torch.tensor(values, dtype=torch.float32) for name, values in tensors.items()})
    return module.eval()
