"""Detectors: fit, score, explain, save, watch for drift.

`FederatedDetector` is a scikit-learn estimator; `Detector` is its result, which needs no scikit-learn.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tolfl.detect.detector import Detector, DetectorFileError
    from tolfl.detect.detector_spec import DetectorSpec
    from tolfl.detect.estimator import FederatedDetector, load
    from tolfl.detect.features import Explanation, Features, FeatureShare
    from tolfl.detect.fitting import DriftWarning, NoModelError, fit_detector, fit_more
    from tolfl.detect.thresholds import Drift, Limit, Thresholds, drift_of

__all__ = [
    "Detector",
    "DetectorFileError",
    "DetectorSpec",
    "Drift",
    "DriftWarning",
    "Explanation",
    "FeatureShare",
    "Features",
    "FederatedDetector",
    "Limit",
    "NoModelError",
    "Thresholds",
    "drift_of",
    "fit_detector",
    "fit_more",
    "load",
]

#: The module of each name, imported on first use: scoring must not import what only training needs.
_MODULES = {
    "estimator": ("FederatedDetector", "load"),
    "features": ("Explanation", "FeatureShare", "Features"),
    "detector": ("Detector", "DetectorFileError"),
    "fitting": ("DriftWarning", "NoModelError", "fit_detector", "fit_more"),
    "detector_spec": ("DetectorSpec",),
    "thresholds": ("Drift", "Limit", "Thresholds", "drift_of"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import a name when it is first asked for."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'tolfl.detect' has no attribute {name!r}")
    return getattr(import_module(f"tolfl.detect.{_MODULE_OF[name]}"), name)
