"""Cuts, as a failure plan or a launcher asks for them: messages are dropped as if the cable were out."""

from __future__ import annotations

from collections.abc import Iterable

from tolfl.core.failures import FailurePlan


class Cuts:
    """Whom this device cannot reach at the moment."""

    def __init__(self, device: int, plan: FailurePlan) -> None:
        self._device, self._plan = device, plan
        self._commanded: frozenset[int] = frozenset()

    def command(self, devices: Iterable[int]) -> None:
        """Cut off these devices, and no others; what the plan says stays."""
        self._commanded = frozenset(devices)

    def is_cut(self, peer: int, round_index: int) -> bool:
        """Tell whether nothing passes between this device and a peer in a round.

        Each side goes by the rounds that it knows of. A message of the round in which a cut ends ends it for whoever
        gets it: the side that was left behind has no other way to learn of it.
        """
        return peer in self._commanded or self._plan.is_cut(self._device, peer, round_index)
