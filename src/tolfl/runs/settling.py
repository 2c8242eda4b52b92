"""What a specification leaves open, settled by the data: the size of the model and the numbers of local training."""

from __future__ import annotations

import statistics

from tolfl.core.errors import SpecError
from tolfl.core.spec import RunSpec, TrainSettings
from tolfl.datasets import FederatedDataset
from tolfl.models import Autoencoder
from tolfl.schemes import scheme_of


def autoencoder_for(spec: RunSpec, data: FederatedDataset) -> Autoencoder:
    """Return the built-in autoencoder for samples of this size."""
    if spec.model.module:
        raise SpecError(f"model {spec.model.module!r} was handed in from Python; repeat the run there")
    if len(data.sample_shape) != 1:
        raise SpecError(
            f"samples of shape {data.sample_shape}: the built-in autoencoder takes flat ones; "
            "flatten them, or give a model"
        )
    asked = spec.model
    return Autoencoder(data.n_features, asked.hidden, asked.code, asked.dropout, asked.code_activation)


def settle_training(spec: RunSpec, data: FederatedDataset, is_own_module: bool) -> TrainSettings:
    """Return the settings of local training, with what the specification leaves open chosen by the data."""
    sizes = [data.n_samples(device) for device in range(data.n_devices)]
    settings = spec.train.settle(data.n_features, int(statistics.median(sizes)), is_own_module)
    batch_size = scheme_of(spec).batch_size(settings.batch_size, spec.devices)
    return TrainSettings(settings.lr, settings.epochs, batch_size, settings.optimizer, settings.momentum)
