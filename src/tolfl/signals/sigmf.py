"""Recordings in SigMF, read a stretch and written a block at a time: a pair of files, or an archive that holds them.

SigMF (sigmf.org) keeps samples in a file `.sigmf-data` and says in another, `.sigmf-meta`, what they are: JSON with a
global object, captures (from which sample on which tuning holds) and annotations (what is where).
"""

from __future__ import annotations

import hashlib
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tolfl.core.errors import DataFileError, RunDirectoryError, SpecError

Complex = NDArray[np.complex64]

_DATATYPE = re.compile(r"(?P<kind>[cr])(?P<number>f32|f64|i32|i16|i8|u32|u16|u8)(?P<order>_le|_be)?")
EXTENSION = "tolfl"  #: fields of ours, which the core of SigMF does not have
_NEEDS_ORDER = ("f32", "f64", "i32", "i16", "u32", "u16")


def datatype_of(name: str) -> tuple[np.dtype[np.generic], bool]:
    """Return the numbers of a datatype by its name in SigMF, with byte order, and whether a sample has two of them.

    >>> datatype_of("ci16_le"), datatype_of("ru8")
    ((dtype('int16'), True), (dtype('uint8'), False))
    """
    found = _DATATYPE.fullmatch(name)
    if found is None or (found["order"] is None and found["number"] in _NEEDS_ORDER):
        known = "cf32_le, ci16_le, ci8, cu8 and their like, c or r, with _le or _be"
        raise ValueError(f"core:datatype {name!r} is unknown; SigMF has {known}")
    number = found["number"]
    order = ">" if found["order"] == "_be" else "<"
    return np.dtype(f"{order}{number[0]}{int(number[1:]) // 8}"), found["kind"] == "c"


def full_scale(numbers: np.dtype[np.generic]) -> float:
    """Return what the largest number stands for amplitude 1; of unsigned ones it also stands for amplitude 0."""
    return 1.0 if numbers.kind == "f" else float(2 ** (8 * numbers.itemsize - 1))


def _field(name: str) -> str:
    return f"{EXTENSION}:{name[4:]}" if name.startswith("our_") else f"core:{name}"


_Count = Annotated[int, msgspec.Meta(ge=0)]


class Global(msgspec.Struct, frozen=True, rename=_field):
    """What holds for the whole recording."""

    datatype: str
    sample_rate: Annotated[float, msgspec.Meta(gt=0)]
    sha512: str = ""
    num_channels: Annotated[int, msgspec.Meta(ge=1)] = 1
    offset: int = 0  #: the number of the first sample: captures and annotations count from there
    dataset: str = ""  #: the name of the file with the samples, where it is another than usual
    trailing_bytes: _Count = 0
    metadata_only: bool = False

    def __post_init__(self) -> None:
        datatype_of(self.datatype)
        if self.metadata_only:
            raise ValueError("core:metadata_only: there are no samples to it; get the recording itself")


class Capture(msgspec.Struct, frozen=True, rename=_field):
    """From which sample on which tuning holds."""

    sample_start: int = 0
    frequency: float | None = None
    global_index: int | None = None  #: of that sample in a longer stream, of which the recording has pieces
    header_bytes: _Count = 0


class Annotation(msgspec.Struct, frozen=True, rename=_field, omit_defaults=True):
    """What is where: some samples, perhaps some of the band."""

    sample_start: int
    sample_count: _Count | None = None  #: None: to the end, or up to the next annotation of the same kind
    freq_lower_edge: float | None = None
    freq_upper_edge: float | None = None
    label: str = ""
    comment: str = ""
    generator: str = ""
    our_source: str = ""  #: who sends
    our_destination: str = ""
    our_wire_bytes: int = 0  #: of the packet that it carries; 0: it carries none
    our_power_dbm: float | None = None  #: mean, at the receiver's antenna, without fading


