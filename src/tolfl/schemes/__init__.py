"""Schemes: all that tells one method from another. One file each, its paper cited on top.

To add one: write the file, put the class into `SCHEMES`, and the contract tests take it up (see CONTRIBUTING).
"""

from collections.abc import Callable

from tolfl.core.errors import SpecError, UnknownNameError
from tolfl.core.failures import FailurePlan
from tolfl.core.spec import RunSpec
from tolfl.core.topology import Topology, asked_layout
from tolfl.schemes.averaging import FL, SBT, TolFL
from tolfl.schemes.batch import Batch, BatchOfDeviceSize
from tolfl.schemes.fedgroup import FedGroup
from tolfl.schemes.fesem import FeSEM
from tolfl.schemes.ifca import IFCA
from tolfl.schemes.plain import PLAIN_BASELINES, PlainBaseline
from tolfl.schemes.scheme import Applied, Closing, Scheme, Served, Task, Train

__all__ = [
    "PLAIN_BASELINES",
    "SCHEMES",
    "Applied",
    "Closing",
    "PlainBaseline",
    "Scheme",
    "Served",
    "Task",
    "Train",
    "asked_layout",
    "check_scheme",
    "failure_plan",
    "is_plain",
    "layout",
    "policy",
    "scheme_of",
]

#: Every scheme that trains in rounds, by the name that specifications use; made from the specification of a run.
SCHEMES: dict[str, Callable[[RunSpec], Scheme]] = {
    kind.name: kind for kind in (TolFL, FL, SBT, Batch, BatchOfDeviceSize, FedGroup, IFCA, FeSEM)
}


def scheme_of(spec: RunSpec) -> Scheme:
    """Return the scheme of a run."""
    if spec.scheme not in SCHEMES:
        raise UnknownNameError("scheme", spec.scheme, sorted([*SCHEMES, *PLAIN_BASELINES]))
    return SCHEMES[spec.scheme](spec)


def is_plain(spec: RunSpec) -> bool:
    """Tell whether the run is one of the plain baselines, which have no rounds."""
    return spec.scheme in PLAIN_BASELINES


def layout(spec: RunSpec) -> Topology:
    """Return who is in which cluster; its heads keep the models of schemes with one per cluster."""
    asked = asked_layout(spec)
    n_clusters = scheme_of(spec).n_clusters(asked.n_clusters, spec.devices)
    if n_clusters == asked.n_clusters:
        return asked
    if spec.topology:
        raise SpecError(f"topology {spec.topology!r}: scheme {spec.scheme} has a layout of its own; use tol-fl")
    return Topology.contiguous(spec.devices, n_clusters)


def policy(spec: RunSpec) -> str:
    """Return what happens when a head dies: `elect`, `drop`, `isolate`, `freeze`, `strict` or `rehome`."""
    possible = scheme_of(spec).policies
    if spec.on_head_failure and spec.on_head_failure not in possible:
        raise SpecError(
            f"on-head-failure policy {spec.on_head_failure!r} means nothing to {spec.scheme}; "
            f"choose one of: {', '.join(possible)}"
        )
    return spec.on_head_failure or possible[0]


def check_scheme(spec: RunSpec) -> None:
    """Raise an error where a specification asks a scheme for what it cannot do, or has an impossible plan."""
    failure_plan(spec)
    if not is_plain(spec):
        policy(spec)


def failure_plan(spec: RunSpec) -> FailurePlan:
    """Return the failure plan, with names and odds turned into devices and rounds."""
    topology = Topology.contiguous(spec.devices, 1) if is_plain(spec) else layout(spec)
    return FailurePlan.parse(spec.fail, topology, spec.rounds, spec.seed)
