"""`tolfl data spectrogram`: a recording as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tolfl.cli import flags
from tolfl.cli.flags import Format
from tolfl.cli.output import save_figure, show
from tolfl.core.errors import SpecError

_KINDS = (".png", ".svg", ".pdf")


def spectrogram(
    recording: Annotated[Path, typer.Argument(help="A recording: .sigmf-meta, .sigmf-data or .sigmf.")],
    out: Annotated[Path, typer.Option(help="The picture: a file that ends in .png, .svg or .pdf.")],
    from_s: Annotated[
        float, typer.Option("--from", help="Begin so many seconds after the recording's beginning.")
    ] = 0.0,
    seconds: Annotated[float | None, typer.Option(help="Draw so many seconds. (default: all)")] = None,
    format: flags.HowShown = Format.TABLE,
) -> None:
    """Draw frequency over time, with a box around each annotation (up to 400 of them).

    A recording that was retuned on the way is drawn up to the first retuning.

    Example: tolfl data spectrogram data/recordings/bluetooth/region-1.sigmf-meta --out picture.png

    Example: tolfl data spectrogram theirs.sigmf --from 0.25 --seconds 0.02 --out picture.png
    """
    if out.suffix.lower() not in _KINDS:
        raise SpecError(f"--out {out}: a picture ends in one of {', '.join(_KINDS)}")
    from tolfl.signals.sigmf import open_recording
    from tolfl.signals.spectrograms import plot_spectrogram

    found = open_recording(recording)
    figure = plot_spectrogram(found, from_s, seconds)
    save_figure(figure, out, dpi=100)
    shown = {
        "picture": str(out),
        "duration_s": found.duration_s,
        "rate_hz": found.rate_hz,
        "n_annotations": len(found.annotations),
    }
    show(shown, format, [f"picture: {out}"])
