"""What a receiver hears: every emission where and as strong as its annotation says, whatever the blocks."""

from __future__ import annotations

import math
import zlib
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.signals.wifi_receiver import receive
from tolfl.core.errors import SpecError
from tolfl.signals.radio import Fingerprint, Multipath, RadioSettings, Transmitter, path_loss_db, place_transmitter
from tolfl.signals.scene import (
    BLUETOOTH,
    WIFI,
    Emission,
    Scene,
    annotations_of,
    intruder_emissions,
    mix,
    receive_emission,
    scenes,
    wifi_emissions,
)
from tolfl.signals.traffic import Scenario, default_regions, stream

AIR = RadioSettings()
REGION = default_regions()[0]
DRAWS = partial(stream, 5, region=1)


def heard(scene: Scene) -> NDArray[np.complex64]:
    return np.concatenate(list(scene.samples()))


@settings(max_examples=5)
@given(st.integers(20_000, 300_000))
def test_the_size_of_the_blocks_does_not_change_a_sample(block_samples: int) -> None:
    emissions = list(Scene(default_regions()[2], 0.02, 3, intruder_from_s=0.0).emissions())
    once = np.concatenate(list(mix(emissions, AIR, 0.02, DRAWS, 400_000)))
    in_blocks = list(mix(emissions, AIR, 0.02, DRAWS, block_samples))

    assert len(emissions) > 5
    assert np.array_equal(np.concatenate(in_blocks), once)
    assert max(map(len, in_blocks)) <= block_samples


def test_the_same_scene_sounds_the_same_and_others_do_not() -> None:
    scene = Scene(REGION, 0.01, 1)

    assert np.array_equal(heard(scene), heard(scene))
    elsewhere = Scene(default_regions()[1], 0.01, 1)
    for other in map(heard, (Scene(REGION, 0.01, 2), Scene(REGION, 0.01, 1, Scenario.BLUETOOTH), elsewhere)):
        assert abs(np.vdot(heard(scene), other)) < 0.1 * np.linalg.norm(heard(scene)) * np.linalg.norm(other)


def test_a_longer_recording_begins_as_the_shorter_one() -> None:
    short, long = heard(Scene(REGION, 0.012, 1)), heard(Scene(REGION, 0.02, 1))

    # What starts just before the end of the shorter one is in both.
    assert np.array_equal(short, long[: len(short)])


def test_silence_is_noise_of_the_power_that_the_settings_say() -> None:
    silence = np.concatenate(list(mix([], AIR, 0.05, DRAWS)))
    expected_dbfs = -173.975 + 10 * math.log10(20e6) + AIR.noise_figure_db - AIR.full_scale_dbm

    assert 10 * np.log10((np.abs(silence) ** 2).mean()) == pytest.approx(expected_dbfs, abs=0.05)


def emission(power_dbm: float, fingerprint: Fingerprint, offset_hz: float = 0.0) -> Emission:
    transmitter = Transmitter("02:00", power_dbm, fingerprint, Multipath(np.zeros(1), np.array([1.0 + 0j])))
    return Emission(0.001, 0.001, transmitter, "tone", "", 1e3, lambda: np.ones(20_000, np.complex64), 0, offset_hz)


def test_an_emission_is_as_strong_as_its_power_says_where_its_oscillator_puts_it() -> None:
    calm = RadioSettings(rician_k_db=math.inf)
    start, samples = receive_emission(emission(-50.0, Fingerprint(carrier_ppm=10.0), 2e6), calm, DRAWS)
    inside = samples[100:-100]
    turns = np.angle(inside[1:] * inside[:-1].conj()).mean() / (2 * np.pi)

    assert start == pytest.approx(0.001 * 20e6, abs=8)
    assert 20 * np.log10(np.abs(inside).mean()) == pytest.approx(-30.0, abs=0.1)  # full scale is -20 dBm
    # 10 ppm of 2.439 GHz on top of the 2 MHz.
    assert turns * 20e6 == pytest.approx(2e6 + 24_390, abs=50)


def test_power_falls_with_the_distance_of_a_device() -> None:
    flat = RadioSettings(shadowing_db=0.0)
    router = place_transmitter(flat, "02:00", 1, 0, 15.0, is_router=True)

    assert router.power_dbm == pytest.approx(15.0 - float(path_loss_db(4.0, flat.carrier_hz)))
    powers = [place_transmitter(flat, "02:00", 1, node, 15.0, is_router=False).power_dbm for node in range(50)]
    assert min(powers) >= 15.0 - float(path_loss_db(19.0, flat.carrier_hz))
    assert len(set(powers)) == 50


def test_wifi_frames_follow_each_other_and_carry_the_packets() -> None:
    frames = list(wifi_emissions(REGION, AIR, 0.5, 1))
    data = [frame for frame in frames if frame.wire_bytes]

    assert len(frames) == 2 * len(data)  # each is answered
    assert all(one.start_s + one.duration_s < other.start_s for one, other in pairwise(frames))
    assert {frame.label for frame in frames} == {WIFI}
    some = frames[:20]
    assert [len(frame.waveform()) for frame in some] == [round(frame.duration_s * 20e6) for frame in some]
    router = REGION.addresses[REGION.router]
    assert all(router in (frame.destination, frame.transmitter.address) for frame in data)


