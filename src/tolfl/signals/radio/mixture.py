"""Everything that a receiver hears at once, block by block: each emission through its own channel, and noise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tolfl.signals.radio.air import AirSettings, Emission
from tolfl.signals.radio.propagation import noise, turned
from tolfl.signals.recordings.metadata import Annotation
from tolfl.signals.streams import Scenario, Use, stream

Complex = NDArray[np.complex64]

_NOISE_AT_ONCE = 1 << 16  #: samples that share a generator; part of every stored result
_EARLIEST_S = 1e-6  #: an impulse response may begin so long before its emission


class Draws(NamedTuple):
    """Whose random numbers these are: fading and noise of one recording."""

    seed: int
    region: int
    scenario: Scenario = Scenario.TYPICAL

    def of(self, use: Use, number: int) -> np.random.Generator:
        """Return the generator of one emission, or of one stretch of noise."""
        return stream(self.seed, use, region=self.region, node=number, scenario=self.scenario)


def mixture(
    emissions: Iterable[Emission],
    air: AirSettings,
    seconds: float,
    draws: Draws,
    block_samples: int = 4 * _NOISE_AT_ONCE,
) -> Iterator[Complex]:
    """Yield what the receiver hears from time 0 on; the blocks' size does not change a sample.

    Parameters
    ----------
    emissions
        In the order of their starts. Only those that are on the air are in memory.
    """
    n_samples = round(seconds * air.rate_hz)
    waiting = iter(emissions)
    coming = next(waiting, None)
    on_air: list[tuple[int, Complex]] = []
    for begin in range(0, n_samples, block_samples):
        end = min(begin + block_samples, n_samples)
        while coming is not None and (coming.start_s - _EARLIEST_S) * air.rate_hz < end:
            on_air.append(received(coming, air, draws))
            coming = next(waiting, None)
        block = _noise(air, draws, begin, end)
        for start, samples in on_air:
            first, last = max(start, begin), min(start + len(samples), end)
            if first < last:
                block[first - begin : last - begin] += samples[first - start : last - start]
        on_air = [(start, samples) for start, samples in on_air if start + len(samples) > end]
        yield block


def received(emission: Emission, air: AirSettings, draws: Draws) -> tuple[int, Complex]:
    """Return the number of an emission's first sample on the receiver's time line, and its samples as received."""
    emitter, rate_hz = emission.emitter, air.rate_hz
    fading = draws.of(Use.FADING, emission.number)
    response, n_early = emitter.echoes.faded(air.rician_k_db, fading).response(rate_hz)
    start = round(emission.start_s * rate_hz)
    sent = emitter.fingerprint.distorted(emission.waveform())
    offset_hz = emission.offset_hz + emitter.fingerprint.carrier_ppm * 1e-6 * (air.carrier_hz + emission.offset_hz)
    sent = turned(sent, offset_hz, rate_hz, start)
    amplitude = np.float32(10 ** ((emitter.power_dbm - air.full_scale_dbm) / 20))
    return start - n_early, np.convolve(sent, amplitude * response)


def truth_of(emissions: Iterable[Emission], air: AirSettings) -> list[Annotation]:
    """Return the truth about emissions: who, what, when, in which band."""
    return [
        Annotation(
            sample_start=round(one.start_s * air.rate_hz),
            sample_count=round(one.duration_s * air.rate_hz),
            freq_lower_edge=air.carrier_hz + one.offset_hz - one.bandwidth_hz / 2,
            freq_upper_edge=air.carrier_hz + one.offset_hz + one.bandwidth_hz / 2,
            label=one.label,
            comment=one.comment,
            generator="tolfl",
            our_source=one.emitter.address,
            our_destination=one.destination,
            our_wire_bytes=one.wire_bytes,
            our_power_dbm=round(one.emitter.power_dbm, 2),
        )
        for one in emissions
    ]


def _noise(air: AirSettings, draws: Draws, begin: int, end: int) -> Complex:
    """Return noise by its place on the time line: whoever asks for a sample again gets the same one."""
    pieces = []
    for number in range(begin // _NOISE_AT_ONCE, -(-end // _NOISE_AT_ONCE)):
        piece = noise(draws.of(Use.NOISE, number), _NOISE_AT_ONCE, air.noise_power)
        first = number * _NOISE_AT_ONCE
        pieces.append(piece[max(begin - first, 0) : end - first])
    return np.concatenate(pieces)
