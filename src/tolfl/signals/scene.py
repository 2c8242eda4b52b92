"""A region's traffic as a recording: Wi-Fi frames, a Bluetooth intruder, each through its own channel, and noise.

`Scene` says what is recorded, `write_scene` writes it with every emission annotated.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from tolfl.core.errors import SpecError
from tolfl.signals.bluetooth import br_frequency_hz, br_packet, hops
from tolfl.signals.pcap_writer import Hosts, udp_headers
from tolfl.signals.radio import RadioSettings, Transmitter, noise, place_transmitter, shift_frequency
from tolfl.signals.sigmf import EXTENSION, Annotation, WrittenType, write_recording
from tolfl.signals.traffic import Region, Scenario, Use, default_regions, simulate, stream
from tolfl.signals.wifi import data_mpdu, legacy_extent, legacy_frame, with_check_sequence
from tolfl.signals.wifi_vht import ampdu, vht_extent, vht_frame
from tolfl.signals.windows import HEADER_BYTES

Complex = NDArray[np.complex64]


@dataclass(frozen=True, slots=True)
class Emission:
    """A transmission: who sends, what, when, and where in the band. Its samples are made when they are needed."""

    start_s: float
    duration_s: float
    transmitter: Transmitter
    label: str
    comment: str
    bandwidth_hz: float
    waveform: Callable[[], Complex] = field(repr=False)
    """Its samples at the receiver's rate, around frequency 0, with mean power 1."""
    number: int  #: chooses its fading; no two emissions of a recording have the same
    offset_hz: float = 0.0  #: from the receiver's carrier
    destination: str = ""
    wire_bytes: int = 0


WIFI = "wifi"  #: the label of all that is sent here
#: Of 802.11g: between a frame and its answer, before a frame, of waiting.
_SIFS_S, _DIFS_S, _SLOT_S = 10e-6, 28e-6, 9e-6
_BACKOFF_SLOTS = 16
_RATES_MBPS = (12, 24, 36, 54)  #: one for each device, drawn with its place
_MCS = (1, 3, 4)
_ACK_MBPS, _ACK_HEADER = 24, bytes([0xD4, 0x00, 0x00, 0x00])
_LLC_BYTES, _ETHERNET_BYTES = bytes.fromhex("aaaa030000000800"), 14  #: in front of an IP packet
_OCCUPIED = {20: 16.6e6, 40: 36.6e6, 80: 76.6e6, 160: 156.6e6}  #: hertz of a channel that have a tone


@dataclass(frozen=True, slots=True)
class Station:
    """A Wi-Fi device of a region: its transmitter and the rates it sends with."""

    transmitter: Transmitter
    rate_mbps: int
    mcs: int


def wifi_emissions(
    region: Region, radio: RadioSettings, seconds: float, seed: int, scenario: Scenario = Scenario.TYPICAL
) -> Iterator[Emission]:
    """Yield the frames of a region in the order of their starts, until `seconds`.

    Each packet of the region becomes a data frame, sent when the channel is free: a packet that comes while
    another is sent waits for its end, for 28 microseconds and for up to fifteen slots more. Nobody collides.
    """
    packets = simulate(region, seconds * radio.time_lapse, seed, scenario)
    packets["time_s"] /= radio.time_lapse
    hosts = Hosts.of(region)
    headers = udp_headers(packets, hosts)
    stations = [_station(region, radio, number) for number in range(len(region.addresses))]
    waits = stream(seed, Use.EMISSIONS, region=region.number, scenario=scenario).integers(
        0, _BACKOFF_SLOTS, len(packets)
    )
    free_s = 0.0
    for row, (arrives_s, wire_bytes, source, destination, _) in enumerate(packets.tolist()):
        start_s = arrives_s if arrives_s > free_s + _DIFS_S else free_s + _DIFS_S + _SLOT_S * int(waits[row])
        if start_s >= seconds:
            return
        mpdu = _mpdu(region, hosts, source, destination, headers[row], wire_bytes - HEADER_BYTES, row)
        frame = _data_frame(stations[source], mpdu, start_s, radio, 2 * row)
        yield replace(frame, destination=region.addresses[destination], wire_bytes=wire_bytes)
        answer_s = start_s + frame.duration_s + _SIFS_S
        answer = _acknowledgement(stations[destination], bytes(hosts.hardware[source]), answer_s, radio, 2 * row + 1)
        if answer_s < seconds:
            yield replace(answer, destination=region.addresses[source])
        free_s = answer_s + answer.duration_s


