"""Attacks put into a real capture of 802.11, and receivers with another gain: which windows raise an alarm.

`python -m benchmarks.field`; the capture `pmkid-not-recognized.cap` is looked for in `captures` of --data-dir or
TOLFL_DATA. It holds floods of its own: the fit takes seconds 0 to 190 less what is near them, the attack and the count
lie in seconds 208 to 275. Ten seeds move the attack. The ten seconds behind a flood, ours or the capture's own, are not
counted: sums echo it.
"""

from __future__ import annotations

import argparse
import math
import os
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tolfl.detect import DetectorSpec, fit_detector
from tolfl.detect.detector import Detector
from tolfl.detect.features import Features
from tolfl.detect.novelty import LIMIT
from tolfl.signals.capture_rows import CAPTURE_GRID, window_rows
from tolfl.signals.pcap import CaptureSummary
from tolfl.signals.receiver import Tuning, raw_rows, receiver_names
from tolfl.signals.wlan import CaptureNetworks, Networks, bursts_in, networks_in
from tolfl.watch.alarm_events import EventGroups, ScoredWindow

CAPTURE = "pmkid-not-recognized.cap"
FIT_S, COUNT_S, ATTACK_S, ECHO_S = (0, 190), (208, 275), 20, 10
_HEADER, _RECORD = 24, 16
_STATION, _NETWORK = bytes.fromhex("a4c3f0112233"), bytes.fromhex("0018e7aabbcc")
_OWN_NETWORK = bytes.fromhex("8cdef9d0b461")  #: the one that the capture is of, called WML
_OTHER_NETWORK = bytes.fromhex("00259c112233")

Frames = list[tuple[float, bytes]]  #: seconds since the capture began, and the frame
Attack = Callable[[np.random.Generator, float], Frames]


class Change(NamedTuple):
    """An attack that changes what the capture has."""

    of: Callable[[bytes, float], bytes]


def deauthentications(per_second: float) -> Attack:
    """Return a flood: both directions, as tools send it."""

    def frames(rng: np.random.Generator, start_s: float) -> Frames:
        times = np.arange(0, ATTACK_S, 1 / per_second) + rng.uniform(0, 0.2 / per_second)
        return [
            (start_s + float(one), _management(12, *pair, number) + b"\x07\x00")
            for number, one in enumerate(times)
            for pair in [((_STATION, _NETWORK) if number % 2 else (_NETWORK, _STATION))]
        ]

    return frames


def network(per_second: float, address: bytes, name: bytes) -> Attack:
    """Return beacons of a network with a clock of its own."""

    def frames(rng: np.random.Generator, start_s: float) -> Frames:
        found = []
        for number, one in enumerate(np.arange(0, ATTACK_S, 1 / per_second) + rng.uniform(0, 0.2 / per_second)):
            clock_us = round((start_s + one) * 1e6) + 10**12
            body = struct.pack("<QHHBB", clock_us, 100, 0x0411, 0, len(name)) + name
            found.append((start_s + float(one), _management(8, b"\xff" * 6, address, number) + body))
        return found

    return frames


def twin(rng: np.random.Generator, start_s: float) -> Frames:
    """Return beacons of two networks under one name, ten a second each."""
    other = bytes.fromhex("02deadbeef01")
    found = []
    for number, one in enumerate(np.arange(0, ATTACK_S, 0.1) + rng.uniform(0, 0.05)):
        for place, own in enumerate((_NETWORK, other)):
            body = struct.pack("<QHH", round((start_s + one) * 1e6) + place, 100, 0x0411) + b"\x00\x05tests"
            found.append((start_s + float(one) + place * 0.001, _management(8, b"\xff" * 6, own, number) + body))
    return found


def _management(subtype: int, receiver: bytes, sender: bytes, number: int) -> bytes:
    bssid = _NETWORK if subtype == 12 else sender
    return bytes([subtype << 4, 0]) + bytes(2) + receiver + sender + bssid + struct.pack("<H", (number % 4096) << 4)


