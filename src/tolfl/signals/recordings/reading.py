"""Recordings in SigMF, read a stretch at a time: a pair of files, or an archive that holds them."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.signals.recordings.metadata import Annotation, Datatype, Metadata, RecordingError, parse_metadata

Complex = NDArray[np.complex64]

META, DATA, ARCHIVE = ".sigmf-meta", ".sigmf-data", ".sigmf"
_PACKED = (".sigmf.gz", ".sigmf.xz", ".sigmf.zip")
_HASHED_AT_ONCE = 1 << 22
_LONGEST_METADATA = 1 << 28  #: bytes; an archive's member could claim to be anything


@dataclass(frozen=True, slots=True)
class Segment:
    """Neighbouring samples under one tuning."""

    start: int  #: number of its first sample in the recording, from 0
    n_samples: int
    first_byte: int  #: where it begins in the file
    time_s: float  #: when it begins, since the beginning of the recording
    frequency_hz: float | None


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording whose samples are still on disk.

    Of several channels, the first is read.
    """

    path: Path
    file: Path  #: where the samples are
    rate_hz: float
    datatype: Datatype
    n_channels: int
    segments: tuple[Segment, ...]
    annotations: tuple[Annotation, ...]
    """In the order of their samples, which are counted from 0."""
    router: str = ""  #: whose frames a transcript's readings are taken from; empty: there is no transcript
    time_lapse: float = 1.0

    @property
    def n_samples(self) -> int:
        """How many samples there are."""
        return sum(segment.n_samples for segment in self.segments)

    @property
    def duration_s(self) -> float:
        """How long it takes to play."""
        return self.n_samples / self.rate_hz

    def read(self, segment: Segment, start: int, n_samples: int) -> Complex:
        """Return samples of a segment, from its own sample `start` on, as amplitudes: full scale is 1."""
        n_samples = max(0, min(n_samples, segment.n_samples - start))
        per_sample = self.n_channels * (2 if self.datatype.is_complex else 1)
        kind = np.dtype(self.datatype.numbers)
        place = segment.first_byte + start * per_sample * kind.itemsize
        try:
            numbers = np.fromfile(self.file, kind, n_samples * per_sample, offset=place)
        except OSError as problem:
            raise _unreadable(self.file, problem) from None
        if len(numbers) < n_samples * per_sample:
            raise RecordingError(self.file, "the file became shorter while it was read; try again")
        return _amplitudes(numbers.reshape(n_samples, -1), self.datatype)

    def windows(self, n_samples: int) -> Iterator[tuple[Segment, int, Complex]]:
        """Yield windows one after the other, with their segment and first sample in it; none lies across a retuning."""
        for segment in self.segments:
            for start in range(0, segment.n_samples - n_samples + 1, n_samples):
                yield segment, start, self.read(segment, start, n_samples)


def open_recording(path: Path | str) -> Recording:
    """Return a recording, named by either of its two files or by its archive; samples are compared with their hash."""
    path = Path(path).expanduser()
    if path.suffix.lower() == ARCHIVE:
        content, file, first_byte, n_bytes = _in_archive(path)
    elif path.suffix.lower() in (META, DATA):
        content = _bytes_of(path.with_suffix(META))
        file, first_byte, n_bytes = Path(), 0, 0
    elif path.name.lower().endswith(_PACKED):
        raise RecordingError(path, "a packed archive, which cannot be read in pieces; unpack it first")
    else:
        raise RecordingError(path, f"no recording by its name; use {META}, {DATA} or {ARCHIVE}")
    found = parse_metadata(content, path)
    if file == Path():
        file = _beside(path, found.global_.dataset)
        n_bytes = _size_of(file, path)
    _check_hash(found, file, first_byte, n_bytes)
    return _laid_out(found, path, file, first_byte, n_bytes)


def _beside(path: Path, dataset: str) -> Path:
    if dataset and (Path(dataset).name != dataset or dataset == ".." or "\0" in dataset):
        raise RecordingError(path, f"core:dataset {dataset!r} is no name of a file beside it; correct the metadata")
    return path.with_name(dataset) if dataset else path.with_suffix(DATA)


def _laid_out(found: Metadata, path: Path, file: Path, first_byte: int, n_bytes: int) -> Recording:
    """Find out which bytes are which samples, and whether all that the metadata speak of is there."""
    about, datatype = found.global_, Datatype.named(found.global_.datatype)
    frame = datatype.bytes_per_sample * about.num_channels
    headers = sum(capture.header_bytes for capture in found.captures)
    n_samples, rest = divmod(n_bytes - about.trailing_bytes - headers, frame)
    if n_samples < 1:
        raise RecordingError(file, "there is no sample in it; record again, or get the file again")
    if rest:
        raise RecordingError(
            file, f"{rest} bytes are left after the last whole sample of {frame}; is it cut, or no {about.datatype}?"
        )
    rate_hz = float(about.sample_rate or 0.0)
    recording = Recording(
        path, file, rate_hz, datatype, about.num_channels, _segments(found, first_byte, n_samples, frame),
        _notes(found), about.our_router, about.our_time_lapse,
    )  # fmt: skip
    last = max((start + count for start, count in _claims(found)), default=0)
    if last > n_samples:
        raise RecordingError(
            path, f"the metadata speak of sample {last}, but there are {n_samples}; the data are cut, or not these"
        )
    return recording