def _station(region: Region, radio: RadioSettings, number: int) -> Station:
    rng = stream(radio.place_seed, Use.EMISSIONS, region=region.number, node=number + 1)  # 0: the region's own draws
    transmitter = place_transmitter(
        radio, region.addresses[number], region.number, number, radio.wifi_dbm, is_router=number == region.router
    )
    return Station(transmitter, int(rng.choice(_RATES_MBPS)), int(rng.choice(_MCS)))


def _mpdu(
    region: Region, hosts: Hosts, source: int, destination: int, header: np.void, payload_bytes: int, number: int
) -> bytes:
    """Return a data frame: the IP packet of a simulated packet, with zeros as its payload."""
    router, own, other = (hosts.hardware[index].tobytes() for index in (region.router, source, destination))
    packet = _LLC_BYTES + header.tobytes()[_ETHERNET_BYTES:] + bytes(payload_bytes)
    if source == region.router:
        return data_mpdu(packet, other, router, own, number)
    return data_mpdu(packet, router, own, other, number, to_access_point=True)


def _data_frame(station: Station, mpdu: bytes, start_s: float, radio: RadioSettings, number: int) -> Emission:
    scrambler = 1 + number % 127
    if radio.bandwidth_mhz == 20:
        rate = station.rate_mbps
        waveform = partial(legacy_frame, mpdu, rate, seed=scrambler, oversampling=radio.oversampling)
        duration_s, what = _legacy_s(len(mpdu), rate), f"802.11g data, {rate} Mb/s"
    else:
        psdu, mcs, width = ampdu([mpdu]), station.mcs, radio.bandwidth_mhz
        waveform = partial(vht_frame, psdu, width, mcs, seed=scrambler, oversampling=radio.oversampling)
        duration_s = 40e-6 + 4e-6 * vht_extent(len(psdu), width, mcs).n_symbols
        what = f"802.11ac data, {width} MHz, MCS {mcs}"
    comment = f"{what}, {len(mpdu)} bytes"
    width_hz = _OCCUPIED[radio.bandwidth_mhz]
    return Emission(start_s, duration_s, station.transmitter, WIFI, comment, width_hz, waveform, number)


def _acknowledgement(station: Station, receiver: bytes, start_s: float, radio: RadioSettings, number: int) -> Emission:
    """Return the answer to a frame, in the lowest 20 MHz of the channel, which are the primary ones here."""
    frame = with_check_sequence(_ACK_HEADER + receiver)
    oversampling = radio.oversampling * radio.bandwidth_mhz / 20
    waveform = partial(legacy_frame, frame, _ACK_MBPS, seed=1 + number % 127, oversampling=oversampling)
    offset_hz = -(radio.bandwidth_mhz / 2 - 10) * 1e6
    duration_s, comment = _legacy_s(len(frame), _ACK_MBPS), f"802.11g acknowledgement, {_ACK_MBPS} Mb/s"
    return Emission(start_s, duration_s, station.transmitter, WIFI, comment, _OCCUPIED[20], waveform, number, offset_hz)


def _legacy_s(n_bytes: int, rate_mbps: int) -> float:
    return 20e-6 + 4e-6 * legacy_extent(n_bytes, rate_mbps).n_symbols


BLUETOOTH = "bluetooth"  #: the label of all that is sent here
SLOT_S = 625e-6
_TICKS = 2  #: of the clock, in a slot
_FIRST_CLOCKS = 2**24  #: at which the pair may be when it starts to send: the hops of hours
_CHANNEL_HZ = 1e6
_PAYLOAD_BYTES, _PACKET_BITS = 27, 366  #: of a full DH1
_ADDRESS = 0x001B_DC9E_8B33
_NAMES = ("00:1b:dc:9e:8b:33", "00:1b:dc:9e:8b:34")  #: of the central device, whose address it is, and of the other
_FIRST_NODE = 1000  #: of the places: beyond every node of a region
_FIRST_NUMBER = 2**31  #: of the emissions: beyond every Wi-Fi frame


