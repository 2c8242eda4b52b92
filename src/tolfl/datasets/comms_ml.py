"""The Comms-ML data set as raw samples; generated once, then kept in the user's cache."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path
from zipfile import BadZipFile

import msgspec
import numpy as np

from tolfl.core.spec import CommsMLSettings
from tolfl.datasets.public_sets import cache_dir
from tolfl.datasets.raw import RawData
from tolfl.signals import CommsMLSamples, comms_ml

#: Part of the name of a cached file: raise it with every change of what is generated.
_GENERATION = 1


def read_comms_ml(settings: CommsMLSettings) -> RawData:
    """Return the samples of a region as classes `region-1` to `region-3`, anomalies by their kind."""
    name = "comms-ml-published" if settings.variant == "published" else "comms-ml"
    path = cache_dir() / f"{name}-{_fingerprint(settings)}.npz"
    arrays = _cached(path)
    if arrays is None:
        arrays = _arrays(comms_ml(settings.seed, settings))
        _keep(path, arrays)
    labels = np.where(arrays["kind"] == "typical", np.char.add("region-", arrays["region"].astype(str)), arrays["kind"])
    names = tuple(arrays["feature_names"].tolist())
    return RawData(name, arrays["features"], labels.astype(str), times=arrays["start_s"], feature_names=names)


def _arrays(samples: CommsMLSamples) -> dict[str, np.ndarray]:
    return {
        "features": samples.features,
        "region": samples.region,
        "start_s": samples.start_s,
        "kind": samples.kind,
        "feature_names": np.array(samples.feature_names),
    }


def _fingerprint(settings: CommsMLSettings) -> str:
    return hashlib.sha256(msgspec.json.encode([_GENERATION, settings])).hexdigest()[:12]


def _cached(path: Path) -> dict[str, np.ndarray] | None:
    """Return what was kept; None if there is nothing that can be read, in which case it is made again."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            return {name: kept[name] for name in ("features", "region", "start_s", "kind", "feature_names")}
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None


def _keep(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Keep arrays for the next time. A home that cannot be written only costs seconds then."""
    scratch = path.with_name(f"{path.name}.part")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with scratch.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        scratch.replace(path)
