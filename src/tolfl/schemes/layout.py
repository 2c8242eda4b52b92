"""Who is in which cluster, as a specification asks for it."""

from __future__ import annotations

from tolfl.core.spec import RunSpec
from tolfl.core.topology import Topology

#: The paper's k for its pictures.
_USUAL_CLUSTERS = 5


def asked_layout(spec: RunSpec) -> Topology:
    """Return the clusters that a specification asks for, whatever the scheme makes of them."""
    if spec.topology:
        return Topology.parse(spec.topology, spec.devices)
    asked = min(_USUAL_CLUSTERS, spec.devices) if spec.clusters is None else spec.clusters
    return Topology.contiguous(spec.devices, asked)
