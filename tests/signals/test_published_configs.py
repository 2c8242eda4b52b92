"""The original's configuration files: read unchanged, refused with one sentence, never run as code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.signals.files import ROUTER, Json, feature, model, node, sampling_file, sim_file, towards, written
from tolfl.core.errors import DataFileError, TolFLError
from tolfl.signals.published_configs import read_sampling_config, read_sim_config, sample_configs, sequential_windows
from tolfl.signals.traffic import Bursty, Hawkes, PeriodicHawkes, simulate
from tolfl.signals.wifi import l_stf
from tolfl.signals.windows import PACKET, UDP, SignalRows, WindowGrid, window_statistics, windows_of


def sampled(folder: Path, sim: Json, sampling: Json) -> SignalRows:
    sim_config = read_sim_config(written(folder, sim, "sim_cfg1.json"))
    return sample_configs(sim_config, read_sampling_config(written(folder, sampling, "sampling_cfg1.json")))


def test_a_sim_file_is_read_as_it_is(tmp_path: Path) -> None:
    config = read_sim_config(written(tmp_path, sim_file()))

    assert (config.seed, config.duration_s) == (105, 86_400)
    assert [node.traffic for node in config.region.nodes] == [
        Bursty(),
        Hawkes(0.15),
        PeriodicHawkes(0.5),  # whatever arg_hawkes says
        Bursty((1, 10)),
    ]
    assert [node.destination for node in config.region.nodes] == [3, 3, 3, 0]
    assert config.region.addresses[config.region.router] == ROUTER


def test_both_files_give_the_statistics_and_the_readings(tmp_path: Path) -> None:
    samples = sampled(tmp_path, sim_file(), sampling_file(n_readings=100))

    config = read_sim_config(tmp_path / "sim_cfg1.json")
    windows = windows_of(simulate(config.region, config.duration_s, config.seed), WindowGrid())
    kept = windows.select(windows.have(windows.packets["source"] == config.region.router))
    n_samples = len(samples.features)
    assert n_samples > 200
    assert 0 <= len(kept) - n_samples <= 1  # the original never closes the last window
    assert samples.start_s == pytest.approx(kept.start_s[:n_samples])
    assert samples.features[:, :12] == pytest.approx(window_statistics(kept)[:n_samples])
    assert (samples.features[:, 12:] == np.abs(l_stf())[:100]).all()
    assert len(samples.names) == 112
    assert samples.names[:2] == ("time.count", "time.gaps.nanmin")


def test_the_seed_of_the_file_can_be_replaced(tmp_path: Path) -> None:
    sim = read_sim_config(written(tmp_path, sim_file(), "sim.json"))
    sampling = read_sampling_config(written(tmp_path, sampling_file(), "sampling.json"))

    assert np.array_equal(sample_configs(sim, sampling).features, sample_configs(sim, sampling, seed=105).features)
    assert not np.array_equal(sample_configs(sim, sampling).start_s, sample_configs(sim, sampling, seed=1).start_s)


def test_the_small_example_of_the_original_runs_without_keys_that_have_defaults(tmp_path: Path) -> None:
    sim = {
        "general": {"rng_seed": 1234, "sim_time_s": 1000},
        "nodes": [
            {"config": {"hw_addr": "a", "tx_config": {}}, "traffic": [towards("b", {"traffic_type": "hawkes"})]},
            {"config": {"hw_addr": "b"}, "traffic": []},
        ],
    }
    features = [feature("time", "aggregators.count()"), feature("~phy", "aggregators.head(20)")]
    sampling = {
        "general": {"sample_duration_s": 10, "sample_interval_s": None, "use_phy": True},
        "features": features,
    }
    samples = sampled(tmp_path, sim, sampling)

    assert samples.features.shape[1] == 21
    assert (samples.features[:, 0] >= 1).all()


def test_nodes_may_share_an_address_and_only_their_first_traffic_counts(tmp_path: Path) -> None:
    twice = [towards("b", model()), towards("c", model("hawkes"))]
    sim = {**sim_file(), "nodes": [node("a", twice), node("a", twice)]}
    region = read_sim_config(written(tmp_path, sim)).region

    assert region.addresses == ("a", "b")
    assert [one.address for one in region.nodes] == [0, 0]
    assert {one.traffic for one in region.nodes} == {Bursty()}


#: Features over three packets at 0, 0.25 and 1.0 s, of 50, 60 and 100 bytes, from a, b and a.
THREE: list[tuple[Json, float]] = [
    (feature("time", "np.max", "aggregators.iat()"), np.nan),
    (feature("time", "np.nanmax", "aggregators.iat()"), 0.75),
    (feature("time", "np.nanmean", "aggregators.iat()"), 0.5),
    (feature("time", "np.mean", "aggregators.iat()"), np.nan),
    (feature("time", "aggregators.n_unique()", "aggregators.iat()"), 3),
    (feature("time", "aggregators.count()", "aggregators.iat()"), 3),
    (feature("wirelen", "np.min"), 50),
    (feature("wirelen", "np.max"), 100),
    (feature("wirelen", "np.mean"), 70),
    (feature("src", " aggregators . n_unique( ) "), 2),
    (feature("~pkt", "aggregators.count()"), 3),
    (feature("~pkt", "aggregators.count_if( lambda x:TCP in x )"), 0),
    (feature("~pkt", "aggregators.count_if(lambda x: UDP in x)"), 3),
]


@pytest.mark.parametrize(("asked", "expected"), THREE)
def test_every_expression_gives_what_the_original_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: Json, expected: float
) -> None:
    three = np.array(
        [(5.0, 50, 0, 1, UDP), (5.25, 60, 1, 0, UDP), (6.0, 100, 0, 1, UDP), (100.0, 43, 0, 1, UDP)], PACKET
    )
    monkeypatch.setattr("tolfl.signals.published_configs.simulate", lambda *_: three)
    sim = {**sim_file(), "nodes": [node("a", [towards("b", model())]), node("b", [])]}
    sampling = {"general": {"sample_duration_s": 10, "use_phy": False}, "features": [asked]}

    assert sampled(tmp_path, sim, sampling).features[0, 0] == pytest.approx(expected, nan_ok=True)


def cut_one_by_one(times: list[float], window_s: float, interval_s: float) -> list[list[float]]:
    """Return the windows of a reader that takes one packet at a time, as the original does."""
    start = times[0]
    inside: list[float] = []
    done: list[list[float]] = []
    for time in times:
        if time >= start + window_s:
            if inside:
                done.append(inside)
            inside, start = [], start + interval_s
        if start <= time < start + window_s:
            inside = [*inside, time]
    return done


@pytest.mark.parametrize(("window_s", "interval_s"), [(1.0, 4.0), (2.0, 2.0), (4.0, 2.0)])
def test_windows_lag_behind_after_a_silence_as_the_originals_do(window_s: float, interval_s: float) -> None:
    steps = np.random.default_rng(0).choice([0.25, 0.5, 1.0, 30.0], 400, p=[0.4, 0.3, 0.2, 0.1])
    times = np.cumsum(steps)
    packets = np.array([(time, 43, 0, 0, UDP) for time in times], PACKET)
    windows = sequential_windows(packets, window_s, interval_s)

    expected = cut_one_by_one(times.tolist(), window_s, interval_s)
    assert windows.packets["time_s"].tolist() == [time for inside in expected for time in inside]
    assert windows.sizes.tolist() == [len(inside) for inside in expected]


def test_a_silent_file_gives_no_samples(tmp_path: Path) -> None:
    sim = {**sim_file(), "nodes": [node("a", [])]}

    assert sampled(tmp_path, sim, sampling_file()).features.shape == (0, 212)


def test_a_sender_that_never_sends_gives_no_samples(tmp_path: Path) -> None:
    sampling = sampling_file()
    sampling["features"][-1]["map_function"] = "aggregators.keep_if(lambda rec: rec[0].src == 'nobody')"

    assert len(sampled(tmp_path, sim_file(), sampling).features) == 0


def change(*path: str | int, to: object) -> Callable[[Json], None]:
    def apply(content: Json) -> None:
        place = content
        for key in path[:-1]:
            place = place[key]  # type: ignore[index]
        place[path[-1]] = to  # type: ignore[index]

    return apply


def drop(*path: str | int) -> Callable[[Json], None]:
    def apply(content: Json) -> None:
        place = content
        for key in path[:-1]:
            place = place[key]  # type: ignore[index]
        del place[path[-1]]  # type: ignore[arg-type]

    return apply


MODEL = ("nodes", 0, "traffic", 0, "model")


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (drop("general"), "missing required field `general`"),
        (drop("nodes", 1, "config", "hw_addr"), r"nodes\[1\].config: object missing required field `hw_addr`"),
        (drop(*MODEL, "traffic_type"), "missing required field `traffic_type`"),
        (drop("nodes", 0, "traffic", 0, "dst"), "missing required field `dst`"),
        (change("nodes", to=[]), "nodes: expected `array` of length >= 1"),
        (change("nodes", 0, "traffic", 0, "dst", to=[8080]), r"nodes\[0\].traffic\[0\]: dst must start with"),
        (change(*MODEL, "traffic_type", to="poisson"), "invalid enum value 'poisson'"),
        (change(*MODEL, "tx_len_min_bytes", to=0), r"model.tx_len_min_bytes: expected `int` >= 1"),
        (change(*MODEL, "arg_bursty_n", to=0), "model.arg_bursty_n: expected `int` >= 1"),
        (change(*MODEL, "arg_bursty_inter", to=[5, 1]), r"gaps \[low, high\]"),
        (change(*MODEL, "arg_bursty_inter", to=[5]), "arg_bursty_inter"),
        (change(*MODEL, "tx_len_max_bytes", to=65_508), "model.tx_len_max_bytes: expected `int` <= 65507"),
        (change(*MODEL, "tx_len_min_bytes", to=1501), "tx_len_min_bytes must be at most tx_len_max_bytes"),
        (change("nodes", 1, "traffic", 0, "model", "arg_hawkes", to=0), "model.arg_hawkes: expected `float` > 0.0"),
        (
            change("nodes", 2, "traffic", 0, "model", "weekend_mult", to=-1),
            "model.weekend_mult: expected `float` >= 0.0",
        ),
        (change("nodes", 0, "traffic", 0, "packet_source", to="get_tcp_packet"), "invalid enum value 'get_tcp_packet'"),
        (change("general", "sim_time_s", to=-1), "general.sim_time_s: expected `float` > 0.0"),
        (change("general", "rng_seed", to="x"), "general.rng_seed: expected `int`, got `str`"),
    ],
)
def test_a_sim_file_with_a_fault_is_refused_in_one_sentence(
    tmp_path: Path, spoil: Callable[[Json], None], problem: str
) -> None:
    content = sim_file()
    spoil(content)
    path = written(tmp_path, content)

    with pytest.raises(DataFileError, match=problem) as error:
        read_sim_config(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    assert isinstance(error.value, TolFLError)


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (drop("general", "sample_duration_s"), "missing required field `sample_duration_s`"),
        (drop("features", 0, "agg_function"), "missing required field `agg_function`"),
        (change("general", "sample_duration_s", to=0), "general.sample_duration_s: expected `float` > 0.0"),
        (change("features", to=[]), "features: expected `array` of length >= 1"),
        (change("features", 0, "property", to="ttl"), r"features\[0\]: property 'ttl' is not known; known are: time"),
        (change("features", 6, "agg_function", to="np.ptp"), r"features\[6\]: agg_function 'np.ptp' is not known"),
        (change("features", 1, "map_function", to="foo()"), r"features\[1\]: map_function 'foo\(\)' is not known"),
        (change("features", 12, "agg_function", to="aggregators.head(0)"), r"'aggregators.head\(0\)' is not known"),
        (change("general", "use_phy", to=False), r"features\[12\]: .* general.use_phy is false"),
        (change("features", 12, "agg_function", to="np.mean"), "'np.mean' goes with time or wirelen, not with ~phy"),
        (change("features", 0, "agg_function", to="aggregators.head(3)"), "goes with ~phy, not with time"),
        (change("features", 6, "map_function", to="aggregators.iat()"), "goes with time, not with wirelen"),
        (change("features", 10, "agg_function", to="np.min"), "goes with time or wirelen, not with src"),
        (change("features", 4, "agg_function", to="aggregators.n_unique()"), "not with ~pkt"),
        (
            change("features", 0, "agg_function", to="aggregators.count_if(lambda x: UDP in x)"),
            "lambda x: UDP in x.*goes with ~pkt",
        ),
        (
            change("features", 6, "map_function", to="aggregators.keep_if(lambda rec: rec[0].src == 'a')"),
            "goes with ~phy, not with wirelen",
        ),
    ],
)
def test_a_sampling_file_with_a_fault_is_refused_in_one_sentence(
    tmp_path: Path, spoil: Callable[[Json], None], problem: str
) -> None:
    content = sampling_file()
    spoil(content)
    path = written(tmp_path, content)

    with pytest.raises(DataFileError, match=problem) as error:
        read_sampling_config(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "{", '{"general": NaN}', "nodes = 3", "\ufeff{}"])
def test_what_is_not_json_is_refused_in_one_sentence(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)

    for read in (read_sim_config, read_sampling_config):
        with pytest.raises(DataFileError, match="is not a JSON file"):
            read(path)


def test_a_list_where_an_object_belongs_and_a_missing_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match="expected `object`, got `array`"):
        read_sim_config(written(tmp_path, "[]"))
    with pytest.raises(DataFileError, match="cannot be read"):
        read_sim_config(tmp_path / "nowhere.json")


@pytest.mark.parametrize("key", ["agg_function", "map_function", "property"])
def test_nothing_is_evaluated_as_code(tmp_path: Path, key: str) -> None:
    trap = tmp_path / "trap"
    content = sampling_file()
    for code in (
        f"__import__('os').mkdir({str(trap)!r})",
        f"aggregators.count_if(lambda x: __import__('os').mkdir({str(trap)!r}))",
        f"(lambda: __import__('pathlib').Path({str(trap)!r}).touch())()",
        f"aggregators.head(__import__('os').mkdir({str(trap)!r}) or 1)",
    ):
        content["features"][0][key] = code
        with pytest.raises(DataFileError, match="is not known"):
            read_sampling_config(written(tmp_path, content))
    assert not trap.exists()


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("ChannelBandwidth", "CBW320", "ChannelBandwidth 'CBW320'"),
        ("FrameFormat", "HE", "FrameFormat 'HE'"),
        ("postProcFunc", "@(x, a) system('true')", "postProcFunc"),
        ("NumTransmitAntennas", 2.0, "NumTransmitAntennas 2; known is 1"),
        ("oversamplingFactor", 0.5, "oversamplingFactor 0.5"),
    ],
)
def test_a_waveform_that_is_not_known_is_refused_where_it_is_wanted(
    tmp_path: Path, key: str, value: object, problem: str
) -> None:
    sim = sim_file(3600)
    sim["nodes"][-1]["config"]["tx_config"][key] = value
    without = {"general": {"sample_duration_s": 1}, "features": [feature("time", "aggregators.count()")]}

    assert len(sampled(tmp_path, sim, without).features)
    with pytest.raises(DataFileError, match=f"tx_config of {ROUTER} has {problem}"):
        sampled(tmp_path, sim, sampling_file())


def test_another_width_has_another_waveform(tmp_path: Path) -> None:
    sim = sim_file(3600)
    sim["nodes"][-1]["config"]["tx_config"] = {"ChannelBandwidth": "CBW20", "oversamplingFactor": 1}
    samples = sampled(tmp_path, sim, sampling_file(n_readings=160))

    assert (samples.features[:, 12:] == np.abs(l_stf(20, 1.0))).all()
    with pytest.raises(DataFileError, match=r"head\(161\) of '~phy': only the first 160 readings"):
        sampled(tmp_path, sim, sampling_file(n_readings=161))
