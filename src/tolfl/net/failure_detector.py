"""The failure detector. Pure: from the answers of peers and the time it returns which peers are suspected.

Three kinds of evidence, from the strongest down:

- a connection that broke and a reconnect that was refused, twice: there is no process any more (`Links` finds out);
- a connection that broke: reason to try again at once, nothing more;
- no sign of life, though an answer was due: the process is frozen, or the link is cut in one direction or both.

Only answers count: a peer that sends and receives nothing is of no use. Only the time counts in which this device
itself was awake: one that was frozen, or did not get the processor, must not suspect the others when it wakes up.
"""

from __future__ import annotations

from dataclasses import dataclass

from tolfl.core.spec import Timing


@dataclass
class _Watched:
    silent_s: float = 0.0
    #: an answer came since the last tick: how long ago is not known, so time without an answer counts from the next
    is_fresh: bool = True


class FailureDetector:
    """Measures how long the peers that this device expects answers from have given none."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._watched: dict[int, _Watched] = {}
        self._last_s: float | None = None

    def watch(self, peer: int) -> None:
        """Expect answers from a peer from now on."""
        self._watched.setdefault(peer, _Watched())

    def unwatch(self, peer: int) -> None:
        """Expect nothing more from a peer."""
        self._watched.pop(peer, None)

    def note_answer(self, peer: int) -> None:
        """Note an answer."""
        if peer in self._watched:
            self._watched[peer] = _Watched()

    def silent_s(self, peer: int) -> float:
        """Return for how long nothing has come from a peer."""
        return self._watched[peer].silent_s if peer in self._watched else 0.0

    def tick(self, now_s: float) -> list[int]:
        """Return the peers that have given no answer for too long, at every tick until they answer again."""
        passed_s = 0.0 if self._last_s is None else min(now_s - self._last_s, 2 * self._timing.heartbeat_s)
        self._last_s = now_s
        for watched in self._watched.values():
            watched.silent_s += 0.0 if watched.is_fresh else passed_s
            watched.is_fresh = False
        return [peer for peer, one in self._watched.items() if one.silent_s >= self._timing.silence_detection_s]
