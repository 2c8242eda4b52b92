"""Rows of many places, some of them odd; and the program as a process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tolfl.detect import DetectorSpec, fit_detector
from tolfl.detect.features import Features
from tolfl.watch.alarm_events import AlarmEvent


def saved_model(folder: Path) -> Path:
    """Fit a detector on two columns, and save it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2)).astype(np.float32)
    detector = fit_detector({"0": X}, DetectorSpec(model="mahalanobis"), Features(("a", "b"), ("", "")))
    return detector.save(folder / "model")


def odd_rows(path: Path, n_places: int) -> Path:
    """Write a table in which every place has one odd row and eleven usual ones: a group opens, and closes."""
    lines = ["place,a,b", *(f"p{place},40,-40" for place in range(n_places))]
    lines += [f"p{place},0.01,0.02" for _ in range(11) for place in range(n_places)]
    path.write_text("\n".join(lines) + "\n")
    return path


def watching(*words: object) -> subprocess.Popen[str]:
    """Start `tolfl watch`."""
    command = [sys.executable, "-m", "tolfl", "watch", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a file."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def event(number: int, severity: str = "warning") -> AlarmEvent:
    """Return an event like no other."""
    return AlarmEvent(
        f"{number:016x}-0", "open", severity, "0", "lo", "", "m", "t0", "t1", 1, "score", 3.0, 1.0, 0.001, ()
    )
