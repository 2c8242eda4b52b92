"""Where a sweep is computed: here, or spread over a Ray cluster, with the same rows.

Ray gets one task per trunk (`sweep.groups`): the specifications as JSON, and the files of finished cells come back as
bytes. Nothing is pickled by us, no shared folder is needed, and a task whose worker dies is started again by Ray.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from tolfl.core.errors import SpecError
from tolfl.core.spec import RunSpec
from tolfl.experiments.steps import Step
from tolfl.experiments.sweep import Cell, Sweep, groups, read_finished
from tolfl.runs.directory import write_file

#: A worker that dies is replaced so often; a task that fails because of its data is not repeated.
_RETRIES = 5


class Place(Protocol):
    """Somewhere to compute a sweep."""

    def compute(self, sweep: Sweep) -> Iterator[Step]:
        """Compute what is missing; the sweep's summaries are filled when the iteration is over."""


def place_of(text: str) -> Place | None:
    """Read `local`, `ray` or `ray:ADDRESS`; None is here.

    >>> place_of("local") is None
    True
    """
    if text == "local":
        return None
    kind, _, address = text.partition(":")
    if kind != "ray":
        raise SpecError(f"--on {text}: say local, ray (this machine) or ray:ADDRESS (a cluster)")
    return OnRay(address)


class OnRay:
    """A Ray cluster; without an address, one that is started here and ends with the sweep."""

    def __init__(self, address: str = "") -> None:
        try:
            import ray  # noqa: PLC0415  (an extra)
        except ImportError:
            raise SpecError("--on ray needs Ray; install it with: pip install 'tolfl[ray]'") from None
        self._ray: Any = ray
        self._address = address

    def compute(self, sweep: Sweep) -> Iterator[Step]:
        """Compute trunks on as many workers as there are."""
        missing = [[cell for cell in group if not sweep.is_finished(cell)] for group in groups(sweep.cells)]
        todo = [group for group in missing if group]
        total, done = len(sweep.cells), len(sweep.cells) - sum(len(group) for group in todo)
        if not todo:
            return
        ray = self._ray
        is_ours = not ray.is_initialized()
        if is_ours:
            ray.init(self._address or "local", logging_level="error", log_to_driver=False)
        try:
            task = ray.remote(num_cpus=1, max_retries=_RETRIES)(compute_group)
            data_dir = os.environ.get("TOLFL_DATA", "")
            waiting = {task.remote([_as_json(cell) for cell in group], data_dir): group for group in todo}
            while waiting:
                ready, _ = ray.wait(list(waiting), num_returns=1)
                group = waiting.pop(ready[0])
                take_in(sweep, group, ray.get(ready[0]))
                done += len(group)
                yield Step(group[-1].label, done, total)
        finally:
            if is_ours:
                ray.shutdown()


def _as_json(cell: Cell) -> bytes:
    return msgspec.json.encode({"label": cell.label, "folder": cell.name, "spec": cell.spec})


def compute_group(cells: list[bytes], data_dir: str) -> dict[str, bytes]:
    """Compute the cells of one trunk in a folder of its own; return what they left, but for models and checkpoints."""
    if data_dir:
        os.environ.setdefault("TOLFL_DATA", data_dir)
    fields = [msgspec.json.decode(cell) for cell in cells]
    asked = [Cell(one["label"], RunSpec.from_fields(one["spec"]), one["folder"]) for one in fields]
    with tempfile.TemporaryDirectory(prefix="tolfl-") as folder:
        store = Path(folder)
        for _ in Sweep(asked, store):
            pass
        kept = [path for path in sorted(store.rglob("*")) if path.suffix in (".toml", ".jsonl", ".json")]
        return {str(path.relative_to(store)): path.read_bytes() for path in kept}


def take_in(sweep: Sweep, group: list[Cell], files: Mapping[str, bytes]) -> None:
    """Add what a worker computed to the sweep, and to its store if it has one; summaries last, they say finished."""
    with tempfile.TemporaryDirectory(prefix="tolfl-") as scratch:
        store = sweep.store or Path(scratch)
        for name in sorted(files, key=lambda name: (name.count("/") == 1 and name.endswith("summary.json"), name)):
            write_file(store, name, files[name])
        for cell in group:
            finished = read_finished(store / cell.name, cell.spec)
            if finished is None:
                raise SpecError(f"{cell.label}: a worker sent no result; compute it here, with --on local")
            sweep.summaries[cell.key] = finished
