"""Data for a fleet: load, describe, split, partition over devices."""

from tolfl.core.errors import SpecError, UnknownNameError
from tolfl.core.spec import RunSpec
from tolfl.datasets.blobs import blobs
from tolfl.datasets.federated import FederatedDataset

__all__ = ["DATASETS", "FederatedDataset", "blobs", "check_name", "load"]

#: Every data set that a run specification can name.
DATASETS = {"blobs": blobs}


def load(spec: RunSpec) -> FederatedDataset:
    """Return the data set of a run, one slice per device. It depends on N, the seed and the groups, never on k."""
    check_name(spec)
    return DATASETS[spec.data](spec.devices, spec.seed, spec.blobs)


def check_name(spec: RunSpec) -> None:
    """Raise an error where no data set has the name that the specification asks for."""
    if spec.data == "arrays":
        raise SpecError("data 'arrays' was handed in from Python; repeat the run there")
    if spec.data not in DATASETS:
        raise UnknownNameError("data set", spec.data, sorted(DATASETS))
