"""Many runs that have rounds in common: these are trained once, and what is finished on disk is not computed again.

Rounds before the first failure are the same whatever follows it, and for Tol-FL, FL and SBT they are the same models
whatever the number of clusters (docs/decisions/0008). Repetitions of one specification are computed as one batch.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import msgspec

from tolfl.core.errors import RunDirectoryError
from tolfl.core.spec import RunSpec
from tolfl.datasets import FederatedDataset
from tolfl.learners.layouts import failure_plan, is_plain
from tolfl.learners.training import Model
from tolfl.runs.checkpoint import Checkpoint
from tolfl.runs.directory import write_file
from tolfl.runs.write_lock import WriteLock
from tolfl.sim.simulation import Progress, Runs, datasets_of, repetitions_of

Summaries = list[dict[str, Any]]  #: one per repetition


#: How often another process is asked whether it is done.
_WAIT_S = 0.5
#: Fields that came when results were stored already, and change nothing unless they are set.
_ADDED_LATER = ("dataset.window_s", "defence", "liars", "learn")


def spec_hash(spec: RunSpec) -> str:
    """Return the name under which a specification's results are kept; where its data lie is not part of it."""
    without_place = msgspec.structs.replace(spec, dataset=msgspec.structs.replace(spec.dataset, dir=""))
    fields, usual = msgspec.toml.decode(without_place.to_toml()), msgspec.toml.decode(RunSpec().to_toml())
    for name in _ADDED_LATER:
        *sections, last = name.split(".")
        place = reduce(dict.__getitem__, sections, fields)
        if last in place and place[last] == reduce(dict.__getitem__, [*sections, last], usual):
            del place[last]
    return hashlib.sha256(msgspec.toml.encode(fields)).hexdigest()[:16]


@dataclass(frozen=True)
class Cell:
    """One specification to be computed, with all its repetitions."""

    label: str
    spec: RunSpec
    folder: str = ""  #: its run directory; empty: named by scheme, policy and the hash of the specification

    @property
    def key(self) -> str:
        """The name of its results."""
        return spec_hash(self.spec)

    @property
    def name(self) -> str:
        """The name of its run directory."""
        parts = (Path(self.spec.data).stem, self.spec.scheme, self.spec.on_head_failure, self.key)
        return self.folder or "-".join(filter(None, parts))

    @property
    def shared_rounds(self) -> int:
        """How many rounds nobody's failure can have touched, in any repetition.

        The last round before a failure is not among them: where a model takes longer to arrive than a death to be
        noticed, survivors give up on it.
        """
        if is_plain(self.spec):
            return 0
        firsts = [failure_plan(one).first_round for one in repetitions_of(self.spec)]
        return min(self.spec.rounds if first is None else max(0, first - 1) for first in firsts)

    @property
    def trunk(self) -> str:
        """A name that is common to all specifications with the same models until somebody fails."""
        same = msgspec.structs.replace(self.spec, fail="", on_head_failure="", lost_model="lost")
        # In a layout of one's own devices are added in another order; who is late depends on the layout, and so does
        # what a robust rule makes of a cluster.
        depends = same.topology or same.deadline_s is not None or same.defence.depends_on_layout
        if not is_plain(same) and not depends:
            # Tol-FL, FL and SBT compute the same model as long as nobody fails.
            family = "averaging" if same.scheme in {"tol-fl", "fl", "sbt"} else same.scheme
            same = msgspec.structs.replace(same, scheme=family)
            if family == "averaging":
                same = msgspec.structs.replace(same, clusters=None)
        return spec_hash(same)


@dataclass(frozen=True)
class SweepProgress:
    """How far a sweep is."""

    label: str
    cells_done: int
    n_cells: int
    run: Progress


