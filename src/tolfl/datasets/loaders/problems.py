"""Errors of public data sets on their way here."""

from __future__ import annotations

from tolfl.core.errors import TolFLError


class DownloadError(TolFLError, OSError):
    """A public data set could not be fetched."""
