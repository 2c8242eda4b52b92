"""What can be wrong with a detector, a file of one, or an update; and what is said aloud without being an error."""

from __future__ import annotations

from pathlib import Path

from tolfl.core.errors import SpecError, TolFLError


class DetectorFileError(TolFLError, ValueError):
    """A file is no saved detector, or not as it was saved."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"detector {path}: {problem}")
        self.path, self.problem = path, problem


class NoModelError(TolFLError, RuntimeError):
    """Training left no model behind: every device is gone."""

    def __init__(self, ended: str) -> None:
        super().__init__(f"training left no model ({ended}); leave more devices alive in the failure plan")
        self.ended = ended


class NoFurtherTrainingError(SpecError):
    """A detector was to go on training from where it is."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"{kind} does not go on from where it is; fit anew, on the old rows and the new ones")
        self.kind = kind


class DriftWarning(UserWarning):
    """Samples that should be typical no longer score as they did when the thresholds were agreed."""
