"""The ledger of a run: every message that carries a model, its sender and receiver, and the ways to count them.

The paper's table of costs cannot be read in one way, so each accounting of its messages is derived from one ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from tolfl.core.topology import Topology

#: The devices that take part, cluster by cluster, each with its head first.
Clusters = tuple[tuple[int, ...], ...]


class Kind(StrEnum):
    """The kinds of messages that carry a model."""

    REPORT = "report"  #: a member's contribution, to its head
    MEAN = "mean"  #: a running mean, from head to head
    MODEL = "model"  #: a closed round


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message that carries a state, as it was sent."""

    round_index: int
    source: int
    destination: int
    kind: Kind
    n_bytes: int


@dataclass(frozen=True, slots=True)
class QuietRound:
    """All messages of a failure-free round: members to heads, heads to heads, and back to everybody."""

    round_index: int
    up_bytes: int  #: of a contribution
    down_bytes: int  #: of a closed round
    clusters: Clusters

    @property
    def n_bytes(self) -> int:
        """The bytes of its models: from everybody but the closer, and back to them."""
        return (sum(map(len, self.clusters)) - 1) * (self.up_bytes + self.down_bytes)

    def messages(self) -> Iterator[SentMessage]:
        """Yield every message."""
        yield from reports_and_means(self.clusters, self.round_index, self.up_bytes)
        yield from closed_rounds(self.clusters, self.round_index, self.down_bytes)


@dataclass
class Ledger:
    """All messages of a run that carry a model, by round of each history; the small ones are only counted."""

    topology: Topology
    scheme: str
    by_history: dict[str, list[SentMessage]] = field(default_factory=dict)  #: by the history that the round extends
    quiet: dict[str, QuietRound] = field(default_factory=dict)  #: failure-free rounds by history
    _quiet_counts: dict[Clusters, dict[str, int]] = field(default_factory=dict)  #: equal in all rounds of one fleet
    control_messages: int = 0
    control_bytes: int = 0

    def add(self, history: str, entry: SentMessage) -> None:
        """Add one message of the round that extends a history."""
        self.by_history.setdefault(history, []).append(entry)

    @property
    def entries(self) -> Iterable[SentMessage]:
        """Every message, round by round."""
        for one in self.quiet.values():
            yield from one.messages()
        for entries in self.by_history.values():
            yield from entries

    def bytes_of(self, history: str) -> int:
        """Return the bytes of the models moved in a round."""
        quiet, others = self.quiet.get(history), self.by_history.get(history, ())
        return (quiet.n_bytes if quiet is not None else 0) + sum(entry.n_bytes for entry in others)

    def counts(self, history: str) -> dict[str, int]:
        """Return the messages of a round under every accounting (docs/reference/run-directory.md).

        `unicast`: each one. `broadcast`: the new model goes out once, for everybody. `per_cluster`: once per cluster.
        `hops`: members up and down, heads only hop. `paper`: the reading under which the paper's 20 : 9 : 15 comes
        out for N = 10, k = 5: FL with a server outside the fleet, SBT without distribution, Tol-FL with one broadcast
        among its heads.
        """
        quiet, others = self.quiet.get(history), self.by_history.get(history, [])
        if quiet is None:
            return self._counted(others)
        if others:  # a device that comes back is sent the record of a failure-free round, too
            return self._counted([*quiet.messages(), *others])
        if quiet.clusters not in self._quiet_counts:
            self._quiet_counts[quiet.clusters] = self._counted(list(quiet.messages()))
        return self._quiet_counts[quiet.clusters]

    def _counted(self, entries: Sequence[SentMessage]) -> dict[str, int]:
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
            "paper": hops + (self._paper_extra if entries else 0),
        }

    @property
    def _paper_extra(self) -> int:
        return {"fl": 2, "sbt": 0}.get(self.scheme, 1)

    def totals(self) -> dict[str, int]:
        """Return the messages of the whole run under every accounting."""
        totals: dict[str, int] = dict.fromkeys(("unicast", "broadcast", "per_cluster", "hops", "paper"), 0)
        for history in {**self.quiet, **self.by_history}:
            for name, count in self.counts(history).items():
                totals[name] += count
        return totals

    @property
    def total_bytes(self) -> int:
        """The bytes of all models moved."""
        return sum(map(self.bytes_of, {**self.quiet, **self.by_history}))


def reports_and_means(clusters: Clusters, round_index: int, n_bytes: int) -> Iterator[SentMessage]:
    """Yield the contributions of a failure-free round: members to their head, heads to the next."""
    for head, *members in clusters:
        yield from (SentMessage(round_index, member, head, Kind.REPORT, n_bytes) for member in members)
    for (head, *_), (following, *_) in pairwise(clusters):
        yield SentMessage(round_index, head, following, Kind.MEAN, n_bytes)


def closed_rounds(clusters: Clusters, round_index: int, n_bytes: int) -> Iterator[SentMessage]:
    """Yield the distribution of the closed round: the last head to all heads, each head to its members."""
    closer = clusters[-1][0]
    yield from (SentMessage(round_index, closer, head, Kind.MODEL, n_bytes) for head, *_ in clusters[:-1])
    for head, *members in clusters:
        yield from (SentMessage(round_index, head, member, Kind.MODEL, n_bytes) for member in members)
