"""A recording as a picture: frequency over time, with its annotations drawn on top."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import SpecError
from tolfl.signals.iq_features import decibels
from tolfl.signals.sigmf import Annotation, Recording, Segment

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_N_FFT = 256
_COLUMNS = 1200  #: more than a picture can show
_PIECES_PER_COLUMN = 64  #: of a long recording, the first of these stand for a column
_UNNAMED = "annotation"
_NARROW = 0.004  #: of the picture
_DRAWN = 400  #: boxes; more of them hide what they show
_COLOURS = ("#56B4E9", "#35E08B", "#9D9DFF", "#00B8B8")  #: that are not in the picture, nor white


def spectrogram(recording: Recording, segment: Segment, begin: int, end: int) -> NDArray[np.float64]:
    """Return power in dBFS per bin, shape `(n_bins, n_columns)`: the largest of each column, so that none is missed."""
    from scipy import fft  # noqa: PLC0415  (scipy is an extra)

    n_pieces = max((end - begin) // _N_FFT, 1)
    n_columns = min(_COLUMNS, n_pieces)
    edges = begin + np.linspace(0, n_pieces, n_columns + 1).astype(int) * _N_FFT
    window = np.hanning(_N_FFT + 1)[:-1].astype(np.float32)
    window /= np.float32(window.sum())
    picture = np.empty((_N_FFT, n_columns))
    for column in range(n_columns):
        n_samples = min(int(edges[column + 1] - edges[column]), _PIECES_PER_COLUMN * _N_FFT)
        samples = recording.read(segment, int(edges[column]), n_samples)
        pieces = np.resize(samples, max(_N_FFT, len(samples))).reshape(-1, _N_FFT)
        picture[:, column] = (np.abs(fft.fft(pieces * window, axis=1)) ** 2).max(axis=0)
    return decibels(fft.fftshift(picture, axes=0))


def plot_spectrogram(recording: Recording, from_s: float = 0.0, seconds: float | None = None) -> Figure:
    """Return the picture of a recording, or of a part of its first segment, with a box around each annotation."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (slow to import, and not everybody draws)

    segment = recording.segments[0]
    begin, end = _part(recording, segment, from_s, seconds)
    picture = spectrogram(recording, segment, begin, end)
    drawn_s = (end - begin) / recording.rate_hz
    scale, unit = (1.0, "s") if drawn_s >= 2 else (1e3, "ms") if drawn_s >= 2e-3 else (1e6, "µs")
    middle_mhz = (segment.frequency_hz or 0.0) / 1e6
    half_mhz = recording.rate_hz / 2e6
    times = (begin / recording.rate_hz * scale, end / recording.rate_hz * scale)
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    axis = figure.subplots()
    # Just above the noise, which is black then: a fifth of a picture is noise in all but the busiest bands.
    lowest = min(float(np.quantile(picture, 0.2)) + 10, float(picture.max()) - 30)
    image = axis.imshow(
        picture, origin="lower", aspect="auto", cmap="magma", interpolation="nearest", vmin=lowest,
        vmax=float(picture.max()), extent=(*times, middle_mhz - half_mhz, middle_mhz + half_mhz),
    )  # fmt: skip
    figure.colorbar(image, ax=axis, label="power per bin, dBFS", pad=0.01)
    axis.set(xlabel=f"time, {unit}", ylabel="frequency, MHz" if segment.frequency_hz else "offset, MHz")
    first, last = segment.start + begin, segment.start + end
    notes = [
        note
        for note in recording.annotations
        if note.sample_start < last and (note.sample_count is None or note.sample_start + note.sample_count > first)
    ]
    _draw(axis, notes, recording, segment, scale, (middle_mhz - half_mhz, middle_mhz + half_mhz))
    axis.set(xlim=times, ylim=(middle_mhz - half_mhz, middle_mhz + half_mhz))
    return figure


def _part(recording: Recording, segment: Segment, from_s: float, seconds: float | None) -> tuple[int, int]:
    begin = round(from_s * recording.rate_hz)
    end = segment.n_samples if seconds is None else begin + round(seconds * recording.rate_hz)
    end = min(end, segment.n_samples)
    if not 0 <= begin < end:
        lasts = segment.n_samples / recording.rate_hz
        raise SpecError(f"from {from_s:g} s: the recording lasts {lasts:g} s; choose a part that is in it")
    return begin, end


def _draw(
    axis: Axes,
    notes: Sequence[Annotation],
    recording: Recording,
    segment: Segment,
    scale: float,
    band_mhz: tuple[float, float],
) -> None:
    """Draw a box per annotation, one colour per label; where there are too many for boxes, the legend counts them."""
    from matplotlib.patches import Patch  # noqa: PLC0415  (as above)

    counts = Counter(note.label or _UNNAMED for note in notes)
    colours = {label: _COLOURS[place % len(_COLOURS)] for place, label in enumerate(sorted(counts))}
    for note in notes if len(notes) <= _DRAWN else ():
        n_samples = segment.n_samples if note.sample_count is None else note.sample_count
        left = (note.sample_start - segment.start) / recording.rate_hz * scale
        right = left + n_samples / recording.rate_hz * scale
        low = band_mhz[0] if note.freq_lower_edge is None else max(note.freq_lower_edge / 1e6, band_mhz[0])
        high = band_mhz[1] if note.freq_upper_edge is None else min(note.freq_upper_edge / 1e6, band_mhz[1])
        _box(axis, (left, right), (low, high), colours[note.label or _UNNAMED])
    handles = [Patch(fill=False, edgecolor=colours[label], label=f"{label} ({counts[label]})") for label in counts]
    if handles:
        axis.legend(handles=handles, ncols=len(handles), frameon=False, loc="lower left", bbox_to_anchor=(0, 1))


def _box(axis: Axes, times: tuple[float, float], edges: tuple[float, float], colour: str) -> None:
    """Draw a box, or only its edges in frequency where its sides would hide what is between them."""
    from matplotlib.patches import Rectangle  # noqa: PLC0415  (as above)

    shown = axis.get_xlim()
    if times[1] - times[0] < _NARROW * (shown[1] - shown[0]):
        axis.hlines(edges, *times, colors=colour, linewidth=2)
        return
    size = (times[1] - times[0], edges[1] - edges[0])
    axis.add_patch(Rectangle((times[0], edges[0]), *size, fill=False, edgecolor=colour, linewidth=0.9))
