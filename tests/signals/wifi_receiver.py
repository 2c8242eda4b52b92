"""A small Wi-Fi receiver for the tests: from samples back to bytes, written from the receiving side of the standard.

It shares with the transmitter the tables of tones, training and pilots, and nothing else: deinterleaver, segment
parser, demapper, Viterbi decoder, descrambler and checks are its own.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tolfl.signals import wifi, wifi_vht

Complex = NDArray[np.complex128]
Floats = NDArray[np.float64]
Ints = NDArray[Any]

#: Taps of the channel that are looked for, in parts of the guard interval of 0.8 us.
_TAPS = 1 / 2
_RATE_BITS = {"1101": 6, "1111": 9, "0101": 12, "0111": 18, "1001": 24, "1011": 36, "0001": 48, "0011": 54}
_BITS_AND_RATE = {
    6: (1, "1/2"), 9: (1, "3/4"), 12: (2, "1/2"), 18: (2, "3/4"), 24: (4, "1/2"), 36: (4, "3/4"), 48: (6, "2/3"),
    54: (6, "3/4"),
}  # fmt: skip
_MCS = ["1 1/2", "2 1/2", "2 3/4", "4 1/2", "4 3/4", "6 2/3", "6 3/4", "6 5/6", "8 3/4", "8 5/6"]
_PUNCTURED = {"1/2": "11", "2/3": "1110", "3/4": "111001", "5/6": "1110011001"}


class NotReceivedError(Exception):
    """A check of the frame failed."""


@dataclass(frozen=True)
class Received:
    """What a frame said."""

    psdu: bytes
    length: int  #: of the legacy signal field
    rate_mbps: int
    mcs: int | None = None
    short_gi: bool = False
    bandwidth_mhz: int = 20
    sig_b_bytes: int = 0


class Receiver:
    """Holds the samples of one frame, once it knows where the frame starts and what the channel does."""

    def __init__(self, samples: NDArray[Any], bandwidth_mhz: int) -> None:
        self.bandwidth_mhz, self.n = bandwidth_mhz, 64 * bandwidth_mhz // 20
        self.legacy = wifi.in_every_slot(wifi.LEGACY_TONES, bandwidth_mhz)
        self.training = np.tile(wifi.LEGACY_TRAINING, bandwidth_mhz // 20)
        self.samples = samples.astype(np.complex128)
        start = self._long_training()
        late = np.vdot(self.samples[start : start + self.n], self.samples[start + self.n : start + 2 * self.n])
        self.samples *= np.exp(-1j * np.angle(late) / self.n * np.arange(len(samples)))  # carrier offset
        self.start = start + 2 * self.n  # behind the long training field
        pair = [self.tones(start + part * self.n, self.legacy) for part in (0, 1)]
        self.channel = self.smoothed((pair[0] + pair[1]) / 2 / self.training, self.legacy)

    def _long_training(self) -> int:
        """Return where the first long symbol starts, a little early: inside the guard interval nothing is lost."""
        spectrum = np.zeros(self.n, complex)
        spectrum[self.legacy] = self.training * wifi.slot_rotation(self.legacy, self.bandwidth_mhz)
        known = np.fft.ifft(spectrum)
        size = 2 ** math.ceil(math.log2(len(self.samples) + self.n))
        likeness = np.fft.ifft(np.fft.fft(self.samples, size) * np.fft.fft(known, size).conj())
        strength = np.abs(likeness[: len(self.samples)])
        both = strength[: -self.n] + strength[self.n :]
        return int(both.argmax()) - self.n // 32

    def tones(self, at: int, which: Ints) -> Complex:
        if at + self.n > len(self.samples):
            raise NotReceivedError("the samples end before the frame")
        return np.asarray(np.fft.fft(self.samples[at : at + self.n])[which] / self.n * math.sqrt(len(which)))

    def smoothed(self, channel: Complex, which: Ints) -> Complex:
        """Return the channel as a few taps would make it: what else was in the estimate is noise."""
        turns = wifi.slot_rotation(which, self.bandwidth_mhz)
        return np.asarray(_projection(self.bandwidth_mhz, tuple(which.tolist())) @ (channel / turns) * turns)

    def tracked(self, at: int, which: Ints, channel: Complex, pilots: Ints, signs: Ints) -> Complex:
        """Return a symbol's tones after the common phase that its pilots show is taken out."""
        values = self.tones(at, which)
        places = np.searchsorted(which, pilots)
        return np.asarray(values * np.exp(-1j * np.angle(np.vdot(channel[places] * signs, values[places]))))

    def legacy_symbol(self, index: int) -> tuple[Complex, Floats]:
        """Return the data tones of symbol `index` after the training, all 20 MHz taken together, and their weight."""
        at = self.start + index * self.n * 5 // 4 + self.n // 4
        slots = self.bandwidth_mhz // 20
        signs = np.tile(wifi.LEGACY_PILOT_SIGNS, slots) * wifi.polarity(index, 1)[0]
        pilots = wifi.in_every_slot(wifi.LEGACY_PILOTS, self.bandwidth_mhz)
        values = self.tracked(at, self.legacy, self.channel, pilots, signs)
        data = np.searchsorted(wifi.LEGACY_TONES, wifi.LEGACY_DATA)
        weight = (np.abs(self.channel) ** 2).reshape(slots, -1)[:, data].sum(0)
        return (self.channel.conj() * values).reshape(slots, -1)[:, data].sum(0) / weight, weight

    def legacy_bits(self, first: int, n_symbols: int, quarter_turn: int | None = None) -> Ints:
        soft = []
        for index in range(first, first + n_symbols):
            value, weight = self.legacy_symbol(index)
            part = value.imag if index == quarter_turn else value.real
            soft.append(deinterleaved(part * weight, 16, 1))
        return viterbi(np.concatenate(soft).reshape(-1, 2))