class Metadata(msgspec.Struct, frozen=True):
    """The content of a `.sigmf-meta` file."""

    global_: Global = msgspec.field(name="global")
    captures: tuple[Capture, ...] = ()
    annotations: tuple[Annotation, ...] = ()

    def __post_init__(self) -> None:
        starts = [self.global_.offset, *(capture.sample_start for capture in self.captures)]
        if starts != sorted(starts):
            raise ValueError("the captures are not in the order of their samples; sort them by core:sample_start")


def parse_metadata(content: bytes, path: Path) -> Metadata:
    """Return the metadata of a recording; fields of other people's extensions are left out."""
    if not content.strip():
        raise DataFileError(path, "the metadata are empty; get the file again")
    try:
        return msgspec.json.decode(content, type=Metadata)
    except msgspec.ValidationError as error:
        raise DataFileError(path, f"the metadata are not those of SigMF ({error}); correct them") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataFileError(path, f"the metadata are no JSON ({error}); get the file again") from None


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

    Of several channels, the first is read. Real samples have no imaginary part, and a spectrum that is its own mirror
    image.
    """

    path: Path
    file: Path  #: where the samples are
    rate_hz: float
    numbers: np.dtype[np.generic]
    is_complex: bool
    n_channels: int
    segments: tuple[Segment, ...]
    annotations: tuple[Annotation, ...]
    """In the order of their samples, which are counted from 0."""

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
        per_sample = self.n_channels * (2 if self.is_complex else 1)
        place = segment.first_byte + start * per_sample * self.numbers.itemsize
        with _reading(self.file):
            numbers = np.fromfile(self.file, self.numbers, n_samples * per_sample, offset=place)
        if len(numbers) < n_samples * per_sample:
            raise DataFileError(self.file, "the file became shorter while it was read; try again")
        used = numbers.reshape(n_samples, -1)[:, : 2 if self.is_complex else 1].astype(np.float32)
        if self.numbers.kind != "f":
            scale = np.float32(full_scale(self.numbers))
            used = (used - scale * (self.numbers.kind == "u")) / scale
        if self.is_complex:
            return np.ascontiguousarray(used).view(np.complex64)[:, 0]
        return used[:, 0].astype(np.complex64)

    def windows(self, n_samples: int) -> Iterator[tuple[Segment, int, Complex]]:
        """Yield windows one after the other, with their segment and first sample in it; none lies across a retuning."""
        for segment in self.segments:
            for start in range(0, segment.n_samples - n_samples + 1, n_samples):
                yield segment, start, self.read(segment, start, n_samples)


def open_recording(path: Path | str) -> Recording:
    """Return a recording, named by either of its two files or by its archive; samples are compared with their hash."""
    path = Path(path).expanduser()
    if path.suffix.lower() == ARCHIVE:
        found, file, first_byte, n_bytes = _in_archive(path)
    elif path.suffix.lower() in (META, DATA):
        found, file, first_byte, n_bytes = _in_pair(path)
    elif path.name.lower().endswith(_PACKED):
        raise DataFileError(path, "a packed archive, which cannot be read in pieces; unpack it first")
    else:
        raise DataFileError(path, f"no recording by its name; use {META}, {DATA} or {ARCHIVE}")
    _check_hash(found, file, first_byte, n_bytes)
    return _recording(found, path, file, first_byte, n_bytes)


def _recording(found: Metadata, path: Path, file: Path, first_byte: int, n_bytes: int) -> Recording:
    """Return the segments of samples, after checking that all that the metadata name is there."""
    about, (numbers, is_complex) = found.global_, datatype_of(found.global_.datatype)
    frame = numbers.itemsize * (2 if is_complex else 1) * about.num_channels
    headers = sum(capture.header_bytes for capture in found.captures)
    n_samples, rest = divmod(n_bytes - about.trailing_bytes - headers, frame)
    if n_samples < 1:
        raise DataFileError(file, "there is no sample in it; record again, or get the file again")
    if rest:
        raise DataFileError(
            file, f"{rest} bytes are left after the last whole sample of {frame}; is it cut, or no {about.datatype}?"
        )
    named = [capture.sample_start + 1 for capture in found.captures]
    named += [note.sample_start + (note.sample_count or 0) for note in found.annotations]
    if (last := max(named, default=0) - about.offset) > n_samples:
        raise DataFileError(
            path, f"the metadata refer to sample {last}, but there are {n_samples}; the data are cut, or not these"
        )
    moved = [replace(note, sample_start=note.sample_start - about.offset) for note in found.annotations]
    notes = tuple(sorted(moved, key=lambda note: note.sample_start))
    segments = _segments(found, first_byte, n_samples, frame)
    return Recording(path, file, about.sample_rate, numbers, is_complex, about.num_channels, segments, notes)


def _segments(found: Metadata, first_byte: int, n_samples: int, frame: int) -> tuple[Segment, ...]:
    about, captures = found.global_, found.captures
    if not captures or captures[0].sample_start > about.offset:  # samples before the first capture are samples still
        captures = (Capture(sample_start=about.offset), *captures)
    starts = [capture.sample_start - about.offset for capture in captures]
    first_index = next((one.global_index for one in captures if one.global_index is not None), 0)
    segments, at = [], first_byte
    for capture, start, end in zip(captures, starts, [*starts[1:], n_samples], strict=True):
        at += capture.header_bytes
        index = start if capture.global_index is None else capture.global_index - first_index
        time_s = index / about.sample_rate
        segments.append(Segment(start, end - start, at + start * frame, time_s, capture.frequency))
    return tuple(segment for segment in segments if segment.n_samples > 0)


# -- files ------------------------------------------------------------------------------------------------------------


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Return in a sentence why a file cannot be read."""
    try:
        yield
    except FileNotFoundError:
        raise DataFileError(path, "no such file; check the path") from None
    except OSError as error:
        why = error.strerror or error
        raise DataFileError(path, f"cannot be read ({why}); check the path and its permissions") from None


