"""A rehearsal: short runs on the user's own data that show what each layout is worth when somebody fails.

One run without a failure; from its half time on, one each with a client lost and with a head lost under every policy.
Rounds that they have in common are trained once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tolfl.core.errors import SpecError
from tolfl.core.spec import RunSpec
from tolfl.datasets import FederatedDataset
from tolfl.experiments.planning.aurocs import Aurocs, Layout, Measurement
from tolfl.experiments.sweep import Job, Sweep, SweepProgress
from tolfl.sim.simulation import datasets_of


class Rehearsal:
    """A rehearsal at work. Iterate to make it go on; `aurocs` is there when the iteration is over.

    >>> spec = RunSpec(data="blobs", devices=4, rounds=4)
    >>> rehearsal = Rehearsal(spec, [Layout(2, "elect"), Layout(2, "drop")])
    >>> sorted({progress.label for progress in rehearsal})
    ['client lost', 'head lost, drop, k = 2', 'head lost, elect, k = 2', 'nobody lost']
    >>> rehearsal.aurocs.source
    'a rehearsal on blobs: 4 rounds with the failure after 2, 1 seed'
    """

    def __init__(
        self, spec: RunSpec, layouts: Sequence[Layout], data: Sequence[FederatedDataset] | None = None
    ) -> None:
        if spec.rounds < 2:
            raise SpecError(
                f"a rehearsal of {spec.rounds} rounds; use at least 2, one before and one after the failure"
            )
        self.spec = spec
        self._half = spec.rounds // 2
        self._cells = {measured: self._cell(*measured) for measured in self._wanted(layouts)}
        self.data = datasets_of(spec) if data is None else list(data)
        self._sweep = Sweep(list(self._cells.values()), data=self.data)

    @property
    def n_cells(self) -> int:
        """How many runs there are to compute."""
        return len(self._cells)

    def __iter__(self) -> Iterator[SweepProgress]:
        """Compute run after run."""
        yield from self._sweep

    def _wanted(self, layouts: Sequence[Layout]) -> list[tuple[str, Layout]]:
        """Return what must be run: the model with its heads alive depends on no layout, `elect` on no k."""
        any_layout = Layout(
            min((layout.clusters for layout in layouts if layout.policy == "elect"), default=1), "elect"
        )
        wanted = [("none", any_layout), ("client", any_layout)]
        for layout in layouts:
            is_client_loss = layout.policy == "drop" and layout.clusters == self.spec.devices
            if not is_client_loss and (layout.policy != "elect" or layout == any_layout):
                wanted.append(("server", layout))
        return wanted

    def _cell(self, scenario: str, layout: Layout) -> Job:
        fail = "" if scenario == "none" else f"{scenario}@{self._half}"
        spec = msgspec.structs.replace(
            self.spec,
            scheme=layout.scheme,
            clusters=layout.clusters,
            fail=fail,
            on_head_failure=layout.policy if scenario == "server" else "",
        )
        labels = {"none": "nobody lost", "client": "client lost"}
        return Job(labels.get(scenario, f"head lost, {layout.policy}, k = {layout.clusters}"), spec)

    @property
    def aurocs(self) -> Aurocs:
        """What was found."""
        found = []
        for (scenario, layout), cell in self._cells.items():
            for one in self._sweep.results[cell.key]:
                summary = one.summary or {"auroc": None}
                if summary["auroc"] is None:
                    raise SpecError(
                        f"data {self.spec.data}: without a test set nobody knows what a model is worth; "
                        "name the column with the classes, or take --auroc-from"
                    )
                policy = layout.policy if scenario == "server" else ""
                seed, auroc = f"seed {summary['seed']}", float(summary["auroc"])
                found.append(Measurement(layout.scheme, policy, scenario, layout.clusters, seed, auroc))
        n = self.spec.repetitions
        source = (
            f"a rehearsal on {self.spec.data}: {self.spec.rounds} rounds with the failure after {self._half}, "
            f"{n} seed{'s' * (n != 1)}"
        )
        return Aurocs(source, self.spec.data, found, self.spec.rounds)