def intruder_emissions(
    radio: RadioSettings, from_s: float, until_s: float, seed: int, region: int
) -> Iterator[Emission]:
    """Yield the packets of the pair that lie in the receiver's band, in the order of their starts.

    One device sends in the even slots, the other answers in the odd ones. Nobody listens first: a packet may lie on top
    of a Wi-Fi frame. What lies outside of the band, or across its edge, is not received.
    """
    pair = [
        place_transmitter(radio, name, region, _FIRST_NODE + node, radio.bluetooth_dbm, is_router=False)
        for node, name in enumerate(_NAMES)
    ]
    first = int(stream(seed, Use.BLUETOOTH, region=region).integers(_FIRST_CLOCKS)) * 2 * _TICKS
    clocks = first + _TICKS * np.arange(math.ceil((until_s - from_s) / SLOT_S))
    for slot, channel in enumerate(hops(clocks, _ADDRESS).tolist()):
        offset_hz = br_frequency_hz(channel) - radio.carrier_hz
        if abs(offset_hz) + _CHANNEL_HZ / 2 > radio.rate_hz / 2:
            continue
        rng = stream(seed, Use.EMISSIONS, region=region, node=_FIRST_NUMBER + slot)
        if rng.uniform() >= radio.bluetooth_load:
            continue
        payload = rng.bytes(_PAYLOAD_BYTES)
        yield Emission(
            start_s=from_s + slot * SLOT_S,
            duration_s=_PACKET_BITS * 1e-6,
            transmitter=pair[slot % 2],
            label=BLUETOOTH,
            comment=f"Bluetooth DH1, channel {channel}, {_PAYLOAD_BYTES} bytes",
            bandwidth_hz=_CHANNEL_HZ,
            waveform=partial(br_packet, payload, _ADDRESS, int(clocks[slot]), rate_hz=radio.rate_hz),
            number=_FIRST_NUMBER + slot,
            offset_hz=offset_hz,
            destination=_NAMES[1 - slot % 2],
        )


_NOISE_AT_ONCE = 1 << 16  #: samples that share a generator; part of every stored result
_EARLIEST_S = 1e-6  #: an impulse response may begin so long before its emission
#: The random numbers of one recording: `stream` but for its use and its node (an emission, or a stretch of noise).
Draws = Callable[..., np.random.Generator]


def mix(
    emissions: Iterable[Emission],
    radio: RadioSettings,
    seconds: float,
    draws: Draws,
    block_samples: int = 4 * _NOISE_AT_ONCE,
) -> Iterator[Complex]:
    """Yield what is received from time 0 on; the blocks' size does not change a sample.

    Parameters
    ----------
    emissions
        In the order of their starts. Only those that are being sent are in memory.
    """
    n_samples = round(seconds * radio.rate_hz)
    waiting = iter(emissions)
    coming = next(waiting, None)
    being_sent: list[tuple[int, Complex]] = []
    for begin in range(0, n_samples, block_samples):
        end = min(begin + block_samples, n_samples)
        while coming is not None and (coming.start_s - _EARLIEST_S) * radio.rate_hz < end:
            being_sent.append(receive_emission(coming, radio, draws))
            coming = next(waiting, None)
        block = _noise(radio, draws, begin, end)
        for start, samples in being_sent:
            first, last = max(start, begin), min(start + len(samples), end)
            if first < last:
                block[first - begin : last - begin] += samples[first - start : last - start]
        being_sent = [(start, samples) for start, samples in being_sent if start + len(samples) > end]
        yield block


def receive_emission(emission: Emission, radio: RadioSettings, draws: Draws) -> tuple[int, Complex]:
    """Return the number of an emission's first sample on the receiver's time line, and its samples as received."""
    transmitter, rate_hz = emission.transmitter, radio.rate_hz
    fading = draws(Use.FADING, node=emission.number)
    response, n_early = transmitter.multipath.fade(radio.rician_k_db, fading).response(rate_hz)
    start = round(emission.start_s * rate_hz)
    sent = transmitter.fingerprint.distort(emission.waveform())
    offset_hz = emission.offset_hz + transmitter.fingerprint.carrier_ppm * 1e-6 * (
        radio.carrier_hz + emission.offset_hz
    )
    sent = shift_frequency(sent, offset_hz, rate_hz, start)
    amplitude = np.float32(10 ** ((transmitter.power_dbm - radio.full_scale_dbm) / 20))
    return start - n_early, np.convolve(sent, amplitude * response)