def _in_pair(path: Path) -> tuple[Metadata, Path, int, int]:
    """Return the metadata of a pair of files, and where the samples are: file, first byte, number of bytes."""
    with _reading(meta := path.with_suffix(META)):
        found = parse_metadata(meta.read_bytes(), path)
    name = found.global_.dataset
    if name and (Path(name).name != name or name == ".." or "\0" in name):
        raise DataFileError(path, f"core:dataset {name!r} is no name of a file beside it; correct the metadata")
    file = path.with_name(name) if name else path.with_suffix(DATA)
    with _reading(file):
        if not file.exists():
            raise DataFileError(path, f"its samples are missing: {file.name} is not beside it")
        return found, file, 0, file.stat().st_size


def _in_archive(path: Path) -> tuple[Metadata, Path, int, int]:
    """Return the same of an archive, which is not compressed."""
    try:
        with _reading(path), tarfile.open(path, "r:") as archive:
            members = [member for member in archive.getmembers() if member.isfile()]
            metas = [member for member in members if member.name.endswith(META)]
            if len(metas) != 1:
                raise DataFileError(path, f"the archive has {len(metas)} recordings, not one; unpack it with tar")
            name = metas[0].name[: -len(META)] + DATA
            data = next((member for member in members if member.name == name), None)
            if data is None:
                raise DataFileError(path, f"its samples are missing: there is no {name} in the archive")
            file = archive.extractfile(metas[0])
            content = b"" if file is None else file.read(_LONGEST_METADATA)
            return parse_metadata(content, path), path, data.offset_data, data.size
    except tarfile.TarError as problem:
        raise DataFileError(path, f"no archive of SigMF ({problem}); it must be an unpacked tar file") from None


def _check_hash(found: Metadata, file: Path, first_byte: int, n_bytes: int) -> None:
    expected = found.global_.sha512.lower()
    if not expected:
        return
    hashed = hashlib.sha512()
    with _reading(file), file.open("rb") as samples:
        samples.seek(first_byte)
        while n_bytes and (block := samples.read(min(_HASHED_AT_ONCE, n_bytes))):
            hashed.update(block)
            n_bytes -= len(block)
    if hashed.hexdigest() != expected:
        raise DataFileError(file, "the samples are not those of the metadata (core:sha512 differs); get them again")


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
            found.append(replace(note, sample_start=start, sample_count=end - start))
    return found
