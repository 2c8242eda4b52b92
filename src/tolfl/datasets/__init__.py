"""Data for a fleet: load, describe, split, partition over devices."""

from tolfl.core.errors import UnknownNameError
from tolfl.core.spec import RunSpec
from tolfl.datasets.blobs import blobs
from tolfl.datasets.federated import FederatedDataset

__all__ = ["DATASETS", "FederatedDataset", "blobs", "load"]

#: Every data set that a run specification can name.
DATASETS = {"blobs": blobs}


def load(spec: RunSpec) -> FederatedDataset:
    """Return the data set of a run, one slice per device. It depends on N, the seed and the groups, never on k."""
    if spec.data not in DATASETS:
        raise UnknownNameError("data set", spec.data, sorted(DATASETS))
    return DATASETS[spec.data](spec.devices, spec.seed, spec.blobs)
