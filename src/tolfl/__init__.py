"""Failure-tolerant federated learning for anomaly detection: any device may die, training carries on.

>>> import tolfl
>>> run = tolfl.simulate(scheme="tol-fl", data="blobs", devices=4, clusters=2, rounds=2)
>>> run.summary["survivors"]
[0, 1, 2, 3]
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tolfl.api import Autoencoder, Comparison, FederatedDataset, Run, RunSpec, compare, simulate
    from tolfl.core.errors import TolFLError
    from tolfl.detect import Detector, FederatedDetector, load

__all__ = [
    "Autoencoder",
    "Comparison",
    "Detector",
    "FederatedDataset",
    "FederatedDetector",
    "Run",
    "RunSpec",
    "TolFLError",
    "compare",
    "load",
    "simulate",
]
__version__ = "0.1.0"

#: Where names come from that are not of `tolfl.api`.
_ELSEWHERE = {"TolFLError": "core.errors", "Detector": "detect", "FederatedDetector": "detect", "load": "detect"}


def __getattr__(name: str) -> object:
    """Import the API when it is first asked for: `tolfl --help` must not wait for PyTorch."""
    if name not in __all__:
        raise AttributeError(f"module 'tolfl' has no attribute {name!r}")
    return getattr(import_module(f"tolfl.{_ELSEWHERE.get(name, 'api')}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