@cache
def _projection(bandwidth_mhz: int, which: tuple[int, ...]) -> Complex:
    n = 64 * bandwidth_mhz // 20
    taps = np.arange(-n // 64, round(n / 4 * _TAPS) + n // 32)
    basis = np.exp(-2j * np.pi / n * np.outer(which, taps))
    return np.asarray(basis @ np.linalg.pinv(basis, rcond=1e-3))


def deinterleaved(soft: Floats, n_columns: int, bits_per_tone: int) -> Floats:
    n = len(soft)
    j, s, n_rows = np.arange(n), max(bits_per_tone // 2, 1), n // n_columns
    i = s * (j // s) + (j + n_columns * j // n) % s
    plain = np.empty(n)
    plain[n_columns * i - (n - 1) * (i // n_rows)] = soft
    return plain


def demapped(values: Complex, weight: Floats, bits_per_tone: int) -> Floats:
    """Return how much each bit looks like a one, from the nearest points of either kind."""
    if bits_per_tone == 1:
        return np.asarray(values.real * weight)
    half = bits_per_tone // 2
    levels = np.arange(-(2**half) + 1, 2**half, 2)
    patterns = np.array([0, 1])
    for _ in range(half - 1):  # reflected: a leading 0 before the patterns so far, a leading 1 before them backwards
        patterns = np.concatenate([patterns, patterns[::-1] + len(patterns)])
    soft = np.empty((len(values), 2, half))
    scale = math.sqrt(2 * np.mean(levels**2))
    for axis, part in enumerate((values.real, values.imag)):
        distance = (part[:, None] * scale - levels) ** 2
        for bit in range(half):
            ones = patterns >> (half - 1 - bit) & 1 == 1
            soft[:, axis, bit] = distance[:, ~ones].min(1) - distance[:, ones].min(1)
    return np.asarray(soft.reshape(len(values), -1) * weight[:, None]).ravel()


def filled_in(soft: Floats, rate: str) -> Floats:
    """Return pairs of soft bits, with zeros for those that were not sent."""
    sent = np.array([bit == "1" for bit in _PUNCTURED[rate]])
    pairs = np.zeros((len(soft) // int(sent.sum()), len(sent)))
    pairs[:, sent] = soft.reshape(len(pairs), -1)
    return pairs.reshape(-1, 2)


def viterbi(pairs: Floats) -> Ints:
    """Return the likeliest bits of a coder that starts and ends with zeros; 64 states, the newest bit highest."""
    newest, kept, oldest = np.meshgrid([0, 1], np.arange(32), [0, 1], indexing="ij")
    register = newest << 6 | kept << 1 | oldest
    outputs = [2 * (np.bitwise_count(register & mask) % 2).astype(float) - 1 for mask in (0o133, 0o171)]
    gains = (pairs @ np.stack([output.ravel() for output in outputs])).reshape(-1, 2, 32, 2)
    path = np.full(64, -1e18)
    path[0] = 0.0
    choices = np.empty((len(pairs), 64), bool)
    for step, gain in enumerate(gains):
        candidates = path.reshape(1, 32, 2) + gain
        choices[step] = (candidates[..., 1] > candidates[..., 0]).ravel()
        path = candidates.max(axis=2).ravel()
    state, bits = 0, np.empty(len(pairs), np.uint8)
    for step in range(len(pairs) - 1, -1, -1):
        bits[step] = state >> 5
        state = (state & 31) << 1 | int(choices[step, state])
    return bits


def descrambled(bits: Ints) -> Ints:
    """Return the bits without the scrambler, whose state the first seven, sent as zeros, give away."""
    sequence = bits[:7].tolist()
    for place in range(7, min(len(bits), 127 + 7)):
        sequence.append(sequence[place - 7] ^ sequence[place - 4])
    return np.asarray(bits ^ np.resize(sequence[:127], len(bits)).astype(np.uint8))


def number(bits: Ints) -> int:
    return sum(int(bit) << place for place, bit in enumerate(bits))


def crc_fits(bits: Ints, check: Ints) -> bool:
    """Divide what was sent, check bits inverted, by D^8 + D^2 + D + 1; ones in the register are ones in its input."""
    word = [int(bit) for bit in bits] + [1 - int(bit) for bit in check]
    word = [bit ^ (place < 8) for place, bit in enumerate(word)]
    for place in range(len(word) - 8):
        if word[place]:
            for tap in (0, 6, 7, 8):
                word[place + tap] ^= 1
    return not any(word)


def receive(samples: NDArray[Any], bandwidth_mhz: int = 20) -> Received:
    """Return what a frame, sampled at its bandwidth, says; raise `NotReceivedError` if a check fails."""
    receiver = Receiver(samples, bandwidth_mhz)
    signal = receiver.legacy_bits(0, 1)
    rate, length = "".join(map(str, signal[:4])), number(signal[5:17])
    if signal[:18].sum() % 2 or rate not in _RATE_BITS:
        raise NotReceivedError("L-SIG")
    if _is_vht(receiver, _RATE_BITS[rate]):
        return _receive_vht(receiver, length)
    return _receive_legacy(receiver, _RATE_BITS[rate], length)


def _is_vht(receiver: Receiver, rate_mbps: int) -> bool:
    if rate_mbps != 6:
        return False
    values, weight = receiver.legacy_symbol(2)
    return bool((values.imag**2 * weight).sum() > (values.real**2 * weight).sum())


def _receive_legacy(receiver: Receiver, rate_mbps: int, length: int) -> Received:
    bits_per_tone, rate = _BITS_AND_RATE[rate_mbps]
    data_bits = int(48 * bits_per_tone * Fraction(rate))
    soft = []
    for index in range(math.ceil((22 + 8 * length) / data_bits)):
        values, weight = receiver.legacy_symbol(1 + index)
        soft.append(deinterleaved(demapped(values, weight, bits_per_tone), 16, bits_per_tone))
    pairs = filled_in(np.concatenate(soft), rate)
    bits = descrambled(viterbi(pairs[: 22 + 8 * length]))  # the padding behind the tail does not bring the coder home
    return Received(np.packbits(bits[16 : 16 + 8 * length], bitorder="little").tobytes(), length, rate_mbps)


def _receive_vht(receiver: Receiver, length: int) -> Received:
    sig_a = receiver.legacy_bits(1, 2, quarter_turn=2)
    if not crc_fits(sig_a[:34], sig_a[34:42]):
        raise NotReceivedError("SIG-A")
    short_gi, mcs, width = bool(sig_a[24]), number(sig_a[28:32]), (20, 40, 80, 160)[number(sig_a[:2])]
    n_symbols = (length + 3) // 3 - 5
    if short_gi:
        n_symbols = math.floor(Fraction(40, 36) * n_symbols) - int(sig_a[25])
    shape, n = wifi_vht.layout(width), receiver.n
    at = receiver.start + n * 5 // 4 * 4  # L-SIG, SIG-A and the short training field
    channel = receiver.smoothed(receiver.tones(at + n // 4, shape.tones) / shape.training, shape.tones)
    at += n * 5 // 4
    sig_b = viterbi(_vht_soft(receiver, shape, channel, at + n // 4, (3, 0), 1, 1).reshape(-1, 2))
    checked = {20: 20, 40: 21, 80: 23, 160: 23}[width]
    at += n * 5 // 4
    guard = n // 8 if short_gi else n // 4
    bits_per_tone, rate = int(_MCS[mcs][0]), _MCS[mcs][2:]
    data_bits = len(shape.data) * bits_per_tone * Fraction(rate)
    n_coders = 2 if data_bits / Fraction("3.6") > 600 else 1
    soft = [
        _vht_soft(receiver, shape, channel, at + i * (n + guard) + guard, (4 + i, i), bits_per_tone, n_coders)
        for i in range(n_symbols)
    ]
    bits = descrambled(_decoded(np.concatenate(soft), max(bits_per_tone // 2, 1), n_coders, rate))
    if not crc_fits(sig_b[:checked], bits[8:16]):
        raise NotReceivedError("SIG-B")
    n_bytes = (len(bits) - 16) // 8
    psdu = np.packbits(bits[16 : 16 + 8 * n_bytes], bitorder="little").tobytes()
    return Received(psdu, length, 6, mcs, short_gi, width, 4 * number(sig_b[: checked - (3 if width == 20 else 2)]))


def _vht_soft(
    receiver: Receiver, shape: wifi_vht.Layout, channel: Complex, at: int, symbol: tuple[int, int], bits_per_tone: int,
    n_coders: int,
) -> Floats:  # fmt: skip
    polarity, index = symbol
    place = (np.arange(len(shape.pilots)) + index) % len(shape.pilot_signs)
    signs = shape.pilot_signs[place] * wifi.polarity(polarity, 1)[0]
    values = receiver.tracked(at, shape.tones, channel, shape.pilots, signs)
    data = np.searchsorted(shape.tones, shape.data)
    soft = demapped((values / channel)[data], np.abs(channel[data]) ** 2, bits_per_tone)
    halves = [deinterleaved(half, shape.n_columns, bits_per_tone) for half in np.split(soft, shape.n_segments)]
    if len(halves) == 1:
        return halves[0]
    turn = max(bits_per_tone // 2, 1) * n_coders
    together, k = np.empty(len(soft)), np.arange(len(soft) // 2)
    for segment, half in enumerate(halves):
        together[2 * turn * (k // turn) + segment * turn + k % turn] = half
    return together


def _decoded(soft: Floats, turn: int, n_coders: int, rate: str) -> Ints:
    coder = np.arange(len(soft)) // turn % n_coders
    streams = [viterbi(filled_in(soft[coder == which], rate))[:-6] for which in range(n_coders)]
    return np.stack(streams, axis=1).ravel()


def frames_of(psdu: bytes) -> list[bytes]:
    """Return the frames of an aggregate whose delimiter and check sequence are right, without the check sequence."""
    frames, at = [], 0
    while at + 4 <= len(psdu):
        bits = np.unpackbits(np.frombuffer(psdu[at : at + 3], np.uint8), bitorder="little")
        if psdu[at + 3] != 0x4E or not crc_fits(bits[:16], bits[16:]):
            at += 4  # as a receiver would: look for the next one
            continue
        length = number(bits[4:16]) | number(bits[2:4]) << 12
        frame = psdu[at + 4 : at + 4 + length]
        if length and zlib.crc32(frame) == 0x2144DF1C:
            frames.append(frame[:-4])
        at += 4 + length + -length % 4
    return frames
