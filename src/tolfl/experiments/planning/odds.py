"""How likely it is that nobody fails, that a client does, that a head does: four ways to say so.

With N devices in k clusters, k of the devices are heads: the more clusters, the more often a failure is that of a head.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tolfl.core.errors import SpecError

#: What may happen in a training, as exclusive cases: nobody fails, only clients do, a head does.
SCENARIOS = ("none", "client", "server")


@dataclass(frozen=True)
class Odds:
    """The probability of each scenario, and how many devices of each role are lost on average."""

    none: float
    client: float
    server: float
    clients_lost: float
    heads_lost: float
    several: float = 0.0  #: the probability of more than one failure; their scenario is that of the worst one

    def of(self, scenario: str) -> float:
        """Return the probability of a scenario."""
        return {"none": self.none, "client": self.client, "server": self.server}[scenario]


def expected_performance(by_scenario: Mapping[str, float], odds: Mapping[str, float]) -> float:
    """Return the mean performance over exclusive scenarios whose odds add up to one.

    >>> odds = {"none": 0.90, "client": 0.08, "server": 0.02}
    >>> round(expected_performance({"none": 0.80, "client": 0.79, "server": 0.64}, odds), 4)
    0.796
    """
    if not math.isclose(sum(odds.values()), 1.0, abs_tol=1e-9):
        raise ValueError(f"the odds add up to {sum(odds.values()):g}; they must add up to 1")
    return math.fsum(odds[scenario] * by_scenario[scenario] for scenario in odds)


class FailureOdds(Protocol):
    """Failures as a planner knows them."""

    @property
    def what(self) -> str:
        """Say it in half a sentence."""

    def odds(self, n_devices: int, n_clusters: int, training_s: float) -> Odds:
        """Return the odds of a layout whose training takes so long."""


@dataclass(frozen=True)
class GivenOdds:
    """The same odds of the three scenarios for every layout: the paper's reading, blind to how many heads there are.

    >>> GivenOdds(0.90, 0.08, 0.02).odds(10, 5, 0.0).server
    0.02
    """

    none: float
    client: float
    server: float

    def __post_init__(self) -> None:
        given = (self.none, self.client, self.server)
        shown = ", ".join(f"{value:g}" for value in given)
        if not all(0 <= value <= 1 for value in given):
            raise SpecError(f"odds {shown}: each must be a probability, from 0 to 1")
        if not math.isclose(sum(given), 1.0, abs_tol=1e-9):
            raise SpecError(f"odds {shown} add up to {sum(given):g}; those of none, client and server must make 1")

    @property
    def what(self) -> str:
        """Say it in half a sentence."""
        return (
            f"nobody fails with probability {self.none:g}, one client {self.client:g}, one head {self.server:g}, "
            "the same for every k"
        )

    def odds(self, n_devices: int, n_clusters: int, training_s: float) -> Odds:  # noqa: ARG002  (others look at them)
        """Return what was given."""
        return Odds(self.none, self.client, self.server, self.client, self.server)


@dataclass(frozen=True)
class OneOfAll:
    """Exactly one device fails, and each is as likely as any other: a head with k / N.

    >>> OneOfAll().odds(n_devices=10, n_clusters=3, training_s=0.0).server
    0.3
    """

    what: str = "exactly one device fails, any of them alike: a head with k / N"

    def odds(self, n_devices: int, n_clusters: int, training_s: float) -> Odds:  # noqa: ARG002
        """Return k / N for the heads."""
        head = n_clusters / n_devices
        return Odds(0.0, 1.0 - head, head, 1.0 - head, head)


@dataclass(frozen=True)
class EachOnItsOwn:
    """Every device fails during the training with a probability of its role, whatever the others do."""

    client: float
    head: float

    def __post_init__(self) -> None:
        for name, value in (("fail odds", self.client), ("head fail odds", self.head)):
            if not 0 <= value <= 1:
                raise SpecError(f"{name} {value:g}; give a probability per device and training, from 0 to 1")

    @property
    def what(self) -> str:
        """Say it in half a sentence."""
        heads = "" if self.head == self.client else f" ({self.head:g} as a head)"
        return f"each device fails during the training with probability {self.client:g}{heads}"

    def odds(self, n_devices: int, n_clusters: int, training_s: float) -> Odds:  # noqa: ARG002
        """Return binomial odds: nobody; clients only; at least one head."""
        n_clients = n_devices - n_clusters
        clients_stay, heads_stay = (1 - self.client) ** n_clients, (1 - self.head) ** n_clusters
        none = clients_stay * heads_stay
        one_client = n_clients * self.client * (1 - self.client) ** max(0, n_clients - 1) * heads_stay
        one_head = n_clusters * self.head * (1 - self.head) ** (n_clusters - 1) * clients_stay
        return Odds(
            none,
            heads_stay - none,
            1.0 - heads_stay,
            n_clients * self.client,
            n_clusters * self.head,
            max(0.0, 1.0 - none - one_client - one_head),
        )


@dataclass(frozen=True)
class Lifetimes:
    """Every device runs for an exponential time until it fails; a slower layout is exposed for longer.

    >>> round(Lifetimes(1.0, 1.0).odds(n_devices=1, n_clusters=1, training_s=3600.0).server, 4)  # 1 - 1/e
    0.6321
    """

    mtbf_h: float
    head_mtbf_h: float

    def __post_init__(self) -> None:
        for name, value in (("MTBF", self.mtbf_h), ("head MTBF", self.head_mtbf_h)):
            if not (value > 0 and math.isfinite(value)):
                raise SpecError(f"{name} {value:g}; give hours between failures of one device, above 0")

    @property
    def what(self) -> str:
        """Say it in half a sentence."""
        heads = "" if self.head_mtbf_h == self.mtbf_h else f" ({self.head_mtbf_h:g} h as a head)"
        return f"each device fails every {self.mtbf_h:g} h on average{heads}, a training being rounds x time per round"

    def odds(self, n_devices: int, n_clusters: int, training_s: float) -> Odds:
        """Return the odds of devices that fail with 1 - exp(-T / MTBF)."""
        hours = training_s / 3600
        each = EachOnItsOwn(-math.expm1(-hours / self.mtbf_h), -math.expm1(-hours / self.head_mtbf_h))
        return each.odds(n_devices, n_clusters, training_s)
