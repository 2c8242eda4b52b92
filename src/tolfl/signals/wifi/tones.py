"""Which tones a frame uses, and what is known on them: training sequences, pilots, rotations (17.3.3, 21.3.7, 21.3.8).

Tones are numbered from the centre, 312.5 kHz apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import SpecError
from tolfl.signals.wifi.bits import pilot_polarity
from tolfl.signals.wlan import SLOT_ROTATIONS

Tones = NDArray[np.intp]
Signs = NDArray[np.int8]

LEGACY_PILOTS = np.array([-21, -7, 7, 21])
LEGACY_TONES = np.array([tone for tone in range(-26, 27) if tone != 0])
LEGACY_DATA = np.setdiff1d(LEGACY_TONES, LEGACY_PILOTS)
LEGACY_PILOT_SIGNS = np.array([1, 1, 1, -1], np.int8)

_LEFT = "++--++-+-++++++--++-+-++++"
_RIGHT = "+--++-+-+-----++--+-+-++++"
_FORTY = _LEFT + "+" + _RIGHT + "---+", "-++-" + _LEFT + "+" + _RIGHT
_EIGHTY = (
    _LEFT + "+" + _RIGHT + "---++-+-++-" + _LEFT + "+" + _RIGHT + "+-+-",
    "+--+" + _LEFT + "+" + _RIGHT + "---++-+-++-" + _LEFT + "+" + _RIGHT,
)
_SHORT_ZEROS, _LONG_ZEROS = "000", "0" * 11
#: The VHT long training sequence from the lowest tone to the highest.
_VHT_SEQUENCES = {
    20: "++" + _LEFT + "0" + _RIGHT + "--",
    40: _SHORT_ZEROS.join(_FORTY),
    80: _SHORT_ZEROS.join(_EIGHTY),
    160: _LONG_ZEROS.join([_SHORT_ZEROS.join(_EIGHTY)] * 2),
}
_PILOTS = {20: (7, 21), 40: (11, 25, 53), 80: (11, 39, 75, 103), 160: (25, 53, 89, 117, 139, 167, 203, 231)}
_PILOT_SIGNS = {20: "+++-", 40: "+++--+", 80: "+++--+++", 160: "+++--+++"}
_COLUMNS = {20: 13, 40: 18, 80: 26, 160: 26}


def _signs(text: str) -> Signs:
    return np.array(["-0+".index(sign) - 1 for sign in text], np.int8)


LEGACY_TRAINING = _signs(_LEFT + _RIGHT)  #: of the legacy long training field, on `LEGACY_TONES`


@dataclass(frozen=True, slots=True)
class Layout:
    """What a bandwidth looks like in the VHT part of a frame."""

    bandwidth_mhz: int
    tones: Tones  #: all that are used
    training: Signs  #: of the long training field, on `tones`
    data: Tones
    pilots: Tones
    pilot_signs: Signs  #: that move on by one pilot with every symbol
    n_columns: int  #: of the interleaver
    n_segments: int

    @property
    def n_fft(self) -> int:
        """Tones from one end of the band to the other, used or not."""
        return 64 * self.bandwidth_mhz // 20


@cache
def layout(bandwidth_mhz: int) -> Layout:
    """Return the layout of 20, 40, 80 or 160 MHz."""
    if bandwidth_mhz not in _VHT_SEQUENCES:
        raise SpecError(f"bandwidth {bandwidth_mhz} MHz; use one of {', '.join(map(str, _VHT_SEQUENCES))}")
    sequence = _signs(_VHT_SEQUENCES[bandwidth_mhz])
    span = np.arange(len(sequence)) - len(sequence) // 2
    used = sequence != 0
    pilots = np.sort([side * tone for tone in _PILOTS[bandwidth_mhz] for side in (-1, 1)])
    return Layout(
        bandwidth_mhz,
        tones=span[used],
        training=sequence[used],
        data=np.setdiff1d(span[used], pilots),
        pilots=pilots,
        pilot_signs=_signs(_PILOT_SIGNS[bandwidth_mhz]),
        n_columns=_COLUMNS[bandwidth_mhz],
        n_segments=2 if bandwidth_mhz == 160 else 1,
    )


def rotated(tones: Tones, bandwidth_mhz: int) -> NDArray[np.complex64]:
    """Return how each tone is turned: by the 20 MHz slot it lies in (21.3.7.5)."""
    slots = SLOT_ROTATIONS[bandwidth_mhz]
    return np.array(slots, np.complex64)[(tones + 32 * len(slots)) // 64]


def in_every_slot(tones: Tones, bandwidth_mhz: int) -> Tones:
    """Return the tones of a 20 MHz channel in every 20 MHz of the band, one slot after the other."""
    n_slots = bandwidth_mhz // 20
    return (64 * np.arange(n_slots)[:, None] - 32 * (n_slots - 1) + tones).ravel()


def polarity(first: int, n_symbols: int) -> Signs:
    """Return the sign that all pilots of a symbol share, for symbols `first` onwards."""
    signs = pilot_polarity()
    return signs[np.arange(first, first + n_symbols) % len(signs)]


def vht_pilots(shape: Layout, first_polarity: int, n_symbols: int) -> Signs:
    """Return the pilots, lowest tone first, of VHT symbols 0, 1, ..., shape `(n_symbols, n_pilots)` (21.3.10.10)."""
    place = np.arange(n_symbols)[:, None] + np.arange(len(shape.pilots))
    signs: Signs = polarity(first_polarity, n_symbols)[:, None] * shape.pilot_signs[place % len(shape.pilot_signs)]
    return signs