def _claims(found: Metadata) -> list[tuple[int, int]]:
    """Return every stretch that the metadata say is there."""
    offset = found.global_.offset
    captures = [(capture.sample_start - offset, 1) for capture in found.captures]
    return captures + [(note.sample_start - offset, note.sample_count or 0) for note in found.annotations]


def _segments(found: Metadata, first_byte: int, n_samples: int, frame: int) -> tuple[Segment, ...]:
    about, captures = found.global_, found.captures
    rate_hz = float(about.sample_rate or 1.0)
    starts = [capture.sample_start - about.offset for capture in captures]
    if not captures or starts[0] > 0:  # samples before the first capture belong to none, and are samples still
        head = Segment(0, starts[0] if starts else n_samples, first_byte, 0.0, None)
        segments = [head]
    else:
        segments = []
    first_index = next((c.global_index for c in captures if c.global_index is not None), None)
    skipped = 0
    for place, capture in enumerate(captures):
        skipped += capture.header_bytes
        end = starts[place + 1] if place + 1 < len(captures) else n_samples
        index = starts[place]
        if capture.global_index is not None and first_index is not None:
            index = capture.global_index - first_index
        at = first_byte + skipped + starts[place] * frame
        segments.append(Segment(starts[place], end - starts[place], at, index / rate_hz, capture.frequency))
    return tuple(segment for segment in segments if segment.n_samples > 0)


def _notes(found: Metadata) -> tuple[Annotation, ...]:
    offset = found.global_.offset
    moved = (msgspec.structs.replace(note, sample_start=note.sample_start - offset) for note in found.annotations)
    return tuple(sorted(moved, key=lambda note: note.sample_start))


def _amplitudes(numbers: NDArray[np.generic], datatype: Datatype) -> Complex:
    """Return the first channel; real samples have no imaginary part, and a spectrum that is its own mirror image."""
    used = numbers[:, : 2 if datatype.is_complex else 1].astype(np.float32)
    if datatype.full_scale != 1.0:
        used = (used - np.float32(datatype.middle)) / np.float32(datatype.full_scale)
    if datatype.is_complex:
        return np.ascontiguousarray(used).view(np.complex64)[:, 0]
    return used[:, 0].astype(np.complex64)


# -- files ------------------------------------------------------------------------------------------------------------


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise _unreadable(path, problem) from None


def _size_of(file: Path, path: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        raise RecordingError(path, f"its samples are missing: {file.name} is not beside it") from None
    except OSError as problem:
        raise _unreadable(file, problem) from None


def _in_archive(path: Path) -> tuple[bytes, Path, int, int]:
    """Return the metadata in an archive, and where in it the samples are: an archive is not packed, only tied up."""
    try:
        with tarfile.open(path, "r:") as archive:
            members = [member for member in archive.getmembers() if member.isfile()]
            metas = [member for member in members if member.name.endswith(META)]
            if len(metas) != 1:
                raise RecordingError(path, f"the archive has {len(metas)} recordings, not one; unpack it with tar")
            name = metas[0].name[: -len(META)] + DATA
            data = next((member for member in members if member.name == name), None)
            if data is None:
                raise RecordingError(path, f"its samples are missing: there is no {name} in the archive")
            file = archive.extractfile(metas[0])
            content = b"" if file is None else file.read(_LONGEST_METADATA)
            return content, path, data.offset_data, data.size
    except tarfile.TarError as problem:
        raise RecordingError(path, f"no archive of SigMF ({problem}); it must be an unpacked tar file") from None
    except OSError as problem:
        raise _unreadable(path, problem) from None


def _check_hash(found: Metadata, file: Path, first_byte: int, n_bytes: int) -> None:
    expected = found.global_.sha512.lower()
    if not expected:
        return
    hashed = hashlib.sha512()
    try:
        with file.open("rb") as samples:
            samples.seek(first_byte)
            while n_bytes and (block := samples.read(min(_HASHED_AT_ONCE, n_bytes))):
                hashed.update(block)
                n_bytes -= len(block)
    except OSError as problem:
        raise _unreadable(file, problem) from None
    if hashed.hexdigest() != expected:
        raise RecordingError(file, "the samples are not those of the metadata (core:sha512 differs); get them again")


def _unreadable(path: Path, problem: OSError) -> RecordingError:
    if isinstance(problem, FileNotFoundError):
        return RecordingError(path, "no such file; check the path")
    return RecordingError(path, f"cannot be read ({problem.strerror or problem}); check the path and its permissions")
