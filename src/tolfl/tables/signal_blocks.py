"""Captures of a network and recordings of radio signals as blocks: a row per window."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from tolfl.core.errors import DataFileError
from tolfl.signals.capture_rows import CAPTURE_GRID, live_rows, window_rows
from tolfl.signals.iq_features import recording_rows
from tolfl.signals.live_streams import captured_on, followed_files, pipe_chunks
from tolfl.signals.pcap import CaptureSummary
from tolfl.signals.receiver import WINDOW_S, Tuning, raw_rows, stream_rows
from tolfl.signals.sigmf import open_recording
from tolfl.signals.windows import SignalRows, WindowGrid
from tolfl.signals.wlan import Networks, bursts_in, networks_in
from tolfl.tables.block_reader import STDIN_NAME, ArrayTable, Block

LABEL, TIME, KEY = "label", "time", "key"  #: what windows have beside their features
_LOG = logging.getLogger(__name__)


def capture_blocks(
    source: list[Path] | str | BinaryIO,
    device: str = "",
    grid: tuple[float, float] | None = None,
    *,
    per: str = "",
    follow: bool = False,
    known: Networks | None = None,
) -> Iterator[Block]:
    """Yield the windows of a capture as blocks of rows: finished files, or one that is still being made.

    This is what `tolfl score` and whoever watches read. Of each block:

    - `time` (a column beside the features) is when a window starts, UTC; it is over `window_s` later. Windows begin at
      multiples of their length since 1970, so a restart gives the same rows.
    - `is_partial` marks windows that the capture holds only a part of: its first and last one, and those at a step of
      its clock. They are no rows to learn from, and few packets in them mean nothing.
    - `key` (a column beside the features, with `per` alone) is the network or channel that a row is about.
    - `summary` has the counts so far: `n_packets`, `left_out` (packets lost, by reason), `n_clock_steps`. It is one
      object for the whole source, and goes on counting.

    A live source yields at least four times a second; where no window is over, a block without rows: time to look
    after other things. To stop, leave the loop (or close the generator): a child that captures ends with it.

    Parameters
    ----------
    source
        Files that follow one another; the name of an interface, which a child (dumpcap, else tcpdump) captures on; or a
        pipe with pcap or pcapng.
    device
        Whose rows these are.
    grid
        Window and step, in seconds. (default: 1 and 1)
    per
        `bssid` or `channel`: a row for each, of 802.11; else one row per window.
    follow
        Whether the (one) file is still being written: it is read on as it grows, and so are the files that follow it.
    known
        The networks of 802.11 that are not new, as `networks_known` reads them; None: what is new is missing.
    """
    windows, summary = CAPTURE_GRID if grid is None else WindowGrid(*grid), CaptureSummary()
    if isinstance(source, str):
        with captured_on(source, summary) as stream:
            rows = live_rows([stream], windows, summary, per, known)
            yield from _of_rows(rows, f"interface {source}", device, windows.duration_s, summary)
    elif not isinstance(source, list):
        rows = live_rows([(Path(STDIN_NAME), pipe_chunks(source))], windows, summary, per, known)
        yield from _of_rows(rows, STDIN_NAME, device, windows.duration_s, summary)
    elif follow:
        rows = live_rows(followed_files(source[0]), windows, summary, per, known)
        yield from _of_rows(rows, str(source[0]), device, windows.duration_s, summary)
    else:
        yield from _of_rows(
            window_rows(source, windows, summary, per, known), str(source[0]), device, windows.duration_s, summary
        )


def training_windows(
    captures: Sequence[tuple[str, list[Path]]], grid: tuple[float, float], per: str, without_bursts: bool
) -> tuple[list[Block], Networks | None]:
    """Return the whole windows of captures, a block for each device, and the networks in them."""
    windows = WindowGrid(*grid)
    made: list[Block] = []
    networks: list[Networks] = []
    for device, own in captures:
        summary = CaptureSummary()
        seen = networks_in(own, windows)
        networks += [] if seen is None else [seen.all]
        known = None if seen is None else seen.of_several_windows
        found = list(window_rows(own, windows, summary, per, known))
        if summary.sentence:
            _LOG.warning("%s: %s", own[0], summary.sentence)
        is_kept = np.concatenate([one.is_whole for one in found])
        features = np.concatenate([one.features for one in found])
        starts_s = np.concatenate([one.start_s for one in found])
        is_near_burst, bursts = bursts_in(found[0].names, features, starts_s)
        if bursts:
            advice = "they are left out" if without_bursts else "the fit takes them for usual; --without-bursts"
            _LOG.warning("%s: %s: %s", own[0], bursts, advice)
        if without_bursts:
            is_kept &= ~is_near_burst
        if not is_kept.any():
            raise DataFileError(
                own[0],
                f"there is no whole window of {windows.duration_s:g} s to use; give a longer capture, or --window",
            )
        rows = SignalRows(found[0].names, starts_s[is_kept], features[is_kept])
        made.append(block_of(rows, str(own[0]), device, windows.duration_s, summary))
    return made, np.unique(np.concatenate(networks)) if networks else None


def recording_blocks(path: Path, device: str) -> Iterator[Block]:
    """Yield the windows of a recording; `time` is in seconds since its beginning, `label` is from its annotations."""
    for block in _of_rows(recording_rows(open_recording(path)), str(path), device):
        features = [values for name, values in block.table.items() if name not in block.beside]
        is_bad = ~np.isfinite(np.column_stack(features)).all(axis=1)
        errors = dict.fromkeys(np.flatnonzero(is_bad).tolist(), "samples of this window are no finite numbers")
        yield replace(block, errors=errors)


def receiver_blocks(source: Path | BinaryIO, device: str, tuning: Tuning) -> Iterator[Block]:
    """Yield the windows of a receiver's samples, of a file or as they come; `time` is since the beginning."""
    notes: list[str] = []
    if isinstance(source, Path):
        name, found = str(source), raw_rows(source, tuning, notes)
    else:
        name, found = STDIN_NAME, stream_rows(pipe_chunks(source), tuning, notes)
    yield from _of_rows(found, name, device, WINDOW_S)
    for note in notes:
        _LOG.warning("%s: %s", name, note)


def _of_rows(
    found: Iterable[SignalRows], source: str, device: str, window_s: float = 0.0, summary: CaptureSummary | None = None
) -> Iterator[Block]:
    first = 1
    for rows in found:
        yield replace(block_of(rows, source, device, window_s, summary), first=first)
        first += len(rows.start_s)
    if summary is not None and summary.sentence:
        _LOG.warning("%s: %s", source, summary.sentence)


def block_of(
    rows: SignalRows, source: str, device: str, window_s: float = 0.0, summary: CaptureSummary | None = None
) -> Block:
    """Return rows as a block; those of a capture have a summary, and times of the world."""
    is_utc = summary is not None
    columns = dict(zip(rows.names, rows.features.T, strict=True))
    columns[TIME] = (rows.start_s * 1e6).astype(np.int64).view("M8[us]") if is_utc else rows.start_s
    texts = {KEY: rows.keys, LABEL: rows.labels}
    columns |= {name: np.array(values) for name, values in texts.items() if values}
    return Block(
        ArrayTable(columns),
        source=source,
        device=device,
        roles={"time": TIME},
        beside=(TIME, *(name for name, values in texts.items() if values)),
        window_s=window_s,
        is_partial=rows.is_partial,
        summary=summary,
    )
