"""What a device has to say, and the links by which it says it."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Mapping
from contextlib import suppress

from tolfl.core.contribution import Vector
from tolfl.net.detector import Detector
from tolfl.net.diary import Diary
from tolfl.net.link import Dial, Host, Link, Parcel
from tolfl.net.wire import Codec, n_bytes_of
from tolfl.protocol.messages import AnyMessage, Mean, Report
from tolfl.runs.ledger import Kind

#: A link that nobody has used for so long is closed; the next message opens it again.
_IDLE_S = 10.0
#: How long a device that dies or leaves waits for its last words to arrive.
_LAST_WORDS_S = 2.0

_State = Mapping[str, Vector]


class Outbox:
    """Links to peers, opened when there is something to say; from then on signs of life are expected."""

    def __init__(self, host: Host, dial: Dial, detector: Detector, diary: Diary) -> None:
        self.links: dict[int, Link] = {}
        self.n_sent, self.bytes_sent = 0, 0
        self._host, self._dial, self._detector, self._diary = host, dial, detector, diary
        self._closing: list[asyncio.Future[None]] = []
        self._last: tuple[AnyMessage, _State | None, bytes, list[Vector | bytes]] | None = None

    def send(self, to: int, message: AnyMessage, parent: _State | None = None) -> None:
        """Send a message; of a closed round only what is not in the `parent` state, which the peer should have."""
        encoded, arrays = self._encoded(message, parent)
        link, kind, n_bytes = self.link_to(to), None, len(encoded)
        if arrays:
            kind, n_bytes = _kind_of(message), sum(map(n_bytes_of, arrays))
            # A peer that cannot use a part pulls the whole, which must not count as already there.
            name = (kind, message.version, _included(message), parent is None)
            if not link.carry(Parcel(name, kind is Kind.MODEL, encoded, arrays)):
                return
        else:
            link.say(encoded)
        self._diary.sent(to, kind, n_bytes)
        self.n_sent += 1
        self.bytes_sent += n_bytes

    def _encoded(self, message: AnyMessage, parent: _State | None) -> tuple[bytes, list[Vector | bytes]]:
        """Encode once what goes to many."""
        last = self._last
        if last is None or last[0] is not message or last[1] is not parent:
            last = self._last = (message, parent, *Codec.encode(message, parent))
        return last[2], last[3]

    def link_to(self, peer: int) -> Link:
        """Return the link to a peer, opened if need be."""
        if peer not in self.links:
            self.links[peer] = Link(peer, self._host, self._dial)
            self._detector.watch(peer)
        self.links[peer].used_s = asyncio.get_running_loop().time()
        return self.links[peer]

    def hang_up(self, peer: int) -> None:
        """End the link to a peer; the next message dials again."""
        link = self.links.pop(peer, None)
        if link is not None:
            self._closing.append(asyncio.ensure_future(link.close()))

    async def close_idle(self) -> None:
        """Close the links that nobody has used for a while."""
        now_s = asyncio.get_running_loop().time()
        for peer, link in list(self.links.items()):
            if now_s - link.used_s > _IDLE_S:
                del self.links[peer]
                self._detector.unwatch(peer)
                await link.close()

    async def say_last_words(self, dead: Container[int]) -> None:
        """Wait a little until everything has arrived at those who are alive."""
        words = [link.drained() for peer, link in self.links.items() if peer not in dead]
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_S):
                await asyncio.gather(*words)

    async def close(self) -> None:
        """Leave no link behind."""
        await asyncio.gather(*(link.close() for link in self.links.values()), *self._closing)


def _kind_of(message: AnyMessage) -> Kind:
    if isinstance(message, Report):
        return Kind.REPORT
    return Kind.MEAN if isinstance(message, Mean) else Kind.MODEL


def _included(message: AnyMessage) -> int:
    """Return whose samples are in the payload of a message, as bits."""
    if isinstance(message, Report):
        return message.contribution.included.bits
    return message.total.included.bits if isinstance(message, Mean) else 0