def annotations_of(emissions: Iterable[Emission], radio: RadioSettings) -> list[Annotation]:
    """Return the truth about emissions: who, what, when, in which band."""
    return [
        Annotation(
            sample_start=round(one.start_s * radio.rate_hz),
            sample_count=round(one.duration_s * radio.rate_hz),
            freq_lower_edge=radio.carrier_hz + one.offset_hz - one.bandwidth_hz / 2,
            freq_upper_edge=radio.carrier_hz + one.offset_hz + one.bandwidth_hz / 2,
            label=one.label,
            comment=one.comment,
            generator="tolfl",
            our_source=one.transmitter.address,
            our_destination=one.destination,
            our_wire_bytes=one.wire_bytes,
            our_power_dbm=round(one.transmitter.power_dbm, 2),
        )
        for one in emissions
    ]


def _noise(radio: RadioSettings, draws: Draws, begin: int, end: int) -> Complex:
    """Return noise by its place on the time line: a sample that is made again is the same."""
    pieces = []
    for number in range(begin // _NOISE_AT_ONCE, -(-end // _NOISE_AT_ONCE)):
        piece = noise(draws(Use.NOISE, node=number), _NOISE_AT_ONCE, radio.noise_power)
        first = number * _NOISE_AT_ONCE
        pieces.append(piece[max(begin - first, 0) : end - first])
    return np.concatenate(pieces)


_MOST_BYTES = 64e9  #: more is a typing error
#: Which recordings are made of each region: without and with an intruder, who comes after half of the time.
KINDS = {"typical": Scenario.TYPICAL, "bluetooth": Scenario.BLUETOOTH}


class Scene(msgspec.Struct, frozen=True):
    """What is recorded: a region for some time, with traffic of its own in every scenario."""

    region: Region
    seconds: float = 0.5
    seed: int = 0  #: of traffic, fading and noise; where everybody stands is the radio settings' business
    scenario: Scenario = Scenario.TYPICAL
    intruder_from_s: float | None = None  #: when a pair of Bluetooth devices starts to send; None: never
    radio: RadioSettings = RadioSettings()

    def check(self) -> Scene:
        """Return the scene itself, or raise SpecError."""
        self.radio.check()
        if not 1 <= self.seconds * self.radio.rate_hz <= _MOST_BYTES / 8:
            most = _MOST_BYTES / 8 / self.radio.rate_hz
            raise SpecError(f"a recording of {self.seconds:g} s; use a number above 0 and at most {most:.0f}")
        if self.intruder_from_s is not None and not 0 <= self.intruder_from_s < self.seconds:
            raise SpecError(
                f"an intruder after {self.intruder_from_s:g} s in a recording of {self.seconds:g} s; use a time in it"
            )
        return self

    def emissions(self) -> Iterator[Emission]:
        """Yield everything that is sent, in the order of starts."""
        typical = wifi_emissions(self.region, self.radio, self.seconds, self.seed, self.scenario)
        if self.intruder_from_s is None:
            return typical
        intruder = intruder_emissions(self.radio, self.intruder_from_s, self.seconds, self.seed, self.region.number)
        return heapq.merge(typical, intruder, key=lambda emission: emission.start_s)

    def samples(self) -> Iterator[Complex]:
        """Yield what is received, a block at a time."""
        draws = partial(stream, self.seed, region=self.region.number, scenario=self.scenario)
        return mix(self.emissions(), self.radio, self.seconds, draws)


def write_scene(path: Path, scene: Scene, datatype: WrittenType = "ci16_le") -> Path:
    """Write what is received, with every emission annotated, and return the path of the metadata."""
    scene.check()
    region, radio = scene.region, scene.radio
    return write_recording(
        path,
        scene.samples(),
        rate_hz=radio.rate_hz,
        frequency_hz=radio.carrier_hz,
        annotations=annotations_of(scene.emissions(), radio),
        datatype=datatype,
        about={
            "core:description": f"Simulated: region {region.number} of Comms-ML, seed {scene.seed}.",
            "core:hw": f"None: simulated. Full scale is {radio.full_scale_dbm:g} dBm.",
            f"{EXTENSION}:router": region.addresses[region.router],
            f"{EXTENSION}:time_lapse": radio.time_lapse,
        },
    )


def scenes(
    seconds: float, seed: int, regions: Sequence[Region] | None = None, radio: RadioSettings | None = None
) -> dict[str, list[Scene]]:
    """Return the scenes of regions (default: 1 to 3) by kind: the same places, but every scene has its own traffic.

    The typical ones have no intruder; in the others it comes after half of the time.
    """
    return {
        kind: [
            Scene(
                region, seconds, seed, scenario, seconds / 2 if kind == "bluetooth" else None, radio or RadioSettings()
            )
            for region in regions or default_regions()[:3]
        ]
        for kind, scenario in KINDS.items()
    }
