"""The generated data set: shapes, seeds, strengths, and the published variant."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from tolfl.core.errors import SpecError
from tolfl.core.spec import ChannelSettings, CommsMLSettings, checked
from tolfl.signals.bluetooth import BIT_RATE_HZ, gfsk_glimpses
from tolfl.signals.comms_ml_generator import KINDS, CommsMLSamples, comms_ml, draw_taps, mixed_taps, receive
from tolfl.signals.wifi import l_stf

SMALL = CommsMLSettings(windows_per_region=300)


@pytest.fixture(scope="module")
def small() -> CommsMLSamples:
    return comms_ml(0, SMALL)


@pytest.fixture(scope="module")
def published() -> CommsMLSamples:
    return comms_ml(0, CommsMLSettings(variant="published"))


def pca_score(samples: CommsMLSamples, n_components: int = 16) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return the reconstruction error of each sample, fitted on typical samples with an even index."""
    is_training = ~samples.is_anomalous & (np.arange(len(samples.kind)) % 2 == 0)
    low, high = (side(samples.features[is_training].astype(float), axis=0) for side in (np.min, np.max))
    scaled = (samples.features - low) / np.where(high > low, high - low, 1.0)
    centred = scaled - scaled[is_training].mean(axis=0)
    directions = np.linalg.svd(centred[is_training], full_matrices=False)[2][:n_components]
    return np.asarray(((centred - centred @ directions.T @ directions) ** 2).sum(axis=1))


def auroc_of(samples: CommsMLSamples, kind: str) -> float:
    score = pca_score(samples)
    typical = score[~samples.is_anomalous & (np.arange(len(score)) % 2 == 1)]
    return float((score[samples.kind == kind][:, None] > typical[None, :]).mean())


def test_every_kind_has_as_many_windows_as_a_region(small: CommsMLSamples) -> None:
    assert small.features.shape == (6 * 300, 112)
    assert small.features.dtype == np.float32
    assert np.isfinite(small.features).all()
    assert len(small.feature_names) == 112
    assert [int((small.kind == kind).sum()) for kind in KINDS] == [900, 300, 300, 300]
    for kind in ("rate", "bluetooth"):
        assert np.bincount(small.region[small.kind == kind]).tolist() == [0, 100, 100, 100]
    assert set(small.region[small.kind == "region-4"]) == {4}
    assert np.bincount(small.region[small.kind == "typical"]).tolist() == [0, 300, 300, 300]


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(small: CommsMLSamples) -> None:
    assert comms_ml(0, SMALL).features.tobytes() == small.features.tobytes()
    assert not np.array_equal(comms_ml(1, SMALL).features, small.features)


def test_more_windows_start_with_the_same_windows(small: CommsMLSamples) -> None:
    more = comms_ml(0, msgspec.structs.replace(SMALL, windows_per_region=330))

    first = (small.kind == "typical") & (small.region == 1)
    longer = (more.kind == "typical") & (more.region == 1)
    assert np.array_equal(small.features[first][:, :12], more.features[longer][:300, :12])


def test_windows_come_in_order_and_on_the_grid(small: CommsMLSamples) -> None:
    starts = small.start_s[(small.kind == "typical") & (small.region == 2)]

    minutes = np.diff(starts) / 60
    assert minutes == pytest.approx(np.round(minutes))
    assert minutes.min() > 0.5


def test_the_rate_anomaly_shows_in_the_traffic_and_not_in_the_readings(small: CommsMLSamples) -> None:
    typical, rate = (small.features[(small.kind == kind) & (small.region == 2)] for kind in ("typical", "rate"))

    assert rate[:, 0].mean() > 4 * typical[:, 0].mean()
    assert rate[:, 12:].mean() == pytest.approx(typical[:, 12:].mean(), rel=0.05)


def test_the_bluetooth_anomaly_shows_in_the_readings_and_not_in_the_traffic(small: CommsMLSamples) -> None:
    typical, bluetooth = (small.features[(small.kind == kind) & (small.region == 1)] for kind in KINDS[::2])

    assert bluetooth[:, 0].mean() == pytest.approx(typical[:, 0].mean(), rel=0.2)
    step = np.abs(np.diff(bluetooth[:, 12:], axis=1)) - np.abs(np.diff(typical[:, 12:], axis=1)).mean(axis=0)
    assert step.mean() > 0


@pytest.mark.parametrize(
    ("knob", "weak", "strong", "kind"),
    [
        ("rate_factor", 1.0, 8.0, "rate"),
        ("bluetooth_db", -60.0, -15.0, "bluetooth"),
        ("bluetooth_db", -60.0, -20.0, "bluetooth"),
        ("own_share", 0.0, 0.65, "region-4"),
    ],
)
def test_every_anomaly_has_a_knob_for_its_strength(knob: str, weak: float, strong: float, kind: str) -> None:
    lesser, greater = (
        auroc_of(comms_ml(0, msgspec.structs.replace(SMALL, **{knob: value})), kind) for value in (weak, strong)
    )

    assert greater > lesser + 0.1
    assert greater > 0.7
    assert lesser < 0.65


