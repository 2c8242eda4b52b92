"""Devices that lie: who, and how. Data, not behaviour, like failure plans; for experiments and rehearsals.

One grammar everywhere, entries joined by `;`, several lies of one device by `,`:

    3:flip             sends the opposite of what it learnt
    3:scale=-10        sends ten times the opposite
    3,4:samples=1000000  (two devices, each claims a million samples)
    3:flip,samples=1000000

A liar trains like everybody else and keeps to the protocol; what it reports is not what it found.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from tolfl.core.errors import SpecError

if TYPE_CHECKING:  # a specification is read without the arrays
    from tolfl.core.contribution import Contribution, Part

#: Larger factors leave the range of 32-bit numbers within a few rounds, and such messages are refused anyway.
_MAX_SCALE = 1e6
_MAX_CLAIM = 10**12


class LiarsError(SpecError):
    """A list of liars cannot be read, or names a device that does not exist."""

    def __init__(self, text: str, problem: str) -> None:
        super().__init__(f"liars {text!r}: {problem}")
        self.text, self.problem = text, problem


class Lie(msgspec.Struct, frozen=True):
    """What one device does to its contribution."""

    scale: float = 1.0  #: its update is multiplied by this
    n_samples: int | None = None  #: the count that it claims; None: the true one

    def claimed(self, n_samples: int) -> int:
        """Return the count that a device with so many samples claims; without any it has nothing to report."""
        return n_samples if self.n_samples is None or not n_samples else self.n_samples

    def told(self, truth: Contribution) -> Contribution:
        """Return what the device says instead of the truth."""
        claimed = self.claimed(truth.n_samples)
        parts = {key: self._part(part, truth.n_samples, claimed) for key, part in truth.parts.items()}
        return msgspec.structs.replace(truth, n_samples=claimed, parts=parts)

    def _part(self, part: Part, counted: int, claimed: int) -> Part:
        # Where every device counts as one, a claim changes nothing.
        weight = claimed if part.how == "mean" and part.weight == counted else part.weight
        vector = part.vector if self.scale == 1.0 else part.vector * part.vector.dtype.type(self.scale)
        return msgspec.structs.replace(
            part, n_samples=weight, vector=vector, weight=weight, n_trained=claimed if part.n_trained else 0
        )


class Liars(msgspec.Struct, frozen=True):
    """Every liar of a run.

    >>> liars = Liars.parse("3:scale=-10; 5,6:flip,samples=99", n_devices=10)
    >>> {device: (lie.scale, lie.n_samples) for device, lie in liars.lies.items()}
    {3: (-10.0, None), 5: (-1.0, 99), 6: (-1.0, 99)}
    """

    lies: dict[int, Lie] = {}

    @classmethod
    def parse(cls, text: str, n_devices: int) -> Liars:
        """Read the grammar above."""
        lies: dict[int, Lie] = {}
        for entry in filter(None, (part.strip() for part in text.split(";"))):
            who, colon, what = entry.partition(":")
            if not colon:
                raise LiarsError(entry, "say who lies and how, as in 3:flip")
            lie = _lie(entry, what)
            for device in who.split(","):
                number = _device(entry, device.strip(), n_devices)
                if number in lies:
                    raise LiarsError(entry, f"device {number} is named twice; join its lies with a comma")
                lies[number] = lie
        return cls(lies)

    def told(self, truths: Sequence[Contribution]) -> list[Contribution]:
        """Return what devices say, each of which knows one contribution of its own."""
        return [self._told(truth) for truth in truths]

    def _told(self, truth: Contribution) -> Contribution:
        device = next(iter(truth.included))
        return self.lies[device].told(truth) if device in self.lies else truth

    def claimed(self, device: int, n_samples: int) -> int:
        """Return the count that a device claims."""
        return self.lies[device].claimed(n_samples) if device in self.lies else n_samples


def _device(entry: str, text: str, n_devices: int) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise LiarsError(entry, f"{text!r} is not a device id")
    if int(text) >= n_devices:
        raise LiarsError(entry, f"there is no device {int(text)}; ids go from 0 to {n_devices - 1}")
    return int(text)


def _lie(entry: str, text: str) -> Lie:
    scale, claimed = 1.0, None
    kinds: list[str] = []
    for one in (part.strip() for part in text.split(",")):
        kind, _, value = one.partition("=")
        match kind, bool(value):
            case "flip", False:
                scale = -1.0
            case "scale", True:
                scale = _scale(entry, value)
            case "samples", True:
                claimed = _claim(entry, value)
            case _:
                raise LiarsError(entry, f"no lie {one!r}; use flip, scale=FACTOR or samples=COUNT")
        kinds.append("scale" if kind == "flip" else kind)
    if len(set(kinds)) < len(kinds):
        raise LiarsError(entry, "two lies about one thing; flip is scale=-1")
    return Lie(scale, claimed)


def _scale(entry: str, text: str) -> float:
    try:
        scale = float(text)
    except ValueError:
        scale = math.nan
    if not abs(scale) <= _MAX_SCALE:
        raise LiarsError(entry, f"factor {text!r}; use a number from {-_MAX_SCALE:g} to {_MAX_SCALE:g}")
    return scale


def _claim(entry: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text) <= _MAX_CLAIM:
        raise LiarsError(entry, f"{text!r} samples; use a whole number from 1 to {_MAX_CLAIM}")
    return int(text)