def with_frames(content: bytes, frames: Frames) -> bytes:
    """Return a capture (pcap, little-endian, microseconds) with further frames at their times."""
    records, at = [], _HEADER
    while at + _RECORD <= len(content):
        seconds, micros, captured, _ = struct.unpack_from("<IIII", content, at)
        if at + _RECORD + captured > len(content):
            break
        records.append((seconds * 10**6 + micros, content[at : at + _RECORD + captured]))
        at += _RECORD + captured
    first = records[0][0]
    for when_s, data in frames:
        when = first + round(when_s * 1e6)
        records.append((when, struct.pack("<IIII", when // 10**6, when % 10**6, len(data), len(data)) + data))
    return content[:_HEADER] + b"".join(record for _, record in sorted(records, key=lambda one: one[0]))


def without_frames(content: bytes, start_s: float) -> bytes:
    """Return a capture in which nothing was heard while somebody jams."""
    kept, at, first = [content[:_HEADER]], _HEADER, None
    while at + _RECORD <= len(content):
        seconds, micros, captured, _ = struct.unpack_from("<IIII", content, at)
        when = seconds * 10**6 + micros
        first = when if first is None else first
        if not start_s <= (when - first) / 1e6 < start_s + ATTACK_S:
            kept.append(content[at : at + _RECORD + captured])
        at += _RECORD + captured
    return b"".join(kept)


def replaced(content: bytes, start_s: float) -> bytes:
    """Return a capture in which another network takes the place of the capture's own, with all its frames."""
    found, at, first = bytearray(content), _HEADER, None
    while at + _RECORD <= len(content):
        seconds, micros, captured, _ = struct.unpack_from("<IIII", content, at)
        when = seconds * 10**6 + micros
        first = when if first is None else first
        frame = slice(at + _RECORD, at + _RECORD + captured)
        if start_s <= (when - first) / 1e6 < start_s + ATTACK_S:
            found[frame] = content[frame].replace(_OWN_NETWORK, _OTHER_NETWORK)
        at += _RECORD + captured
    return bytes(found)


def rows_of(path: Path, known: Networks | None) -> tuple[tuple[str, ...], NDArray[np.float64], NDArray[np.float64]]:
    """Return names, features and seconds since the first whole window of a capture."""
    parts = list(window_rows([path], known=known))
    features, starts = np.concatenate([one.features for one in parts]), np.concatenate([one.start_s for one in parts])
    return parts[0].names, features, starts - starts[0]


def known_of(path: Path) -> CaptureNetworks:
    """Return the networks of the seconds that are learned from."""
    content, at = path.read_bytes(), _HEADER
    first_s = _first_packet_s(content)
    while at + _RECORD <= len(content) and struct.unpack_from("<I", content, at)[0] < first_s + FIT_S[1]:
        at += _RECORD + struct.unpack_from("<8xI", content, at)[0]
    with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
        file.write(content[:at])
        file.flush()
        heard = networks_in([Path(file.name)], CAPTURE_GRID)
    assert heard is not None
    return heard


def fitted(path: Path, seed: int, known: Networks) -> Detector:
    """Return a detector of the quiet seconds of the capture."""
    names, features, second = rows_of(path, known)
    is_used = (second > FIT_S[0]) & (second < FIT_S[1]) & ~bursts_in(names, features, second)[0]
    return fit_detector({"all": features[is_used].astype(np.float32)}, DetectorSpec(seed=seed), Features.named(names))


def opened_after_s(
    detector: Detector, features: NDArray[np.float64], second: NDArray[np.float64], begin: float
) -> float:
    """Return how long after the begin of an attack the window ends that opens a group of alarms (by novelty alone)."""
    assert detector.novelty is not None
    groups, scores = EventGroups("", "", ""), detector.novelty.scores(features)
    for score, start in zip(scores.tolist(), second.tolist(), strict=True):
        events = groups.take(ScoredWindow("", start, score, LIMIT, 1.0))
        if start + 1 > begin and any(event.event == "open" for event in events):
            return float(start) + 1 - begin
    return math.inf


def measured(path: Path, seed: int, attack: Attack | Change) -> tuple[float, float, int, float]:
    """Return the shares of attacked and other windows that raise an alarm, how many others, and when a group opens."""
    heard = known_of(path)
    detector = fitted(path, seed, heard.of_several_windows)
    rng = np.random.default_rng(seed)
    start_s = float(rng.integers(COUNT_S[0] + 2, COUNT_S[1] - ATTACK_S - 2))
    content = path.read_bytes()
    changed = attack.of(content, start_s) if isinstance(attack, Change) else with_frames(content, attack(rng, start_s))
    with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
        file.write(changed)
        file.flush()
        names, features, second = rows_of(Path(file.name), heard.all)
    del names
    alarms = detector.verdicts(features.astype(np.float32))
    offset = _first_packet_s(content) % 1.0
    begin = start_s + offset  # windows begin at whole seconds, the attack counts from the first packet
    is_attacked = (second + 1 > begin + 0.5) & (second < begin + ATTACK_S - 0.5)
    is_echo = (second >= begin - 1) & (second < begin + ATTACK_S + ECHO_S + 1) & ~is_attacked
    own_names, own, own_second = rows_of(path, heard.all)
    after_floods = own_second[bursts_in(own_names, own, own_second)[0]]
    is_counted = (second >= COUNT_S[0]) & (second < COUNT_S[1]) & ~np.isin(second, after_floods)
    others = alarms[is_counted & ~is_attacked & ~is_echo]
    after_s = opened_after_s(detector, features, second, begin)
    return float(alarms[is_attacked].mean()), float(others.mean()) if len(others) else 0.0, int(others.sum()), after_s


def _first_packet_s(content: bytes) -> float:
    seconds, micros = struct.unpack_from("<II", content, _HEADER)
    return float(seconds + micros / 1e6)


def packets_per_second(path: Path, n_copies: int = 40) -> float:
    """Return how many packets of a capture become rows in a second of the processor."""
    content = path.read_bytes()[:-1000]
    with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
        file.write(content[:_HEADER])
        body, shift = with_frames(content, [])[_HEADER:], 0
        for _ in range(n_copies):
            moved, at = bytearray(body), 0
            while at < len(moved):
                seconds, captured = struct.unpack_from("<I4xI", moved, at)
                struct.pack_into("<I", moved, at, seconds + shift)
                at += _RECORD + captured
            file.write(moved)
            shift += 381
        file.flush()
        began = time.process_time()
        summary = CaptureSummary()
        for _ in window_rows([Path(file.name)], summary=summary):
            pass
        return summary.n_packets / (time.process_time() - began)


def receiver_rows(path: Path, gain: float = 1.0) -> NDArray[np.float64]:
    """Return the features of a recording of 8 bits, as if it had been received with another gain."""
    numbers = np.fromfile(path, np.uint8)
    with tempfile.NamedTemporaryFile(suffix="_0M_250k.cf32") as file:
        file.write(((numbers[: len(numbers) // 2 * 2].astype(np.float32) - 127.5) / 128 * gain).tobytes())
        file.flush()
        return np.concatenate([one.features for one in raw_rows(Path(file.name), Tuning(), [])])


def receivers(folder: Path, gains: tuple[float, ...] = (0.25, 0.5, 2.0, 4.0)) -> None:
    """Print what another gain, and the silence of another receiver, do to alarms; a kit is a folder of recordings."""
    names = Features.named(receiver_names(250e3))
    kits = {
        kit.name: [one for one in sorted(kit.glob("*.cu8")) if "1000k" not in one.name]
        for kit in sorted(folder.iterdir())
        if kit.is_dir()
    }
    rows = {kit: np.concatenate([receiver_rows(one) for one in files]) for kit, files in kits.items()}
    for kit, own in rows.items():
        detector = fit_detector({kit: own.astype(np.float32)}, DetectorSpec(), names)
        before = detector.verdicts(own.astype(np.float32))
        changed = []
        for gain in gains:
            louder = np.concatenate([receiver_rows(one, gain) for one in kits[kit]])
            changed.append(f"x{gain:g} {np.mean(detector.verdicts(louder.astype(np.float32)) != before):.1%}")
        silent = np.concatenate([other[other[:, 3] == 0] for name, other in rows.items() if name != kit])
        alarms = detector.verdicts(silent.astype(np.float32))
        print(f"{kit:<12}{len(own)} windows; changed verdicts {', '.join(changed)}; "
              f"{alarms.sum()} of {len(silent)} silent windows of others alarmed ({alarms.mean():.1%})")  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", default=os.environ.get("TOLFL_DATA", "../shared/data"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--receivers", action="store_true", help="only the recordings of receivers")
    asked = parser.parse_args()
    if asked.receivers:
        receivers(Path(asked.data_dir) / "recordings")
        return
    path = Path(asked.data_dir) / "captures" / CAPTURE
    if not path.exists():
        sys.exit(f"{path}: no such file; name the folder with --data-dir")
    attacks: dict[str, Attack | Change] = {
        f"de-authentication, {rate:g}/s": deauthentications(rate) for rate in (64, 10, 2)
    }
    attacks |= {
        "twin": twin,
        "new network, 2/s": network(2, _OTHER_NETWORK, b"other"),
        "same address and name, 1/s": network(1, _OWN_NETWORK, b"WML"),
        "network in another's place": Change(replaced),
        "jammer": Change(without_frames),
    }
    print(f"{'attack':<28}{'attacked windows, mean (worst)':<34}other windows, most of one seed; opened after, worst")
    for name, attack in attacks.items():
        found = [measured(path, seed, attack) for seed in range(asked.seeds)]
        hits, others, worst_s = [one[0] for one in found], [one[2] for one in found], max(one[3] for one in found)
        print(f"{name:<28}{f'{np.mean(hits):.1%} ({min(hits):.1%})':<34}{max(others)}; {worst_s:.1f} s")
    print(f"{packets_per_second(path):,.0f} packets per second of the processor, from a file into rows")


if __name__ == "__main__":
    main()
