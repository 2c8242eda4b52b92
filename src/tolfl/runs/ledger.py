"""Who sent what to whom: every message that carries a model, and the ways to count them.

The paper's table of costs cannot be read in one way, so each accounting of its messages is derived from one ledger.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from tolfl.core.topology import Topology


class Kind(StrEnum):
    """What a message with a model inside is."""

    REPORT = "report"  #: a member's contribution, to its head
    MEAN = "mean"  #: a running mean, from head to head
    MODEL = "model"  #: a closed round


@dataclass(frozen=True, slots=True)
class Entry:
    """One message."""

    round_index: int
    source: int
    destination: int
    kind: Kind
    n_bytes: int


@dataclass
class Ledger:
    """All messages of a run that carry a model, by round of each history; the small ones are only counted."""

    topology: Topology
    scheme: str
    by_history: dict[str, list[Entry]] = field(default_factory=dict)  #: by the history that the round extends
    control_messages: int = 0
    control_bytes: int = 0

    def add(self, history: str, entry: Entry) -> None:
        """Write down one message of the round that extends a history."""
        self.by_history.setdefault(history, []).append(entry)

    @property
    def entries(self) -> Iterable[Entry]:
        """Every message, round by round."""
        return (entry for entries in self.by_history.values() for entry in entries)

    def bytes_of(self, history: str) -> int:
        """Return the bytes of the models moved in a round."""
        return sum(entry.n_bytes for entry in self.by_history.get(history, ()))

    def counts(self, history: str) -> dict[str, int]:
        """Return the messages of a round under every accounting (docs/reference/run-directory.md).

        `unicast`: each one. `broadcast`: the new model goes out once, for everybody. `per_cluster`: once per cluster.
        `hops`: members up and down, heads only hop. `paper`: the reading under which the paper's 20 : 9 : 15 comes
        out for N = 10, k = 5: FL with a server outside the fleet, SBT without distribution, Tol-FL with one broadcast
        among its heads.
        """
        entries = self.by_history.get(history, [])
        cluster = self.topology.cluster_of
        up = sum(entry.kind is not Kind.MODEL for entry in entries)
        down = [entry for entry in entries if entry.kind is Kind.MODEL]
        to_members = sum(cluster[entry.source] == cluster[entry.destination] for entry in down)
        clusters_served = {cluster[entry.destination] for entry in down} | {cluster[entry.source] for entry in down}
        hops = up + to_members
        return {
            "unicast": len(entries),
            "broadcast": up + bool(down),
            "per_cluster": up + len(clusters_served),
            "hops": hops,
            "paper": hops + self._paper_extra(bool(entries)),
        }

    def _paper_extra(self, any_sent: bool) -> int:
        if not any_sent:
            return 0
        return {"fl": 2, "sbt": 0}.get(self.scheme, 1)

    def totals(self) -> dict[str, int]:
        """Return the messages of the whole run under every accounting."""
        totals: dict[str, int] = dict.fromkeys(("unicast", "broadcast", "per_cluster", "hops", "paper"), 0)
        for history in self.by_history:
            for name, count in self.counts(history).items():
                totals[name] += count
        return totals

    @property
    def total_bytes(self) -> int:
        """The bytes of all models moved."""
        return sum(entry.n_bytes for entry in self.entries)
