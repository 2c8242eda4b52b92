"""Run specifications: TOML there and back, unknown keys refused, wrong numbers named."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, cast, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tolfl.core.errors import SpecError, UnknownNameError
from tolfl.core.spec import (
    BlobsSpec,
    DatasetSpec,
    FedGroupSpec,
    FeSEMSpec,
    IFCASpec,
    LinkModel,
    ModelSpec,
    RunSpec,
    Timing,
    TrainSettings,
    TrainSpec,
)

specs = st.builds(
    RunSpec,
    scheme=st.sampled_from(["tol-fl", "fl", "sbt", "batch"]),
    devices=st.integers(1, 50),
    topology=st.sampled_from(["", "1,0|2,3"]),
    fail=st.sampled_from(["", "server@3/chain; random:0.1", "cut:0|1@2-3"]),
    on_head_failure=st.sampled_from(["", "elect", "drop"]),
    seed=st.integers(0, 2**40),
    deadline_s=st.none() | st.floats(0.001, 100),
    train=st.builds(
        TrainSpec,
        lr=st.none() | st.floats(1e-6, 1),
        batch_size=st.none() | st.integers(0, 64),
        optimizer=st.sampled_from(["sgd", "momentum", "adam"]),
    ),
    model=st.builds(ModelSpec, hidden=st.lists(st.integers(1, 99), max_size=3).map(tuple), dropout=st.floats(0, 0.9)),
    links=st.builds(LinkModel, uplink=st.sampled_from(["serial", "parallel"]), latency_s=st.floats(0, 1)),
    blobs=st.builds(BlobsSpec, n_features=st.integers(1, 64), n_validation=st.integers(0, 9)),
    lost_model=st.sampled_from(["lost", "frozen"]),
    fedgroup=st.builds(FedGroupSpec, measure=st.sampled_from(["edc", "madc"]), inter_group_lr=st.floats(0, 1)),
    ifca=st.builds(IFCASpec, init=st.sampled_from(["warm", "random"]), restarts=st.integers(1, 9)),
    fesem=st.builds(FeSEMSpec, layers=st.lists(st.text("ab.", min_size=1), max_size=2).map(tuple)),
)


@given(specs)
def test_a_specification_comes_back_from_toml_as_it_was(spec: RunSpec) -> None:
    assert RunSpec.from_toml(spec.to_toml()) == spec


def test_what_is_left_out_has_its_default() -> None:
    assert RunSpec.from_toml("") == RunSpec()
    assert RunSpec.from_toml("[train]\nepochs = 3").train == TrainSpec(epochs=3)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("device = 4", "device"),
        ("[train]\nlearning_rate = 0.1", "learning_rate"),
        ("[model]\nlayers = 3", "layers"),
        ("[links]\nspeed = 3", "speed"),
        ("[blobs]\nsize = 3", "size"),
        ("devices = 'ten'", "devices"),
        ("[ifca]\nrounds = 3", "rounds"),
        ("[fedgroup]\nmeasure = 'l2'", "choose one of: edc, madc"),
        ("[fesem]\ninit = 'zeros'", "choose one of: k-means++, random"),
        ("[ifca]\nweight = 'heavy'", "choose one of: samples, equal"),
        ("lost_model = 'found'", "choose one of: lost, frozen"),
        ("devices = 2.5", "devices"),
        ("[train]\noptimizer = 'lbfgs'", "lbfgs"),
        ("devices = ", "spec.toml"),
    ],
)
def test_what_cannot_be_understood_is_an_error_that_names_it(text: str, named: str) -> None:
    with pytest.raises(SpecError) as caught:
        RunSpec.from_toml(text, source="spec.toml")

    assert named in str(caught.value)
    assert str(caught.value).startswith("spec.toml: ")


def test_a_file_is_read_and_named_when_it_cannot_be(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('scheme = "sbt"', encoding="utf-8")

    assert RunSpec.from_file(path).scheme == "sbt"
    with pytest.raises(SpecError, match=r"no\.toml"):
        RunSpec.from_file(tmp_path / "no.toml")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match=r"run\.toml"):
        RunSpec.from_file(path)


def test_the_default_specification_is_a_good_one() -> None:
    assert RunSpec().check() == RunSpec()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"devices": 0}, "devices 0; use at least 1"),
        ({"devices": -3}, "devices -3; use at least 1"),
        ({"rounds": 0}, "rounds 0; use at least 1"),
        ({"repetitions": 0}, "repetitions 0; use at least 1"),
        ({"seed": -1}, "seed -1; use at least 0"),
        ({"min_devices": 0}, "min_devices 0; use at least 1"),
        ({"min_devices": 11}, "min_devices 11 for 10 devices"),
        ({"checkpoint_every": 0}, "checkpoint_every 0; use at least 1"),
        ({"evaluate_every": -1}, "evaluate_every -1; use at least 0"),
        ({"deadline_s": 0.0}, "deadline_s 0; use a number above 0"),
        ({"deadline_s": float("nan")}, "deadline_s nan"),
        ({"deadline_s": float("inf")}, "deadline_s inf"),
        ({"timing": "sundial"}, "unknown timing preset 'sundial'; choose one of: localhost, lan, wireless"),
        ({"on_head_failure": "vote"}, "unknown on-head-failure policy 'vote'; choose one of: elect, drop"),
        ({"train": TrainSpec(lr=0.0)}, "lr 0; use a number above 0"),
        ({"train": TrainSpec(lr=-1.0)}, "lr -1; use a number above 0"),
        ({"train": TrainSpec(lr=float("nan"))}, "lr nan"),
        ({"train": TrainSpec(epochs=0)}, "epochs 0; use at least 1"),
        ({"train": TrainSpec(batch_size=-1)}, "batch_size -1; use at least 0"),
        ({"train": TrainSpec(server_lr=0.0)}, "server_lr 0; use a number above 0"),
        ({"train": TrainSpec(optimizer="momentum", momentum=1.5)}, "momentum 1.5"),
        ({"model": ModelSpec(dropout=1.0)}, "dropout 1; use at least 0 and less than 1"),
        ({"model": ModelSpec(dropout=float("nan"))}, "dropout nan"),
        ({"model": ModelSpec(hidden=(8, 0))}, "hidden[1] 0; use at least 1"),
        ({"model": ModelSpec(code=0)}, "code 0; use at least 1"),
        ({"blobs": BlobsSpec(samples_per_device=0)}, "samples_per_device 0; use at least 1"),
        ({"links": LinkModel(bandwidth_bps=0)}, "bandwidth_bps 0; use a number above 0"),
        ({"blobs": BlobsSpec(n_validation=-1)}, "n_validation -1; use at least 0"),
        ({"fedgroup": FedGroupSpec(pretrain_scale=0)}, "fedgroup pretrain_scale 0; use at least 1"),
        ({"fedgroup": FedGroupSpec(pretrain_iterations=0)}, "fedgroup pretrain_iterations 0; use at least 1"),
        ({"fedgroup": FedGroupSpec(kmeans_iterations=0)}, "fedgroup kmeans_iterations 0; use at least 1"),
        ({"fedgroup": FedGroupSpec(inter_group_lr=-0.1)}, "fedgroup inter_group_lr -0.1; use at least 0"),
        ({"fedgroup": FedGroupSpec(inter_group_lr=float("nan"))}, "fedgroup inter_group_lr nan; use at least 0"),
        ({"ifca": IFCASpec(restarts=0)}, "ifca restarts 0; use at least 1"),
        ({"ifca": IFCASpec(trial_rounds=0)}, "ifca trial_rounds 0; use at least 1"),
        ({"ifca": IFCASpec(warm_rounds=-1)}, "ifca warm_rounds -1; use at least 0"),
        ({"fesem": FeSEMSpec(pretrain_epochs=0)}, "fesem pretrain_epochs 0; use at least 1"),
    ],
    ids=str,
)
def test_a_number_or_name_that_makes_no_sense_is_refused_in_one_sentence(
    changes: dict[str, object], sentence: str
) -> None:
    with pytest.raises(SpecError) as caught:
        msgspec.structs.replace(RunSpec(), **changes).check()

    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("devices = 0", "spec: devices 0; use at least 1"),
        ("[train]\nlr = inf", "spec: train lr inf; use a number above 0"),
        ("[model]\nhidden = [8, 0]", "spec: model hidden[1] 0; use at least 1"),
        ("[dataset]\nmax_train = 0", "spec: dataset max_train 0; use at least 1"),
        ("[dataset]\nalpha = -2.5", "spec: dataset alpha -2.5; use a number above 0"),
        ("[dataset]\nsizes = [1, nan]", "spec: dataset sizes[1] nan; use a number above 0"),
        ("[dataset]\nvalidation_share = 1", "spec: dataset validation_share 1; use at least 0 and less than 1"),
        ("[dataset]\nwindow_s = 2.0\nstep_s = 1.0", "window_s 2, step_s 1; the step must be at least the window"),
        ("[dataset]\ntypical = ['a']\nanomalous = ['a']", "class 'a' cannot be typical and anomalous"),
        ("[comms_ml]\nwindows_per_region = 2", "spec: comms_ml windows_per_region 2; use at least 3"),
        ("[comms_ml]\nown_share = 1.5", "spec: comms_ml own_share 1.5; use 0 to 1"),
        ("[comms_ml]\nwindow_s = 61.0", "windows of 61 s every 60 s; they must not overlap"),
        ("[comms_ml.channel]\npowers_db = [0.0]", "4 delays and 1 powers of a channel; give one of each per path"),
        ("[comms_ml.channel]\ngain_db = -1.0", "spec: comms_ml channel gain_db -1; use at least 0 dB"),
        ("[defence]\nmax_samples = -3", "spec: defence max_samples -3; use a number above 0, or 0 for none"),
    ],
)
def test_a_number_that_makes_no_sense_is_refused_where_it_is_read(text: str, sentence: str) -> None:
    with pytest.raises(SpecError) as caught:
        RunSpec.from_toml(text)

    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_checked_specification_has_plain_values() -> None:
    spec = RunSpec(seed=np.int64(3), dataset=DatasetSpec(dir=Path("data")))  # type: ignore[arg-type]

    assert spec.check() == RunSpec(seed=3, dataset=DatasetSpec(dir="data"))


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (RunSpec(devices=2.5), "devices: expected `int`, got `float`"),  # type: ignore[arg-type]
        (RunSpec(devices="ten"), "devices: expected `int`, got `str`"),  # type: ignore[arg-type]
        (RunSpec(train=TrainSpec(optimizer="lbfgs")), "train.optimizer: unknown value 'lbfgs'; choose one of: sgd"),  # type: ignore[arg-type]
    ],
    ids=["number", "text", "word"],
)
def test_a_value_of_another_kind_is_refused_by_its_name(spec: RunSpec, sentence: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec.check()

    assert sentence in str(caught.value)


def numbers(kind: type[msgspec.Struct], path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], bool]]:
    """Return the path of every float of a specification, and whether it stands in a tuple."""
    found = []
    for name, hint in get_type_hints(kind).items():
        parts = [part for part in (hint, *get_args(hint)) if isinstance(part, type)]
        for part in parts:
            if issubclass(part, msgspec.Struct):
                found += numbers(part, (*path, name))
            elif part is float:
                found.append(((*path, name), get_origin(hint) is tuple))
    return found


def test_the_numbers_of_a_specification_are_found() -> None:
    found = dict(numbers(RunSpec))

    assert found["deadline_s",] is False
    assert found["comms_ml", "channel", "powers_db"] is True
    assert len(found) > 25


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(("path", "is_tuple"), numbers(RunSpec), ids=str)
def test_no_number_of_a_specification_may_be_infinite_or_none_at_all(
    path: tuple[str, ...], is_tuple: bool, value: float
) -> None:
    fields: object = [value] if is_tuple else value
    for name in reversed(path):
        fields = {name: fields}

    with pytest.raises(SpecError) as caught:
        RunSpec.from_fields(cast("dict[str, Any]", fields))

    assert path[-1] in str(caught.value)
    assert f"{value:g}; use " in str(caught.value)


@pytest.mark.parametrize(
    "links",
    [
        LinkModel(latency_s=-1.0),
        LinkModel(seconds_per_sample=-1.0),
        LinkModel(speed_spread=-2.0),
        LinkModel(latency_s=float("nan")),
    ],
    ids=str,
)
def test_links_that_run_backwards_are_refused(links: LinkModel) -> None:
    with pytest.raises(SpecError):
        RunSpec(links=links).check()


@pytest.mark.parametrize(("n_features", "lr"), [(32, 2e-2), (112, 2e-2), (784, 3e-3), (1024, 1e-3), (3072, 1e-3)])
def test_a_step_that_was_left_open_shrinks_with_the_number_of_features(n_features: int, lr: float) -> None:
    assert TrainSpec().settle(n_features, 200).lr == lr
    assert TrainSpec(lr=0.5).settle(n_features, 200).lr == 0.5


def test_a_batch_size_that_was_left_open_grows_with_the_samples() -> None:
    assert TrainSpec().settle(32, 999).batch_size == 16
    assert TrainSpec().settle(32, 1000).batch_size == 32
    assert TrainSpec(batch_size=0).settle(32, 1000).batch_size == 0


def test_presets_wait_longer_the_worse_the_network() -> None:
    presets = [Timing.localhost(), Timing.lan(), Timing.wireless()]

    assert [Timing.preset(name) for name in ("localhost", "lan", "wireless")] == presets
    for quick, slow in pairwise(presets):
        assert quick.heartbeat_s < slow.heartbeat_s
        assert quick.crash_detection_s < slow.crash_detection_s
        assert quick.silence_detection_s < slow.silence_detection_s
    for preset in presets:
        assert preset.heartbeat_s < preset.crash_detection_s < preset.silence_detection_s


def test_an_unknown_name_keeps_what_it_knows() -> None:
    error = UnknownNameError("scheme", "x", ["a", "b"])

    assert (error.what, error.name, error.known) == ("scheme", "x", ["a", "b"])


@pytest.mark.parametrize(
    ("n_samples", "batch_size", "epochs"), [(100, 10, 5), (101, 10, 5), (99, 10, 5), (90, 10, 6), (7, 0, 50), (7, 1, 8)]
)
def test_whole_epochs_make_at_least_so_many_mini_batches(n_samples: int, batch_size: int, epochs: int) -> None:
    assert TrainSettings(batch_size=batch_size).epochs_for(50, n_samples) == epochs