def test_the_place_changes_the_readings_and_not_the_traffic(small: CommsMLSamples) -> None:
    elsewhere = comms_ml(0, msgspec.structs.replace(SMALL, place_seed=1))

    assert np.array_equal(elsewhere.features[:, :12], small.features[:, :12])
    assert not np.allclose(elsewhere.features[:, 12:].mean(axis=0), small.features[:, 12:].mean(axis=0), atol=0.05)


def test_the_published_variant_has_constant_readings_and_about_1950_windows_a_region(
    published: CommsMLSamples,
) -> None:
    constant = np.abs(l_stf())[:100].astype(np.float32)

    assert (published.features[:, 12:] == constant).all()
    assert np.bincount(published.region)[1:] == pytest.approx([1950] * 4, abs=120)
    assert set(published.kind[published.region == 4]) == {"region-4"}
    assert set(published.kind[published.region != 4]) == {"typical"}
    assert published.start_s.max() < 604_800


def test_in_the_published_variant_region_4_can_hardly_be_told_from_the_others(published: CommsMLSamples) -> None:
    assert 0.35 < auroc_of(published, "region-4") < 0.65


def test_another_seed_moves_the_published_seeds() -> None:
    one, other = (comms_ml(seed, CommsMLSettings(variant="published", n_readings=1)) for seed in (0, 1))

    assert not np.array_equal(one.start_s[:5], other.start_s[:5])


