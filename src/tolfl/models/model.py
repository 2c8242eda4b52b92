"""What every model offers to schemes, drivers and detectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import nn

from tolfl.kernel.jobs import Floats, TrainJob, Update
from tolfl.models.settings import TrainSettings


class Model(Protocol):
    """A model whose parameters are one flat vector, trained for many devices at once.

    A model holds no parameters of its own: they come in with every call, so one model object serves all devices,
    all rounds and all repetitions.
    """

    @property
    def n_params(self) -> int:
        """Return the length of the flat parameter vector."""
        ...

    def initial(self, seed: int) -> Floats:
        """Return the parameters of an untrained model."""
        ...

    def groups(self, jobs: Sequence[TrainJob], settings: TrainSettings) -> list[list[int]]:
        """Return indices into `jobs`, split into groups that train together.

        `train` works through the same groups one by one. A caller that wants to aggregate as it goes (a thousand
        deltas kept at once cost more than the training of small devices), or to use several threads, calls `train`
        once per group instead; the numbers are the same.
        """
        ...

    def train(self, jobs: Sequence[TrainJob], settings: TrainSettings) -> list[Update]:
        """Return one update per job, in the order of the jobs.

        A job's update does not depend on the other jobs. Raises `DivergedError` for a device that diverged.
        """
        ...

    def sample_losses(self, params: Floats, samples: Floats) -> Floats:
        """Return the loss J of each sample, shape `(n_samples,)`, dropout off: also the anomaly score."""
        ...

    def tensors(self, params: Floats) -> dict[str, Floats]:
        """Return named views into `params`, as a state dict would name them."""
        ...

    def to_module(self, params: Floats) -> nn.Module:
        """Return a PyTorch module in eval mode that carries a copy of these parameters."""
        ...