class Sweep:
    """Cells at work. Iterate to make them go on; what an earlier attempt left in `store` is used.

    >>> clean = RunSpec(data="blobs", devices=4, clusters=2, rounds=4)
    >>> failing = msgspec.structs.replace(clean, fail="server@2")
    >>> sweep = Sweep([Cell("clean", clean), Cell("failing", failing)])
    >>> len(list(sweep))  # four rounds of the first, and the last three of the second
    7
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        store: Path | None = None,
        data: FederatedDataset | Sequence[FederatedDataset] | None = None,
        model: Model | None = None,
    ) -> None:
        self.cells, self.store = list(cells), store
        self.summaries: dict[str, Summaries] = {}  #: by key of a cell
        self._data, self._model = data, model
        self._runs: Runs | None = None
        self._prefixes: dict[int, list[Checkpoint]] = {}  #: of the trunk at hand, by rounds done

    def __iter__(self) -> Iterator[SweepProgress]:
        """Compute cell after cell, those with rounds in common one after the other."""
        found = groups(self.cells)
        done, total = 0, sum(map(len, found))
        for group in found:
            turn = self._turn(group[0])
            while not all(map(self.is_finished, group)) and not turn.take():
                waiting = Progress(0, group[0].spec.rounds, None)
                yield SweepProgress(f"{group[0].label} (another process is at it)", done, total, waiting)
                time.sleep(_WAIT_S)
            try:
                for progress in self._compute_group(group):
                    yield SweepProgress(progress.label, done + progress.cells_done, total, progress.run)
            finally:
                turn.give_back()
            done += len(group)
        self._prefixes = {}

    def _compute_group(self, group: Sequence[Cell]) -> Iterator[SweepProgress]:
        missing = [cell for cell in group if not self.is_finished(cell)]
        datasets = datasets_of(missing[0].spec, self._data) if missing else []
        self._prefixes = self._stored_prefixes(group[0]) if missing else {}
        rounds = {cell.shared_rounds for cell in group}
        done = len(group) - len(missing)
        for place, cell in enumerate(missing):
            for progress in self._compute(cell, datasets, rounds):
                yield SweepProgress(cell.label, done + place, len(group), progress)

    def _compute(self, cell: Cell, datasets: list[FederatedDataset], wanted: set[int]) -> Iterator[Progress]:
        shared = cell.shared_rounds
        usable = [rounds for rounds in self._prefixes if rounds <= shared]
        known = self._prefixes[max(usable)] if usable else None
        out = None if self.store is None else self.store / cell.name
        self._runs = runs = Runs(cell.spec, datasets, self._model, out, resume=True, known=known)
        for progress in runs:
            if progress.rounds_done in wanted - set(self._prefixes) and progress.rounds_done <= shared:
                self._keep_prefix(cell, progress.rounds_done, runs.checkpoints())
            yield progress
        self._runs = None
        self.summaries[cell.key] = [result.summary for result in runs.results]

    def save_checkpoints(self) -> None:
        """Keep on disk what is needed to go on later."""
        if self._runs is not None:
            self._runs.save_checkpoints()

    @property
    def computing_s(self) -> float:
        """How long the finished cells took, whenever they were computed; rounds that they share count once."""
        return sum(
            float(self.summaries[cell.key][0]["seconds_per_round"])
            * (cell.spec.rounds - (0 if cell is group[0] else cell.shared_rounds))
            for group in groups(self.cells)
            for cell in group
            if cell.key in self.summaries
        )

    def _turn(self, cell: Cell) -> WriteLock:
        """Return the right to compute a trunk, which processes with the same store have one after the other."""
        return WriteLock(None if self.store is None else self.store / "shared" / f"{cell.trunk}.turn")

    # -- on disk ------------------------------------------------------------------------------------------------

    def is_finished(self, cell: Cell) -> bool:
        """Tell whether a cell has its results, from this attempt or an earlier one."""
        if cell.key not in self.summaries and self.store is not None:
            finished = read_finished(self.store / cell.name, cell.spec)
            if finished is not None:
                self.summaries[cell.key] = finished
        return cell.key in self.summaries

    def _keep_prefix(self, cell: Cell, rounds: int, prefix: list[Checkpoint]) -> None:
        self._prefixes[rounds] = prefix
        if self.store is not None:
            for index, checkpoint in enumerate(prefix):
                write_file(self.store / "shared", _prefix_file(cell, rounds, index), checkpoint.to_bytes())

    def _stored_prefixes(self, cell: Cell) -> dict[int, list[Checkpoint]]:
        if self.store is None:
            return {}
        found = {}
        for path in sorted((self.store / "shared").glob(f"{cell.trunk}-*-0.safetensors")):
            rounds = int(path.name.split("-")[1])
            paths = [path.with_name(_prefix_file(cell, rounds, index)) for index in range(cell.spec.repetitions)]
            if all(one.is_file() for one in paths):
                found[rounds] = [Checkpoint.read(one) for one in paths]
        return found


def groups(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Return cells by trunk, in order of appearance; of each, those that go furthest without a failure first."""
    by_trunk: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        by_trunk.setdefault(cell.trunk, {}).setdefault(cell.key, cell)
    return [sorted(group.values(), key=lambda cell: -cell.shared_rounds) for group in by_trunk.values()]


def read_finished(folder: Path, spec: RunSpec) -> Summaries | None:
    """Return the summaries of a finished cell; None if it is not finished, or was made from another specification."""
    path = folder / "summary.json"
    if not path.is_file() or spec_hash(RunSpec.from_file(folder / "spec.toml")) != spec_hash(spec):
        return None
    try:
        summary: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise RunDirectoryError(path, f"cannot be read ({error}); delete its folder to compute it again") from None
    return summary.get("repetitions") or [summary]


def _prefix_file(cell: Cell, rounds: int, index: int) -> str:
    return f"{cell.trunk}-{rounds}-{index}.safetensors"
