"""Schemes: all that tells one method from another. One file each, its paper cited on top.

To add one: write the file, put the class into `SCHEMES`, and the contract tests take it up (see CONTRIBUTING).
"""

from tolfl.core.errors import SpecError, UnknownNameError
from tolfl.core.failures import FailurePlan
from tolfl.core.spec import RunSpec
from tolfl.core.topology import Topology
from tolfl.schemes.averaging import FL, SBT, TolFL
from tolfl.schemes.batch import Batch, BatchOfDeviceSize
from tolfl.schemes.plain import PLAIN_BASELINES, PlainBaseline
from tolfl.schemes.scheme import Scheme, Task, Train

__all__ = [
    "PLAIN_BASELINES",
    "SCHEMES",
    "PlainBaseline",
    "Scheme",
    "Task",
    "Train",
    "failure_plan",
    "is_plain",
    "layout",
    "policy",
    "scheme_of",
]

#: The paper's k for its pictures.
_USUAL_CLUSTERS = 5

_ALL: tuple[Scheme, ...] = (TolFL(), FL(), SBT(), Batch(), BatchOfDeviceSize())

#: Every scheme that trains in rounds, by the name that specifications use.
SCHEMES: dict[str, Scheme] = {scheme.name: scheme for scheme in _ALL}


def scheme_of(spec: RunSpec) -> Scheme:
    """Return the scheme of a run."""
    if spec.scheme not in SCHEMES:
        raise UnknownNameError("scheme", spec.scheme, sorted([*SCHEMES, *PLAIN_BASELINES]))
    return SCHEMES[spec.scheme]


def is_plain(spec: RunSpec) -> bool:
    """Tell whether the run is one of the plain baselines, which have no rounds."""
    return spec.scheme in PLAIN_BASELINES


def layout(spec: RunSpec) -> Topology:
    """Return who is in which cluster."""
    asked = min(_USUAL_CLUSTERS, spec.devices) if spec.clusters is None else spec.clusters
    if not spec.topology:
        return Topology.contiguous(spec.devices, scheme_of(spec).n_clusters(asked, spec.devices))
    topology = Topology.parse(spec.topology, spec.devices)
    if scheme_of(spec).n_clusters(topology.n_clusters, spec.devices) != topology.n_clusters:
        raise SpecError(f"topology {spec.topology!r}: scheme {spec.scheme} has a layout of its own; use tol-fl")
    return topology


def policy(spec: RunSpec) -> str:
    """Return what happens when a head dies: `elect`, `drop`, `isolate` or `freeze`."""
    return spec.on_head_failure or scheme_of(spec).default_policy


def failure_plan(spec: RunSpec) -> FailurePlan:
    """Return the failure plan, with names and odds turned into devices and rounds."""
    topology = Topology.contiguous(spec.devices, 1) if is_plain(spec) else layout(spec)
    return FailurePlan.parse(spec.fail, topology, spec.rounds, spec.seed)
