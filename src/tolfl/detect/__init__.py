"""Detectors that people can use: fit, score, explain, save.

`FederatedDetector` is scikit-learn's estimator; `Detector` is what it leaves behind, without scikit-learn.
"""

from tolfl.detect.choosing import Candidate, Choice
from tolfl.detect.detector import FederatedDetector
from tolfl.detect.drift import Drift, drift_of
from tolfl.detect.explaining import Explanation, FeatureShare
from tolfl.detect.features import Features
from tolfl.detect.fitted import Detector
from tolfl.detect.fitting import fit_detector, fit_more
from tolfl.detect.problems import DetectorFileError, DriftWarning, NoFurtherTrainingError, NoModelError
from tolfl.detect.pyod import PyODDetector
from tolfl.detect.spec import DetectorSpec
from tolfl.detect.thresholds import Thresholds

__all__ = [
    "Candidate",
    "Choice",
    "Detector",
    "DetectorFileError",
    "DetectorSpec",
    "Drift",
    "DriftWarning",
    "Explanation",
    "FeatureShare",
    "Features",
    "FederatedDetector",
    "NoFurtherTrainingError",
    "NoModelError",
    "PyODDetector",
    "Thresholds",
    "drift_of",
    "fit_detector",
    "fit_more",
]