@pytest.mark.parametrize("bandwidth_mhz", [40, 80])
def test_wider_channels_have_wider_frames(bandwidth_mhz: int) -> None:
    wide = RadioSettings(bandwidth_mhz=bandwidth_mhz)
    data, answer = list(wifi_emissions(REGION, wide, 0.05, 1))[:2]

    assert len(data.waveform()) == round(data.duration_s * wide.rate_hz)
    assert len(answer.waveform()) == round(answer.duration_s * wide.rate_hz)
    assert answer.offset_hz == -(bandwidth_mhz / 2 - 10) * 1e6


def test_the_intruder_hops_and_only_what_is_in_the_band_is_heard() -> None:
    packets = list(intruder_emissions(AIR, 0.1, 1.1, 0, 1))
    slots = [(packet.start_s - 0.1) / 625e-6 for packet in packets]

    # Of 1600 slots, 60 % are used, and 19 of 79 channels lie in the 20 MHz around 2437 MHz.
    assert len(packets) == pytest.approx(1600 * 0.6 * 19 / 79, rel=0.25)
    assert np.allclose(slots, np.round(slots), atol=1e-6)
    assert max(abs(packet.offset_hz) for packet in packets) == 9e6
    assert len({packet.offset_hz for packet in packets}) == 19
    assert {packet.label for packet in packets} == {BLUETOOTH}
    assert len(packets[0].waveform()) == round(packets[0].duration_s * 20e6)


def test_annotations_tell_who_sends_what_when_and_in_which_band() -> None:
    scene = Scene(REGION, 0.05, 1, intruder_from_s=0.02)
    notes = annotations_of(scene.emissions(), AIR)
    samples = heard(scene)

    ends = {note: note.sample_start + (note.sample_count or 0) for note in notes}
    first = next(  # that nobody else talks into
        note
        for note in notes
        if note.label == BLUETOOTH
        and all(other.sample_start > ends[note] or ends[other] < note.sample_start for other in notes if other != note)
    )
    begin, end = first.sample_start, ends[first]
    spectrum = np.abs(np.fft.fft(samples[begin:end])) ** 2
    at_hz = AIR.carrier_hz + np.fft.fftfreq(end - begin, 1 / AIR.rate_hz)
    assert first.freq_lower_edge is not None
    assert first.freq_upper_edge is not None
    inside = (at_hz > first.freq_lower_edge) & (at_hz < first.freq_upper_edge)
    assert spectrum[inside].sum() > 10 * spectrum[~inside].sum()
    assert [note.sample_start for note in notes] == sorted(note.sample_start for note in notes)
    assert all(note.our_source and note.our_destination and note.comment for note in notes)


def test_a_wifi_receiver_understands_the_frames_in_the_mixture() -> None:
    scene = Scene(REGION, 0.1, 1)
    samples, notes = heard(scene), annotations_of(scene.emissions(), AIR)
    data = [note for note in notes if note.our_wire_bytes][:12]

    assert len(data) >= 5
    for note in data:
        found = receive(samples[note.sample_start - 40 : note.sample_start + (note.sample_count or 0) + 60])
        assert zlib.crc32(found.psdu[:-4]).to_bytes(4, "little") == found.psdu[-4:]
        assert len(found.psdu) == note.our_wire_bytes - 14 + 26 + 8 + 4  # Wi-Fi's header, LLC and check for Ethernet's
        assert found.psdu[10:16].hex(":") == note.our_source


def test_scenes_share_their_places_but_not_their_traffic() -> None:
    by_kind = scenes(0.1, 0)
    typical, strange = (next(iter(by_kind[kind][0].emissions())) for kind in ("typical", "bluetooth"))

    assert [scene.intruder_from_s for scene in by_kind["typical"]] == [None] * 3
    assert [scene.intruder_from_s for scene in by_kind["bluetooth"]] == [0.05] * 3
    assert typical.start_s != strange.start_s
    places = {
        emission.transmitter.address: emission.transmitter.power_dbm for emission in by_kind["typical"][0].emissions()
    }
    for emission in by_kind["bluetooth"][0].emissions():
        if emission.transmitter.address in places:
            assert emission.transmitter.power_dbm == places[emission.transmitter.address]


@pytest.mark.parametrize(
    ("scene", "sentence"),
    [
        (Scene(REGION, 0.0), "a recording of 0 s"),
        (Scene(REGION, 1e9), "a recording of 1e\\+09 s"),
        (Scene(REGION, math.nan), "a recording of nan s"),
        (Scene(REGION, 1.0, intruder_from_s=1.0), "an intruder after 1 s in a recording of 1 s"),
        (Scene(REGION, radio=RadioSettings(bandwidth_mhz=30)), "bandwidth 30 MHz"),
        (Scene(REGION, radio=RadioSettings(oversampling=0.5)), "oversampling 0.5"),
        (Scene(REGION, radio=RadioSettings(time_lapse=0.0)), "time lapse 0"),
        (Scene(REGION, radio=RadioSettings(bluetooth_load=2.0)), "bluetooth load 2"),
        (Scene(REGION, radio=RadioSettings(carrier_hz=1e6)), "carrier 1e\\+06 Hz"),
        (Scene(REGION, radio=RadioSettings(radius_m=-1.0)), "use at least 0"),
    ],
)
def test_a_scene_that_cannot_be_gets_one_sentence(scene: Scene, sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        scene.check()