def test_a_scarce_window_is_simulated_until_there_are_enough() -> None:
    scarce = CommsMLSettings(windows_per_region=30, window_s=0.05)

    assert int((comms_ml(0, scarce).kind == "region-4").sum()) == 30


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"windows_per_region": 2}, "use at least 3"),
        ({"n_readings": 0}, "n_readings 0; use at least 1"),
        ({"n_readings": 1921}, "1921 readings; the field has 1920"),
        ({"window_s": 61.0}, "must not overlap"),
        ({"window_s": float("nan")}, "must not overlap"),
        ({"rate_factor": 0.0}, "use a number above 0"),
        ({"bluetooth_db": float("inf")}, "use a finite number"),
        ({"own_share": 1.5}, "use 0 to 1"),
        ({"place_seed": -1}, "place_seed -1; use at least 0"),
        ({"bandwidth_mhz": 10}, "bandwidth 10 MHz"),
        ({"channel": ChannelSettings(snr_db=float("nan"))}, "channel snr_db nan; use a finite number"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        comms_ml(0, msgspec.structs.replace(CommsMLSettings(windows_per_region=3), **changes))


def test_an_unknown_setting_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field `rate`"):
        msgspec.convert({"rate": 3}, CommsMLSettings)


SETTINGS = ChannelSettings()
QUIET = ChannelSettings(rician_k_db=200.0, gain_db=0.0, snr_db=200.0)
FRAME = l_stf()


def power_db(signal: np.ndarray[tuple[int, ...], np.dtype[np.complex128]]) -> float:
    return float(10 * np.log10(np.mean(np.abs(signal) ** 2)))


def test_echoes_have_the_powers_of_the_settings_and_power_one_together() -> None:
    taps = draw_taps(SETTINGS, np.random.default_rng(0))

    assert np.sum(np.abs(taps) ** 2) == pytest.approx(1.0)
    assert 20 * np.log10(np.abs(taps / taps[0])) == pytest.approx([0, -3, -7, -12])


def test_echoes_between_two_places_are_one_or_the_other_at_the_ends() -> None:
    one, other = (draw_taps(SETTINGS, np.random.default_rng(seed)) for seed in (0, 1))

    assert mixed_taps(one, other, 0.0) == pytest.approx(one)
    assert mixed_taps(one, other, 1.0) == pytest.approx(other)
    assert np.linalg.norm(mixed_taps(one, other, 0.65)) == pytest.approx(1.0)


def test_without_fading_gain_and_noise_the_readings_are_the_delayed_frames() -> None:
    taps = draw_taps(QUIET, np.random.default_rng(0))
    (reading,) = receive(FRAME, taps, QUIET, np.random.default_rng(1), (1, 300))

    expected = np.zeros(300, np.complex128)
    for delay, tap in zip(QUIET.delays_samples, taps, strict=True):
        expected[delay:] += tap * FRAME[: 300 - delay]
    assert reading == pytest.approx(expected, abs=1e-8)


def test_the_received_power_is_one_over_all_places() -> None:
    powers = [
        np.mean(np.abs(receive(FRAME, draw_taps(SETTINGS, rng), SETTINGS, rng, (20, 1000))) ** 2)
        for rng in map(np.random.default_rng, range(200))
    ]

    # A gain of 1 dB (standard deviation) adds 2.7 % of power, noise of 20 dB 1 %.
    assert np.mean(powers) == pytest.approx(1.037, abs=0.04)


def test_the_noise_has_the_set_ratio_to_the_signal() -> None:
    noisy = msgspec.structs.replace(QUIET, snr_db=20.0)
    taps = draw_taps(QUIET, np.random.default_rng(0))
    readings = receive(FRAME, taps, noisy, np.random.default_rng(1), (2000, 100))
    clean = receive(FRAME, taps, QUIET, np.random.default_rng(1), (1, 100))

    assert power_db(readings - clean) == pytest.approx(-20.0, abs=0.05)


def test_fading_changes_with_each_frame_and_has_the_rician_share_of_the_power() -> None:
    fading = msgspec.structs.replace(QUIET, rician_k_db=10.0, delays_samples=(0,), powers_db=(0.0,))
    readings = receive(FRAME, np.array([1.0 + 0j]), fading, np.random.default_rng(0), (20_000, 1))
    gains = readings[:, 0] / FRAME[0]

    assert np.mean(np.abs(gains) ** 2) == pytest.approx(1.0, abs=0.02)
    assert abs(np.mean(gains)) ** 2 / np.var(gains) == pytest.approx(10.0, rel=0.05)


def test_the_gain_varies_by_the_set_number_of_decibels() -> None:
    varying = msgspec.structs.replace(QUIET, gain_db=1.0)
    readings = receive(FRAME, draw_taps(QUIET, np.random.default_rng(0)), varying, np.random.default_rng(1), (5000, 40))

    assert np.std(20 * np.log10(np.abs(readings[:, 30]))) == pytest.approx(1.0, rel=0.05)


def test_a_timing_offset_moves_the_start_and_shows_silence_before_the_frame() -> None:
    late = msgspec.structs.replace(QUIET, timing_offset_samples=3, delays_samples=(0,), powers_db=(0.0,))
    readings = receive(FRAME, np.array([1.0 + 0j]), late, np.random.default_rng(0), (200, 50))

    padded = np.concatenate([np.zeros(3), FRAME])
    rows = {offset: padded[3 + offset : 53 + offset] for offset in range(-3, 4)}
    found = [next(o for o, row in rows.items() if np.allclose(reading, row, atol=1e-8)) for reading in readings]
    assert set(found) == set(range(-3, 4))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"delays_samples": (0, 1)}, "2 delays and 4 powers"),
        ({"delays_samples": (), "powers_db": ()}, "0 delays"),
        ({"delays_samples": (0, 1, 2, -3)}, "at least 0 samples"),
        ({"timing_offset_samples": -1}, "at least 0 samples"),
        ({"snr_db": float("nan")}, "snr_db nan; use a finite number"),
        ({"powers_db": (0.0, float("-inf"), 0.0, 0.0)}, r"powers_db\[1\] -inf; use a finite number"),
        ({"gain_db": -1.0}, "at least 0 dB"),
    ],
)
def test_a_channel_that_cannot_be_is_refused(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        checked(msgspec.structs.replace(SETTINGS, **changes))


def test_more_readings_than_the_field_has_are_refused() -> None:
    with pytest.raises(SpecError, match="field of 1920; use fewer readings"):
        receive(FRAME, draw_taps(SETTINGS, np.random.default_rng(0)), SETTINGS, np.random.default_rng(0), (1, 1921))


def test_a_bluetooth_emission_has_the_set_power_in_every_reading() -> None:
    signal = gfsk_glimpses(np.random.default_rng(0), (50, 100), 240e6, 160e6, -15.0)

    assert 20 * np.log10(np.abs(signal)) == pytest.approx(np.full((50, 100), -15.0))


def test_its_frequency_stays_within_160_khz_of_a_place_in_the_band() -> None:
    signal = gfsk_glimpses(np.random.default_rng(0), (200, 1920), 240e6, 160e6, 0.0)
    frequency = np.angle(signal[:, 1:] / signal[:, :-1]) * 240e6 / (2 * np.pi)
    places = (frequency.max(axis=1) + frequency.min(axis=1)) / 2

    assert np.ptp(frequency, axis=1).max() <= 0.32 * BIT_RATE_HZ + 1e-3
    assert np.ptp(frequency, axis=1).max() > 0.3 * BIT_RATE_HZ
    assert np.abs(frequency).max() < 80e6
    assert (places.min(), places.max()) == pytest.approx((-79e6, 79e6), abs=3e6)


def test_it_stays_in_a_channel_of_one_megahertz() -> None:
    signal = gfsk_glimpses(np.random.default_rng(1), (100, 2400), 24e6, 1e6, 0.0)  # band 1 MHz: no place but the middle
    spectrum = np.mean(np.abs(np.fft.fft(signal, axis=1)) ** 2, axis=0)
    near = np.abs(np.fft.fftfreq(2400, 1 / 24e6)) <= 0.5e6

    assert spectrum[near].sum() / spectrum.sum() > 0.95
