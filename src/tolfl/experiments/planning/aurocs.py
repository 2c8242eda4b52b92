"""What a layout's detector is worth when nobody fails, when a client does and when a head does.

The numbers come from the paper, from stored results or from a rehearsal (`planning_rehearsal`). What was not measured
is borrowed only where the two are known to be equal, and every loan is named.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tolfl.core.errors import SpecError, UnknownNameError
from tolfl.experiments.paper.published import published
from tolfl.experiments.planning.odds import SCENARIOS

_AVERAGING = ("tol-fl", "sbt", "fl")
_PAPERS_REPETITIONS = 10


@dataclass(frozen=True)
class Layout:
    """Who reports to whom, and what follows when a head dies."""

    clusters: int
    policy: str  #: `elect` or `drop` of Tol-FL, `isolate` or `freeze` of FL

    @property
    def scheme(self) -> str:
        """The name of its scheme: FL with the policies that FL has, else Tol-FL, the chain (k = N) included."""
        return "fl" if self.policy in ("isolate", "freeze") else "tol-fl"

    def __str__(self) -> str:
        """Name it as the table does."""
        return f"{self.scheme} ({self.policy}), k = {self.clusters}"


@dataclass(frozen=True)
class Measurement:
    """One AUROC of one run."""

    scheme: str
    policy: str
    scenario: str  #: one of SCENARIOS
    clusters: int | None  #: None: it is not known, so it stands for every k
    repetition: str  #: seed and split; runs with the same one had the same data
    auroc: float
    error: float = 0.0  #: its standard error, where it is a mean over repetitions that are not known one by one


@dataclass(frozen=True)
class Worth:
    """AUROCs of one layout by scenario and repetition, and where those came from that are not its own."""

    values: Mapping[str, Mapping[str, float]]
    borrowed: Mapping[str, str] = field(default_factory=dict)  #: by scenario
    errors: Mapping[str, float] = field(default_factory=dict)  #: standard errors by scenario, where only they are known

    def mean(self, scenario: str) -> float:
        """Return the mean AUROC of a scenario."""
        return statistics.fmean(self.values[scenario].values())

    def error(self, odds: Mapping[str, float]) -> float:
        """Return the standard error of the expected AUROC that comes from means over unknown repetitions."""
        return math.hypot(*(odds[scenario] * error for scenario, error in self.errors.items()))

    def by_repetition(self, odds: Mapping[str, float]) -> dict[str, float]:
        """Return the expected AUROC of every repetition in which all scenarios were run."""
        common = [one for one in self.values["none"] if all(one in self.values[s] for s in SCENARIOS)]
        return {one: sum(odds[s] * self.values[s][one] for s in SCENARIOS) for one in common}


@dataclass(frozen=True)
class Aurocs:
    """All that is known of layouts, and where from."""

    source: str  #: a sentence for the reader
    data: str
    measurements: Sequence[Measurement]
    rehearsed_rounds: int | None = None  #: None: not from a rehearsal

    def worth(self, layout: Layout, n_devices: int) -> Worth | None:
        """Return what a layout is worth; None where a scenario was neither measured nor can be borrowed."""
        values, borrowed, errors = {}, {}, {}
        for scenario in SCENARIOS:
            found, why = self._find(layout, n_devices, scenario)
            if not found:
                return None
            values[scenario] = {one.repetition: one.auroc for one in found}
            if why:
                borrowed[scenario] = why
            if found[0].error:
                errors[scenario] = found[0].error
        return Worth(values, borrowed, errors)

    def _find(self, layout: Layout, n_devices: int, scenario: str) -> tuple[list[Measurement], str]:
        """Return the first of the sources of a number that has it, and why it may be used."""
        for take, why in _sources(layout, n_devices, scenario):
            taken = [one for one in self.measurements if take(one)]
            clusters = {one.clusters for one in taken}
            if taken:  # of several k that would do, one: a mean over k would count repetitions twice
                k = layout.clusters if layout.clusters in clusters else min(clusters, key=lambda k: k or 0)
                return [one for one in taken if one.clusters == k], why
        return [], ""


def _sources(layout: Layout, n_devices: int, scenario: str) -> list[tuple[Callable[[Measurement], bool], str]]:
    """Return where a number may come from, best first: its own runs, then runs that are known to give the same."""
    k = layout.clusters

    def lost(scenario: str, schemes: Sequence[str], fits: Callable[[Measurement], bool]) -> Callable[..., bool]:
        return lambda one: one.scenario == scenario and one.scheme in schemes and fits(one)

    def own_k(one: Measurement) -> bool:
        return one.clusters in (k, None)

    own = (layout.scheme, "sbt") if k == n_devices and layout.scheme == "tol-fl" else (layout.scheme,)
    if scenario != "server":
        same = "while all heads live, no layout changes the model"
        anywhere = [
            (lost(scenario, (layout.scheme,), lambda _: True), same),
            (lost(scenario, _AVERAGING, lambda _: True), same),
        ]
        return [(lost(scenario, own, own_k), ""), *anywhere]
    measured = [(lost("server", own, lambda one: own_k(one) and one.policy == layout.policy), "")]
    as_client = lost("client", _AVERAGING, lambda _: True)
    own_client = lost("client", (layout.scheme,), lambda _: True)
    if layout.policy == "elect":
        elected = lost("server", _AVERAGING, lambda one: one.policy == "elect")
        loan = "with elect, a lost head costs what a lost client costs"
        return [*measured, (elected, "with elect, k changes nothing"), (own_client, loan), (as_client, loan)]
    if layout.policy == "drop" and k == n_devices:
        loan = "a cluster of one loses nobody but its head"
        # Its own measurement must be of this very k: one of unknown k is of clusters with members.
        exact = lost("server", own, lambda one: one.clusters == k)
        return [(exact, ""), (own_client, loan), (as_client, loan)]
    return measured


# -- the paper ----------------------------------------------------------------------------------------------------


def aurocs_of_paper(data: str) -> Aurocs:
    """Return the paper's AUROCs, means over ten repetitions; it names neither N nor k.

    Its FL isolates its devices when the server is lost, its Tol-FL drops the cluster of a lost head.
    """
    tables = published()["auroc"]
    if data not in tables["none"]:
        raise UnknownNameError("data set of the paper", data, sorted(tables["none"]))
    policies = {"fl": "isolate", "tol-fl": "drop"}
    found = []
    for scenario, by_data in tables.items():
        for scheme, policy in policies.items():
            mean, spread = by_data[data][scheme]
            policy_shown = policy if scenario == "server" else ""
            error = spread / math.sqrt(_PAPERS_REPETITIONS)
            found.append(Measurement(scheme, policy_shown, scenario, None, "paper", mean, error))
    return Aurocs(f"the paper's tables for {data}, one number for every N and k", data, found)


# -- stored results -----------------------------------------------------------------------------------------------


class _StoredRow(msgspec.Struct):
    """A row of a file of results; what is not named here does not matter."""

    data: str
    scheme: str
    scenario: str
    devices: int
    auroc: float | None
    policy: str = ""
    clusters: int | None = None
    rounds: int = 0
    split: int | str | None = None
    seed: int | str | None = None
    question: str = ""  #: of `reproduce beyond`

    @property
    def is_of_use(self) -> bool:
        """Whether it is a run with one of the three scenarios; beyond the paper, those with a head lost for every k."""
        return self.scheme in _AVERAGING and self.auroc is not None and self.question in ("", "clusters")


class _StoredFile(msgspec.Struct):
    rows: list[_StoredRow]


def aurocs_of_files(paths: Sequence[Path], n_devices: int, data: str | None = None) -> Aurocs:
    """Return the AUROCs of stored results; of their data set, if there is but one, or of the one named."""
    files = ", ".join(map(str, paths))
    rows = [row for path in paths for row in _read(path) if row.is_of_use]
    name = _one(f"results {files}", "data set", "--data", {row.data for row in rows}, data)
    rows = [row for row in rows if row.data == name]
    _one(f"results {files}", "number of devices", "--devices", {row.devices for row in rows}, n_devices)
    rows = [row for row in rows if row.devices == n_devices]
    lengths = sorted({row.rounds for row in rows})
    if len(lengths) > 1:
        raise SpecError(f"results {files}: runs of {lengths[0]} and of {lengths[-1]} rounds; give files of one length")
    found = [_measured(row, files) for row in rows]
    n_repetitions = len({one.repetition for one in found})
    source = f"stored results on {name} ({files}): {n_repetitions} repetitions of {lengths[0]} rounds"
    return Aurocs(source, name, found)


def _read(path: Path) -> list[_StoredRow]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_StoredFile).rows
    except OSError as error:
        raise SpecError(f"results {path} cannot be read ({error.strerror}); give a JSON file with rows") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"results {path}: not a file of results ({error})") from None


def _one(source: str, what: str, flag: str, known: set[Any], asked: Any) -> Any:
    """Return which data set or fleet is meant: the one asked for, or the only one there is."""
    shown = ", ".join(map(str, sorted(known)))
    if not known:
        raise SpecError(f"{source}: no row of tol-fl, fl or sbt with an AUROC; give other files, or simulate")
    if asked is None and len(known) > 1:
        raise SpecError(f"{source}: more than one {what}; choose with {flag}: {shown}")
    if asked is not None and asked not in known:
        raise SpecError(f"{source}: no row for the {what} {asked}; use {flag} {shown}, or leave out --auroc-from")
    return next(iter(known)) if asked is None else asked


def _measured(row: _StoredRow, files: str) -> Measurement:
    scenario = {"clean": "none", "beyond": "server"}.get(row.scenario, row.scenario)
    if scenario not in SCENARIOS:
        raise SpecError(f"results {files}: unknown scenario {row.scenario!r}; use clean, client or server")
    clusters = {"fl": 1, "sbt": row.devices}.get(row.scheme, row.clusters)
    assert row.auroc is not None
    return Measurement(row.scheme, row.policy, scenario, clusters, f"{row.split}/{row.seed}", row.auroc)
