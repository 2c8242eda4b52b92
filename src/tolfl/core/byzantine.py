"""Byzantine devices: which devices report false updates or sample counts. Data, like failure plans, for experiments.

One grammar everywhere, entries joined by `;`, what one device does joined by `,`:

    3:flip             sends the opposite of what it learnt
    3:scale=-10        sends ten times the opposite
    3,4:samples=1000000  (two devices, each reports a million samples)
    3:flip,samples=1000000

A byzantine device trains like every other and keeps to the protocol; what it reports is not what it found.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from tolfl.core.errors import SpecError

if TYPE_CHECKING:  # a specification is read without the arrays
    from tolfl.core.contribution import Contribution, Part

#: Larger factors leave the range of 32-bit numbers within a few rounds, and such messages are refused anyway.
_MAX_SCALE = 1e6
_MAX_COUNT = 10**12


class Tampering(msgspec.Struct, frozen=True):
    """What one byzantine device does to its contribution."""

    scale: float = 1.0  #: its update is multiplied by this
    n_samples: int | None = None  #: the count that it reports; None: the true one

    def reported_count(self, n_samples: int) -> int:
        """Return the count that a device with so many samples reports; without any it has nothing to report."""
        return n_samples if self.n_samples is None or not n_samples else self.n_samples

    def reported(self, contribution: Contribution) -> Contribution:
        """Return what the device reports instead of its contribution."""
        count = self.reported_count(contribution.n_samples)
        parts = {key: self._part(part, contribution.n_samples, count) for key, part in contribution.parts.items()}
        return msgspec.structs.replace(contribution, n_samples=count, parts=parts)

    def _part(self, part: Part, counted: int, reported: int) -> Part:
        # Where every device counts as one, a false count changes nothing.
        weight = reported if part.how == "mean" and part.weight == counted else part.weight
        vector = part.vector if self.scale == 1.0 else part.vector * part.vector.dtype.type(self.scale)
        return msgspec.structs.replace(
            part, n_samples=weight, vector=vector, weight=weight, n_trained=reported if part.n_trained else 0
        )


def parse_liars(text: str, n_devices: int) -> dict[int, Tampering]:
    """Read the grammar above: what each byzantine device does.

    >>> found = parse_liars("3:scale=-10; 5,6:flip,samples=99", n_devices=10)
    >>> {device: (one.scale, one.n_samples) for device, one in found.items()}
    {3: (-10.0, None), 5: (-1.0, 99), 6: (-1.0, 99)}
    """
    found: dict[int, Tampering] = {}
    for entry in filter(None, (part.strip() for part in text.split(";"))):
        who, colon, what = entry.partition(":")
        if not colon:
            raise _error(entry, "name a device and its attack, as in 3:flip")
        tampering = _tampering(entry, what)
        for device in who.split(","):
            number = _device(entry, device.strip(), n_devices)
            if number in found:
                raise _error(entry, f"device {number} is named twice; join its attacks with a comma")
            found[number] = tampering
    return found


def _error(entry: str, problem: str) -> SpecError:
    return SpecError(f"liars {entry!r}: {problem}")


def _device(entry: str, text: str, n_devices: int) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise _error(entry, f"{text!r} is not a device id")
    if int(text) >= n_devices:
        raise _error(entry, f"there is no device {int(text)}; ids go from 0 to {n_devices - 1}")
    return int(text)


def _tampering(entry: str, text: str) -> Tampering:
    scale, count = 1.0, None
    kinds: list[str] = []
    for one in (part.strip() for part in text.split(",")):
        kind, _, value = one.partition("=")
        match kind, bool(value):
            case "flip", False:
                scale = -1.0
            case "scale", True:
                scale = _scale(entry, value)
            case "samples", True:
                count = _count(entry, value)
            case _:
                raise _error(entry, f"no attack {one!r}; use flip, scale=FACTOR or samples=COUNT")
        kinds.append("scale" if kind == "flip" else kind)
    if len(set(kinds)) < len(kinds):
        raise _error(entry, "two attacks on the same value; flip is scale=-1")
    return Tampering(scale, count)


def _scale(entry: str, text: str) -> float:
    try:
        scale = float(text)
    except ValueError:
        scale = math.nan
    if not abs(scale) <= _MAX_SCALE:
        raise _error(entry, f"factor {text!r}; use a number from {-_MAX_SCALE:g} to {_MAX_SCALE:g}")
    return scale


def _count(entry: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text) <= _MAX_COUNT:
        raise _error(entry, f"{text!r} samples; use a whole number from 1 to {_MAX_COUNT}")
    return int(text)
