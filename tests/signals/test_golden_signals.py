"""Golden values of generated traffic, captures and waveforms: a seed gives the same data in every version.

Traffic and captures are compared byte by byte. Waveforms go through sine and cosine, whose last bits depend on the
processor, so a projection of their samples is compared to six digits.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.signals.files import sampling_file, sim_file, written
from tolfl.core.spec import CommsMLSettings
from tolfl.signals.bluetooth import br_packet
from tolfl.signals.comms_ml_generator import comms_ml
from tolfl.signals.pcap_writer import write_pcap
from tolfl.signals.published_configs import read_sampling_config, read_sim_config, sample_configs
from tolfl.signals.radio import RadioSettings
from tolfl.signals.scene import scenes
from tolfl.signals.traffic import default_regions, published_regions, simulate
from tolfl.signals.wifi import data_mpdu, legacy_frame
from tolfl.signals.wifi_vht import ampdu, vht_frame
from tolfl.signals.windows import HEADER_BYTES

ADDRESSES = (bytes.fromhex("020000000002"), bytes.fromhex("020000000001"), bytes.fromhex("020000000001"))
MPDU = data_mpdu(bytes(range(100)), *ADDRESSES)


def digest(*arrays: NDArray[np.generic]) -> str:
    content = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
    return hashlib.sha256(content).hexdigest()[:16]


def projection(samples: NDArray[np.generic]) -> float:
    """Return one number that depends on every sample and on its place."""
    flat = np.asarray(samples).ravel()
    weights = np.random.default_rng(0).uniform(0.5, 1.5, (2, len(flat)))
    return float((flat.real * weights[0]).sum() + (flat.imag * weights[1]).sum() + (np.abs(flat) * weights[0]).sum())


@pytest.mark.parametrize(
    ("region", "expected"),
    [
        ("default-2", "c1a971369709730f"),
        ("default-4", "4533332b2e378985"),
        ("published-2", "d253c73cf43fd146"),
        ("published-3", "6308ab485466f642"),
    ],
)
def test_the_traffic_of_a_seed_stays_the_same(region: str, expected: str) -> None:
    family, _, number = region.partition("-")
    regions = default_regions() if family == "default" else published_regions()
    packets = simulate(regions[int(number) - 1], 3600.0, seed=7)

    addresses = (packets["source"], packets["destination"])
    assert digest(packets["time_s"], packets["wire_bytes"] - HEADER_BYTES, *addresses, packets["protocol"]) == expected


def test_the_capture_of_a_seed_stays_the_same(tmp_path: Path) -> None:
    region = default_regions()[2]
    write_pcap(tmp_path, "region-3", simulate(region, 600.0, seed=7), region)

    assert hashlib.sha256((tmp_path / "region-3.pcap").read_bytes()).hexdigest()[:16] == "006941080e61f885"


@pytest.mark.parametrize(("variant", "expected"), [("default", 619_119.98466), ("published", 10_017_011.809)])
def test_the_samples_of_a_seed_stay_the_same(variant: Literal["default", "published"], expected: float) -> None:
    samples = comms_ml(7, CommsMLSettings(windows_per_region=20, variant=variant))

    assert projection(samples.features[:2000]) == pytest.approx(expected, rel=1e-6)


def test_the_samples_of_configuration_files_stay_the_same(tmp_path: Path) -> None:
    sim = read_sim_config(written(tmp_path, sim_file(), "sim.json"))
    sampling = read_sampling_config(written(tmp_path, sampling_file(), "sampling.json"))

    assert projection(sample_configs(sim, sampling).features) == pytest.approx(1_452_718.6092, rel=1e-6)


@pytest.mark.parametrize(
    ("bandwidth_mhz", "kind", "expected"),
    [(20, "typical", 2045.28303), (20, "bluetooth", 436.99313), (80, "typical", 3124.85621)],
)
def test_the_recording_of_a_seed_stays_the_same(bandwidth_mhz: int, kind: str, expected: float) -> None:
    scene = scenes(0.01, 7, default_regions()[1:2], RadioSettings(bandwidth_mhz=bandwidth_mhz))[kind][0]

    assert projection(np.concatenate(list(scene.samples()))) == pytest.approx(expected, rel=1e-6)


def test_frames_stay_the_same() -> None:
    frames = {
        "legacy": legacy_frame(MPDU, 36, oversampling=2, window_s=1e-7),
        "vht-160": vht_frame(ampdu([MPDU]), 160, 7, short_gi=True, oversampling=1.5),
        "vht-40": vht_frame(ampdu([MPDU, MPDU]), 40, 3, seed=5, window_s=1e-7),
        "bluetooth": br_packet(b"hello", 0x2A96EF25, 0x10, rate_hz=20e6),
        "bluetooth-long": br_packet(bytes(200), 0x2A96EF25, 0x10, rate_hz=3.3e6, packet_type="DH5"),
    }

    assert {name: projection(frame) for name, frame in frames.items()} == pytest.approx(
        {
            "legacy": 1910.582109,
            "vht-160": 9044.404519,
            "vht-40": 3013.568137,
            "bluetooth": 4291.430607,
            "bluetooth-long": 5786.014045,
        },
        rel=1e-6,
    )
