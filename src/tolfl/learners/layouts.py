"""Schemes: which device reports to which, and what follows when a head fails. Data, not behaviour.

Tol-FL, FL and SBT differ in their layout alone: k clusters, one, or one per device. FedGroup, IFCA and FeSEM have one
server in their papers; here they report to one head that another device can replace, and the head of cluster j of the
layout keeps model j.
"""

from __future__ import annotations

from typing import NamedTuple

from tolfl.core.errors import SpecError, UnknownNameError
from tolfl.core.failures import FailurePlan
from tolfl.core.spec import RunSpec
from tolfl.core.topology import Topology, asked_layout

#: Rows of tables that have no rounds and no failures: all rows in one place.
PLAIN = ("mean-vector", "pca-16", "pca-32")


class Scheme(NamedTuple):
    """The layout of a scheme and its policies; the first policy is the default."""

    policies: tuple[str, ...]
    clusters: str = "asked"  #: how many clusters: as many as asked for, "one", or one for "each" device
    is_star: bool = False  #: whether all report to one head, and clusters say who keeps which model


_ANY_LEARNER = ("elect", "drop", "isolate", "freeze")

SCHEMES: dict[str, Scheme] = {
    "tol-fl": Scheme(_ANY_LEARNER),
    "fl": Scheme(("isolate", "freeze", "elect", "drop"), clusters="one"),
    "sbt": Scheme(_ANY_LEARNER, clusters="each"),
    "batch": Scheme(("freeze", "elect", "drop", "isolate"), clusters="one"),
    "batch-small": Scheme(("freeze", "elect", "drop", "isolate"), clusters="one"),
    "fedgroup": Scheme(("strict", "rehome"), is_star=True),
    "ifca": Scheme(("strict", "rehome"), is_star=True),
    "fesem": Scheme(("strict", "rehome"), is_star=True),
}


def is_plain(spec: RunSpec) -> bool:
    """Return whether the run is one of the plain baselines, which have no rounds."""
    return spec.scheme in PLAIN


def scheme_of(spec: RunSpec) -> Scheme:
    """Return what the name of a run's scheme says."""
    if spec.scheme not in SCHEMES:
        raise UnknownNameError("scheme", spec.scheme, sorted([*SCHEMES, *PLAIN]))
    return SCHEMES[spec.scheme]


def n_clusters(spec: RunSpec) -> int:
    """Return the number of clusters that the scheme makes of what the specification asks for."""
    asked = asked_layout(spec).n_clusters
    return {"asked": asked, "one": 1, "each": spec.devices}[scheme_of(spec).clusters]


def layout(spec: RunSpec) -> Topology:
    """Return who is in which cluster; its heads keep the models of schemes with one per cluster."""
    asked, number = asked_layout(spec), n_clusters(spec)
    if number == asked.n_clusters:
        return asked
    if spec.topology:
        raise SpecError(f"topology {spec.topology!r}: scheme {spec.scheme} has a layout of its own; use tol-fl")
    return Topology.contiguous(spec.devices, number)


def wiring(spec: RunSpec) -> Topology:
    """Return whom devices report to: their clusters, or one star."""
    clusters = layout(spec)
    if not scheme_of(spec).is_star:
        return clusters
    return Topology((tuple(device for cluster in clusters.clusters for device in cluster),))


def hosts(spec: RunSpec) -> tuple[int, ...]:
    """Return who keeps which model, where there are several."""
    return tuple(cluster[0] for cluster in asked_layout(spec).clusters) if scheme_of(spec).is_star else ()


def policy(spec: RunSpec) -> str:
    """Return what happens when a head dies: `elect`, `drop`, `isolate`, `freeze`, `strict` or `rehome`."""
    possible = scheme_of(spec).policies
    if spec.on_head_failure and spec.on_head_failure not in possible:
        raise SpecError(
            f"on-head-failure policy {spec.on_head_failure!r} does not apply to {spec.scheme}; "
            f"choose one of: {', '.join(possible)}"
        )
    return spec.on_head_failure or possible[0]


def protocol_policy(spec: RunSpec) -> str:
    """Return what devices do when the head they report to dies; a lost host is the learner's affair."""
    return "elect" if scheme_of(spec).is_star else policy(spec)


def failure_plan(spec: RunSpec, stages: tuple[tuple[str, int], ...] = ()) -> FailurePlan:
    """Return the failure plan, with names, odds and stages turned into devices and rounds."""
    topology = Topology.contiguous(spec.devices, 1) if is_plain(spec) else layout(spec)
    n_rounds = sum(rounds for _, rounds in stages) if stages else spec.rounds
    return FailurePlan.parse(spec.fail, topology, n_rounds, spec.seed, stages)


def check_scheme(spec: RunSpec) -> None:
    """Raise an error where a specification asks a scheme for what it cannot do, or has an impossible plan."""
    if is_plain(spec) and "what" in spec.learn:
        raise SpecError(f"scheme {spec.scheme} is a plain baseline and takes no learner; use tol-fl, fl or sbt")
    if not is_plain(spec):
        policy(spec)
        layout(spec)
    if "what" not in spec.learn:
        failure_plan(spec)
