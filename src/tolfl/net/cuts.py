"""Cuts, as a failure plan or a launcher asks for them: messages are dropped as if the cable were out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tolfl.core.failures import Cut


class Cuts:
    """Whom this device cannot reach at the moment."""

    def __init__(self, device: int, planned: Sequence[Cut]) -> None:
        self._device, self._planned = device, planned
        self._commanded: frozenset[int] = frozenset()

    def command(self, devices: Iterable[int]) -> None:
        """Cut off these devices, and no others; what the plan says stays."""
        self._commanded = frozenset(devices)

    def is_cut(self, peer: int, round_index: int) -> bool:
        """Tell whether nothing passes between this device and a peer in a round.

        Each side goes by the rounds that it knows of. A message of the round in which a cut ends ends it for whoever
        gets it: the side that was left behind has no other way to learn of it.
        """
        if peer in self._commanded:
            return True
        return any(
            cut.separates(self._device, peer)
            and cut.round_index <= round_index
            and (cut.heals_at is None or round_index < cut.heals_at)
            for cut in self._planned
        )
