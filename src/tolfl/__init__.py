"""Failure-tolerant federated learning for anomaly detection: any device may die, training carries on.

>>> import tolfl
>>> run = tolfl.simulate(scheme="tol-fl", data="blobs", devices=4, clusters=2, rounds=2)
>>> run.summary["survivors"]
[0, 1, 2, 3]
"""

from tolfl.api import Autoencoder, FederatedDataset, Run, RunSpec, simulate
from tolfl.core.errors import TolFLError

__all__ = ["Autoencoder", "FederatedDataset", "Run", "RunSpec", "TolFLError", "simulate"]
__version__ = "0.1.0"
