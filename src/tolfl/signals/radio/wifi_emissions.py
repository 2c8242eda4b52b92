"""The packets of a region as Wi-Fi frames on the air: one at a time, each answered by an acknowledgement."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tolfl.signals.captures.ethernet import Hosts, udp_headers
from tolfl.signals.network import Region, simulate
from tolfl.signals.packets import Packets
from tolfl.signals.radio.air import AirSettings, Emission, Emitter, place_emitter
from tolfl.signals.streams import Scenario, Use, stream
from tolfl.signals.wifi import ampdu, legacy_frame, vht_frame, with_check_sequence
from tolfl.signals.wifi.rates import legacy_extent, vht_extent

Complex = NDArray[np.complex64]

WIFI = "wifi"  #: the label of all that is sent here
_SIFS_S, _DIFS_S, _SLOT_S = (
    10e-6,
    28e-6,
    9e-6,
)  #: of 802.11g; between a frame and its answer, before a frame, of waiting
_BACKOFF_SLOTS = 16
_RATES_MBPS = (12, 24, 36, 54)  #: one for each device, drawn with its place
_MCS = (1, 3, 4)
_ACK_MBPS, _ACK_HEADER = 24, bytes([0xD4, 0x00, 0x00, 0x00])
_TO_ROUTER, _FROM_ROUTER = bytes([0x88, 0x01]), bytes([0x88, 0x02])  #: QoS data
_LLC_BYTES = bytes.fromhex("aaaa030000000800")
_OCCUPIED = {20: 16.6e6, 40: 36.6e6, 80: 76.6e6, 160: 156.6e6}  #: hertz of a channel that have a tone


@dataclass(frozen=True, slots=True)
class _Station:
    emitter: Emitter
    rate_mbps: int
    mcs: int


def wifi_emissions(
    region: Region, air: AirSettings, seconds: float, seed: int, scenario: Scenario = Scenario.TYPICAL
) -> Iterator[Emission]:
    """Yield the frames of a region in the order of their starts, until `seconds`.

    Each packet of the region's transcript becomes a data frame, sent when the air is free: a packet that comes while
    another is on the air waits for its end, for 28 microseconds and for up to fifteen slots more. Nobody collides.
    """
    packets = _hurried(simulate(region, seconds * air.time_lapse, seed, scenario), air.time_lapse)
    hosts = Hosts.of(region)
    headers = udp_headers(packets, hosts)
    stations = [_station(region, air, number) for number in range(len(region.addresses))]
    waits = stream(seed, Use.AIR, region=region.number, scenario=scenario).integers(0, _BACKOFF_SLOTS, len(packets))
    wire_bytes = packets.wire_bytes.tolist()
    free_s = 0.0
    for row, arrives_s in enumerate(packets.time_s.tolist()):
        start_s = arrives_s if arrives_s > free_s + _DIFS_S else free_s + _DIFS_S + _SLOT_S * int(waits[row])
        if start_s >= seconds:
            return
        source, destination = int(packets.source[row]), int(packets.destination[row])
        mpdu = _mpdu(region, hosts, source, destination, headers[row], int(packets.payload_bytes[row]), row)
        frame = _data_frame(stations[source], mpdu, start_s, air, 2 * row)
        yield replace(frame, destination=region.addresses[destination], wire_bytes=wire_bytes[row])
        answer_s = start_s + frame.duration_s + _SIFS_S
        answer = _acknowledgement(stations[destination], bytes(hosts.hardware[source]), answer_s, air, 2 * row + 1)
        if answer_s < seconds:
            yield replace(answer, destination=region.addresses[source])
        free_s = answer_s + answer.duration_s


def _hurried(packets: Packets, factor: float) -> Packets:
    return replace(packets, time_s=packets.time_s / factor)


def _station(region: Region, air: AirSettings, number: int) -> _Station:
    rng = stream(air.place_seed, Use.AIR, region=region.number, node=number + 1)  # 0: the region's own draws
    emitter = place_emitter(
        air, region.addresses[number], region.number, number, air.wifi_dbm, is_router=number == region.router
    )
    return _Station(emitter, int(rng.choice(_RATES_MBPS)), int(rng.choice(_MCS)))


def _mpdu(
    region: Region, hosts: Hosts, source: int, destination: int, header: np.void, payload_bytes: int, number: int
) -> bytes:
    """Return a data frame: the IP packet of a transcript's packet, with zeros as its payload."""
    router, own, other = (hosts.hardware[index].tobytes() for index in (region.router, source, destination))
    is_down = source == region.router
    control, addresses = (_FROM_ROUTER, other + router + own) if is_down else (_TO_ROUTER, router + own + other)
    sequence = (number % 4096 << 4).to_bytes(2, "little")
    ip_header = header.tobytes()[14:]
    qos_header = control + bytes(2) + addresses + sequence + bytes(2)
    return with_check_sequence(qos_header + _LLC_BYTES + ip_header + bytes(payload_bytes))


def _data_frame(station: _Station, mpdu: bytes, start_s: float, air: AirSettings, number: int) -> Emission:
    scrambler = 1 + number % 127
    if air.bandwidth_mhz == 20:
        rate = station.rate_mbps
        waveform = partial(legacy_frame, mpdu, rate, seed=scrambler, oversampling=air.oversampling)
        duration_s, what = _legacy_s(len(mpdu), rate), f"802.11g data, {rate} Mb/s"
    else:
        psdu, mcs, width = ampdu([mpdu]), station.mcs, air.bandwidth_mhz
        waveform = partial(vht_frame, psdu, width, mcs, seed=scrambler, oversampling=air.oversampling)
        duration_s = 40e-6 + 4e-6 * vht_extent(len(psdu), width, mcs).n_symbols
        what = f"802.11ac data, {width} MHz, MCS {mcs}"
    comment = f"{what}, {len(mpdu)} bytes"
    width_hz = _OCCUPIED[air.bandwidth_mhz]
    return Emission(start_s, duration_s, station.emitter, WIFI, comment, width_hz, waveform, number)


def _acknowledgement(station: _Station, receiver: bytes, start_s: float, air: AirSettings, number: int) -> Emission:
    """Return the answer to a frame, in the lowest 20 MHz of the channel, which are the primary ones here."""
    frame = with_check_sequence(_ACK_HEADER + receiver)
    waveform = partial(
        legacy_frame, frame, _ACK_MBPS, seed=1 + number % 127, oversampling=air.oversampling * air.bandwidth_mhz / 20
    )
    offset_hz = -(air.bandwidth_mhz / 2 - 10) * 1e6
    comment = f"802.11g acknowledgement, {_ACK_MBPS} Mb/s"
    return Emission(
        start_s, _legacy_s(len(frame), _ACK_MBPS), station.emitter, WIFI, comment, _OCCUPIED[20], waveform, number,
        offset_hz=offset_hz,
    )  # fmt: skip


def _legacy_s(n_bytes: int, rate_mbps: int) -> float:
    return 20e-6 + 4e-6 * legacy_extent(n_bytes, rate_mbps).n_symbols
