"""The metadata of a recording in SigMF, as far as they are understood here, and what can be wrong with a recording.

SigMF (sigmf.org) keeps samples in a file `.sigmf-data` and says in another, `.sigmf-meta`, what they are: JSON with a
global object, captures (from which sample on which tuning holds) and annotations (what is where).
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import numpy as np

from tolfl.core.errors import DataError

_DATATYPE = re.compile(r"(?P<kind>[cr])(?P<number>f32|f64|i32|i16|i8|u32|u16|u8)(?P<order>_le|_be)?")
EXTENSION = "tolfl"  #: fields of ours, which the core of SigMF does not have
_NEEDS_ORDER = ("f32", "f64", "i32", "i16", "u32", "u16")


class RecordingError(DataError):
    """A recording cannot be read, or is not what its metadata say."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path, self.problem = path, problem


class Datatype(msgspec.Struct, frozen=True):
    """How a sample is written.

    >>> Datatype.named("ci16_le").bytes_per_sample, Datatype.named("ru8").bytes_per_sample
    (4, 1)
    """

    name: str
    numbers: str  #: as numpy calls them, with byte order
    is_complex: bool

    @classmethod
    def named(cls, name: str) -> Datatype:
        """Return the datatype with a name of SigMF's, or raise ValueError."""
        found = _DATATYPE.fullmatch(name)
        if found is None or (found["order"] is None and found["number"] in _NEEDS_ORDER):
            raise ValueError(name)
        number = found["number"]
        order = ">" if found["order"] == "_be" else "<"
        return cls(name, f"{order}{number[0]}{int(number[1:]) // 8}", found["kind"] == "c")

    @property
    def bytes_per_sample(self) -> int:
        """How long a sample is on disk."""
        return np.dtype(self.numbers).itemsize * (2 if self.is_complex else 1)

    @property
    def full_scale(self) -> float:
        """What the largest number stands for amplitude 1."""
        kind = np.dtype(self.numbers)
        return 1.0 if kind.kind == "f" else float(2 ** (8 * kind.itemsize - 1))

    @property
    def middle(self) -> float:
        """Which number stands for 0: unsigned numbers have it in their middle."""
        return self.full_scale if np.dtype(self.numbers).kind == "u" else 0.0


def _field(name: str) -> str:
    return f"{EXTENSION}:{name[4:]}" if name.startswith("our_") else f"core:{name}"


class Global(msgspec.Struct, frozen=True, rename=_field):
    """What holds for the whole recording."""

    datatype: str
    sample_rate: float | None = None
    sha512: str = ""
    num_channels: int = 1
    offset: int = 0  #: the number of the first sample: captures and annotations count from there
    dataset: str = ""  #: the name of the file with the samples, where it is another than usual
    trailing_bytes: int = 0
    metadata_only: bool = False
    description: str = ""
    our_router: str = ""  #: whose frames are read; without it there is no transcript
    our_time_lapse: float = 1.0  #: how many times as fast as in reality packets follow each other


class Capture(msgspec.Struct, frozen=True, rename=_field):
    """From which sample on which tuning holds."""

    sample_start: int = 0
    frequency: float | None = None
    datetime: str = ""
    global_index: int | None = None  #: of that sample in a longer stream, of which the recording has pieces
    header_bytes: int = 0


class Annotation(msgspec.Struct, frozen=True, rename=_field, omit_defaults=True):
    """What is where: some samples, perhaps some of the band."""

    sample_start: int
    sample_count: int | None = None  #: None: to the end, or up to the next annotation of the same kind
    freq_lower_edge: float | None = None
    freq_upper_edge: float | None = None
    label: str = ""
    comment: str = ""
    generator: str = ""
    our_source: str = ""  #: who sends
    our_destination: str = ""
    our_wire_bytes: int = 0  #: of the packet that it carries; 0: it carries none
    our_power_dbm: float | None = None  #: mean, at the receiver's aerial, without fading


class Metadata(msgspec.Struct, frozen=True):
    """All of it."""

    global_: Global = msgspec.field(name="global")
    captures: tuple[Capture, ...] = ()
    annotations: tuple[Annotation, ...] = ()


def parse_metadata(content: bytes, path: Path) -> Metadata:
    """Return the metadata of a recording; fields of other people's extensions are left out."""
    if not content.strip():
        raise RecordingError(path, "the metadata are empty; get the file again")
    try:
        found = msgspec.json.decode(content, type=Metadata)
    except msgspec.ValidationError as error:
        raise RecordingError(path, f"the metadata are not those of SigMF ({error}); correct them") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RecordingError(path, f"the metadata are no JSON ({error}); get the file again") from None
    _check(found, path)
    return found


def _check(found: Metadata, path: Path) -> None:
    about = found.global_
    try:
        Datatype.named(about.datatype)
    except ValueError:
        known = "cf32_le, ci16_le, ci8, cu8 and their like, c or r, with _le or _be"
        raise RecordingError(path, f"core:datatype {about.datatype!r} is unknown; SigMF has {known}") from None
    if about.sample_rate is None or not 0 < about.sample_rate < np.inf:
        said = "is missing" if about.sample_rate is None else f"is {about.sample_rate:g}"
        raise RecordingError(path, f"core:sample_rate {said}; write down how many samples a second has")
    if about.num_channels < 1:
        raise RecordingError(path, f"core:num_channels is {about.num_channels}; it must be at least 1")
    if not 0 < about.our_time_lapse < np.inf:
        raise RecordingError(path, f"{EXTENSION}:time_lapse is {about.our_time_lapse:g}; it must be above 0")
    if about.metadata_only:
        raise RecordingError(path, "core:metadata_only: there are no samples to it; get the recording itself")
    starts = [capture.sample_start for capture in found.captures]
    if starts != sorted(starts) or any(start < about.offset for start in starts):
        raise RecordingError(path, "the captures are not in the order of their samples; sort them by core:sample_start")
    if about.trailing_bytes < 0 or any(capture.header_bytes < 0 for capture in found.captures):
        raise RecordingError(path, "core:header_bytes or core:trailing_bytes is negative; correct the metadata")
    if any((note.sample_count or 0) < 0 for note in found.annotations):
        raise RecordingError(path, "an annotation has a negative core:sample_count; correct the metadata")
