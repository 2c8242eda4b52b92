"""Every generated part of a page, by the name in its mark: `<!-- generated: cli -->`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import msgspec

import tolfl
from docs.generate import commands, settings, wire
from docs.generate.words import table
from tolfl import detect

# -- the page of the Python interface -----------------------------------------------------------------------------

#: In the order in which a reader meets them; a name that is not here comes after them.
_FIRST = ("simulate", "Run", "compare", "Comparison", "FederatedDetector", "Detector")
#: What somebody implements or looks up who extends the library.
EXTENDING = (
    "learners.learner.Learner",
    "learners.learner.Fleet",
    "learners.learner.Turn",
    "learners.learner.Closing",
    "learners.learner.Stages",
    "learners.learner.ScoringFunction",
    "learners.checks.check_learner",
    "learners.registry.settings_of",
    "core.contribution.Contribution",
    "core.contribution.Part",
    "core.topology.Topology",
    "datasets.federated.RawData",
    "learners.training.Model",
)


def interface() -> str:
    """Return the page of the Python interface; `:::` is filled in by mkdocstrings."""
    public = tolfl.__all__
    names = sorted(public, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
    inside = [name for name in detect.__all__ if name not in public]
    return "\n\n".join(
        [
            "## tolfl",
            *(f"::: tolfl.{name}" for name in names),
            "## tolfl.detect",
            *(f"::: tolfl.detect.{name}" for name in inside),
            "## Errors",
            "::: tolfl.core.errors\n    options:\n      show_root_heading: false\n      show_root_toc_entry: false",
            "## To extend it",
            *(f"::: tolfl.{name}" for name in EXTENDING),
        ]
    )


# -- functions of frames --------------------------------------------------------------------------------------------

_WIFI = ("wifi.legacy_frame", "wifi_vht.vht_frame", "wifi.data_mpdu", "wifi_vht.ampdu", "wifi.with_check_sequence")
_BLUETOOTH = ("br_packet", "hops", "br_frequency_hz", "gfsk_glimpses")


def wifi() -> str:
    """Return the functions for frames of Wi-Fi."""
    return "\n\n".join(f"::: tolfl.signals.{name}" for name in _WIFI)


def bluetooth() -> str:
    """Return the functions for packets of Bluetooth."""
    return "\n\n".join(f"::: tolfl.signals.bluetooth.{name}" for name in _BLUETOOTH)


# -- every part ---------------------------------------------------------------------------------------------------

_RESULTS = Path(__file__).resolve().parents[2] / "results"
#: Schemes with one model and plain baselines, in the order of the table.
_BESIDE = ("tol-fl", "fl", "batch", "mean-vector", "pca-16", "pca-32")
_DECISIONS = Path(__file__).resolve().parents[1] / "decisions"


def decisions() -> str:
    """Return a list of all decisions with their titles."""
    files = sorted(_DECISIONS.glob("[0-9]*.md"))
    return "\n".join(f"- [{_title(file)}]({file.name})" for file in files)


def plain() -> str:
    """Return the AUROC of plain baselines beside that of trained schemes, by data set, from the stored rows."""
    rows = msgspec.json.decode((_RESULTS / "clean.json").read_bytes())["rows"]
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        found.setdefault((row["scheme"], row["data"]), []).append(row["auroc"])
    names = list(dict.fromkeys(row["data"] for row in rows))
    lines = [[f"`{one}`", *(f"{fmean(found[one, name]):.3f}" for name in names)] for one in _BESIDE]
    return table(["scheme", *names], lines)


def _title(file: Path) -> str:
    return file.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")


PARTS: dict[str, Callable[[], str]] = {
    "alarm": wire.alarm,
    "api": interface,
    "bluetooth": bluetooth,
    "cli": commands.page,
    "decisions": decisions,
    "device": settings.device,
    "limits": settings.limits,
    "plain": plain,
    "records": wire.kinds_of_records,
    "specification": settings.settings,
    "watch": settings.watch,
    "wifi": wifi,
    "wire": wire.page,
}
