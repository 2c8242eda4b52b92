"""Recordings in SigMF, written a block at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import RunDirectoryError, SpecError
from tolfl.signals.recordings.metadata import EXTENSION, Annotation
from tolfl.signals.recordings.reading import DATA, META

Complex = NDArray[np.complex64]

WrittenType = Literal["cf32_le", "ci16_le"]
_VERSION = "1.2.0"  #: of SigMF; the first with all fields that are written here
_LARGEST = 32767


def write_recording(
    path: Path,
    blocks: Iterable[Complex],
    *,
    rate_hz: float,
    frequency_hz: float,
    annotations: Sequence[Annotation] = (),
    datatype: WrittenType = "cf32_le",
    about: Mapping[str, object] | None = None,
) -> Path:
    """Write samples and metadata beside each other, and return the path of the metadata.

    Parameters
    ----------
    path
        With or without an ending; `.sigmf-meta` and `.sigmf-data` take its place.
    blocks
        Samples, a stretch at a time; amplitude 1 is full scale. Integers are cut off there, as a converter does.
    annotations
        What is where. Those that lie past the last sample are left out, those that reach past it are cut.
    about
        More fields of the global object, such as `core:description`.

    The metadata are written last: a recording without them was interrupted.
    """
    if datatype not in ("cf32_le", "ci16_le"):
        raise SpecError(f"datatype {datatype!r}; recordings are written as cf32_le or ci16_le")
    stem = path.with_suffix("") if path.suffix in (META, DATA) else path
    meta, data = stem.with_name(stem.name + META), stem.with_name(stem.name + DATA)
    try:
        data.parent.mkdir(parents=True, exist_ok=True)
        meta.unlink(missing_ok=True)
        with data.open("wb") as file:
            n_samples, sha512 = _written(file, blocks, datatype)
        content = {
            "global": {**_global(datatype, rate_hz, sha512), **(about or {})},
            "captures": [{"core:sample_start": 0, "core:frequency": frequency_hz}],
            "annotations": _inside(annotations, n_samples),
        }
        meta.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")
    except OSError as error:
        raise RunDirectoryError(data.parent, f"cannot be written ({error.strerror}); choose another place") from None
    return meta


def _global(datatype: WrittenType, rate_hz: float, sha512: str) -> dict[str, object]:
    return {
        "core:datatype": datatype,
        "core:sample_rate": rate_hz,
        "core:version": _VERSION,
        "core:recorder": "tolfl",
        "core:num_channels": 1,
        "core:sha512": sha512,
        # Optional: who does not know the extension can still read everything else.
        "core:extensions": [{"name": EXTENSION, "version": "1.0.0", "optional": True}],
    }


def _written(file: BinaryIO, blocks: Iterable[Complex], datatype: WrittenType) -> tuple[int, str]:
    n_samples, hashed = 0, hashlib.sha512()
    for block in blocks:
        parts = np.ascontiguousarray(block, np.complex64).view(np.float32)
        if datatype == "ci16_le":
            content = np.clip(np.rint(parts * 32768.0), -_LARGEST - 1, _LARGEST).astype("<i2").tobytes()
        else:
            content = parts.astype("<f4").tobytes()
        file.write(content)
        hashed.update(content)
        n_samples += len(block)
    return n_samples, hashed.hexdigest()


def _inside(annotations: Sequence[Annotation], n_samples: int) -> list[Annotation]:
    """Return annotations of samples that are there, in their order, as SigMF asks."""
    found = []
    for note in sorted(annotations, key=lambda note: note.sample_start):
        start = max(note.sample_start, 0)
        end = n_samples if note.sample_count is None else min(note.sample_start + note.sample_count, n_samples)
        if start < end:
            found.append(msgspec.structs.replace(note, sample_start=start, sample_count=end - start))
    return found
