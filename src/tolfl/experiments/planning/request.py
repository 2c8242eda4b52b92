"""A plan as somebody asks for it: a specification, failures, and numbers for what is not known from the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from tolfl.core.errors import SpecError
from tolfl.core.spec import RunSpec, Timing
from tolfl.datasets import FederatedDataset, check_name
from tolfl.experiments.paper.published import published
from tolfl.experiments.planning.aurocs import aurocs_of_files, aurocs_of_paper
from tolfl.experiments.planning.costs import Network, model_bytes
from tolfl.experiments.planning.odds import FailureOdds
from tolfl.experiments.planning.plan import Plan, Question, layouts_of, make_plan
from tolfl.experiments.planning.rehearsal import Rehearsal
from tolfl.sim.simulation import datasets_of
from tolfl.sim.timeline import training_speeds

#: Of a device, where no data are looked at.
_USUAL_SAMPLES = 900

Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class Request:
    """What a plan is about, until it is known whose data these are."""

    spec: RunSpec  #: devices, rounds, links, timing and model; and the data of a rehearsal
    failures: FailureOdds
    clusters: tuple[int, ...]
    deadline_s: float | None = None
    sizes: tuple[int, ...] | None = None  #: samples for the costs, of all devices or of each; None: the data's
    bandwidth_bps: tuple[float, ...] | None = None  #: of all devices, or of each; None: the specification's
    n_features: int | None = None  #: None: the data's

    def check(self) -> Request:
        """Return the request itself, or say in one sentence what is wrong with it."""
        if self.spec.topology:
            raise SpecError(
                f"topology {self.spec.topology!r}: a plan is about k clusters of neighbouring ids; leave it out"
            )
        if self.n_features is not None and self.n_features < 1:
            raise SpecError(f"features {self.n_features}; use at least 1")
        self.question(1, [1])
        return self

    def looked_up(self, sources: Sequence[str], data: str | None) -> Plan:
        """Plan with AUROCs that are known already: the paper's, or those of files."""
        if "paper" in sources and len(sources) > 1:
            raise SpecError("AUROCs from the paper and from stored results do not mix; take one of them")
        if list(sources) == ["paper"]:
            aurocs = aurocs_of_paper(self.spec.data)
        else:
            aurocs = aurocs_of_files([Path(source) for source in sources], self.spec.devices, data)
        described = published()["data_sets"].get(aurocs.data)
        if self.n_features is None and described is None:
            raise SpecError(f"data {aurocs.data}: say how many features a sample has, with --features")
        n_features = math.prod(described["shape"]) if described else 0
        return make_plan(self.question(n_features, [_USUAL_SAMPLES]), aurocs)

    def rehearsal(self, rounds: int) -> Rehearsal:
        """Return a rehearsal of so many rounds, ready to go."""
        spec = msgspec.structs.replace(self.spec, rounds=rounds).check()
        check_name(spec)
        return Rehearsal(spec, layouts_of(self.clusters), datasets_of(spec))

    def rehearsed(self, rehearsal: Rehearsal) -> Plan:
        """Plan with the AUROCs of a finished rehearsal."""
        data: FederatedDataset = rehearsal.data[0]
        sizes = [data.n_samples(device) for device in range(data.n_devices)]
        return make_plan(self.question(data.n_features, sizes), rehearsal.aurocs)

    def question(self, n_features: int, n_samples: Sequence[int]) -> Question:
        """Return the question, with what was left open taken from the data."""
        spec, links = self.spec, self.spec.links
        sizes = self._one_each("sizes", self.sizes or n_samples)
        per_sample = links.seconds_per_sample * spec.train.epochs
        speeds = training_speeds(links, spec.devices, spec.seed)
        network = Network(
            tuple(per_sample * size / speed for size, speed in zip(sizes, speeds, strict=True)),
            model_bytes(self.n_features or n_features, spec.model),
            tuple(self._one_each("bandwidth", self.bandwidth_bps or [links.bandwidth_bps])),
            links.latency_s,
            Timing.preset(spec.timing).crash_detection_s,
        )
        return Question(network, self.failures, spec.rounds, self.clusters, links.uplink, self.deadline_s)

    def _one_each(self, name: str, values: Sequence[Number]) -> list[Number]:
        """Return one value per device; a single one is for all."""
        n_devices = self.spec.devices
        if len(values) not in (1, n_devices):
            raise SpecError(f"{name}: {len(values)} values for {n_devices} devices; give one for all, or one each")
        if not all(value > 0 for value in values):
            raise SpecError(f"{name} {min(values):g}; use numbers above 0")
        return list(values) * n_devices if len(values) == 1 else list(values)
