"""Golden examples A and B, through the whole simulator: devices, heads, chain, closed rounds.

The samples are whole numbers, which float32 holds exactly; the parameter is a double, so everything is exact to 1e-12.
"""

from __future__ import annotations

import msgspec
import pytest
from torch import nn

from tests.sim.fleets import Mean, OneWeight, closed, columns, params, simulated
from tolfl.core.spec import RunSpec, TrainSpec

#: Devices 1, 2, 3 of the examples are 0, 1, 2 here.
LAYOUTS = ["0,1,2", "2,1,0", "0,1|2", "2,0|1", "1|2,0", "0|1|2", "2|0|1", "1|0|2"]

A = columns([1, 3], [4], [6, 8, 10])
B = columns([1, 2], [3], [1, 1, 2])


def after_one_round(module: nn.Module, topology: str, *, epochs: int = 1, lr: float = 0.1, **options: str) -> float:
    train = TrainSpec(batch_size=0, lr=lr, epochs=epochs)
    spec = RunSpec(data="blobs", devices=3, clusters=3, topology=topology, rounds=1, train=train)
    result = simulated(msgspec.structs.replace(spec, **options), A if isinstance(module, Mean) else B, module)
    assert params(result).dtype == float
    return float(params(result)[0])


@pytest.mark.parametrize("topology", LAYOUTS)
@pytest.mark.parametrize(("epochs", "theta"), [(1, 16 / 15), (2, 48 / 25), (3, 976 / 375)])
def test_example_a_gives_the_same_model_in_every_layout(topology: str, epochs: int, theta: float) -> None:
    assert after_one_round(Mean(), topology, epochs=epochs) == pytest.approx(theta, rel=1e-12)


@pytest.mark.parametrize("topology", ["0,1|2", "0|1|2"])
def test_the_misprinted_closed_form_never_comes_out(topology: str) -> None:
    theta = after_one_round(Mean(), topology)
    gradient = -theta / 0.1

    assert gradient == pytest.approx(-32 / 3, rel=1e-12)
    assert gradient not in (pytest.approx(-16), pytest.approx(-70 / 3))


@pytest.mark.parametrize(
    ("topology", "fail", "policy", "theta"),
    [
        ("0,1|2", "server@0", "drop", 1.6),
        ("0,1|2", "server@0/report", "drop", 1.6),
        ("0,1|2", "server@0/chain", "drop", 1.6),
        ("0,1|2", "cluster:0@0", "elect", 1.6),
        ("2|0,1", "device:0@0", "drop", 1.6),
        ("0,1|2", "device:1@0", "elect", 28 / 25),
        ("0,1|2", "device:1@0/report", "drop", 28 / 25),
        ("0|1|2", "device:1@0", "drop", 28 / 25),
        ("0,1,2", "device:1@0", "elect", 28 / 25),
        ("0,1|2", "server@0", "elect", 7 / 5),
        ("0,1,2", "server@0/chain", "elect", 7 / 5),
        ("0|1|2", "server@0", "elect", 7 / 5),
        ("1|2,0", "device:0@0/report", "elect", 7 / 5),
    ],
)
def test_weights_of_example_a_are_renormalised_after_a_loss(
    topology: str, fail: str, policy: str, theta: float
) -> None:
    got = after_one_round(Mean(), topology, fail=fail, on_head_failure=policy)

    assert got == pytest.approx(theta, rel=1e-12)


@pytest.mark.parametrize("topology", LAYOUTS)
@pytest.mark.parametrize(("epochs", "weight"), [(1, 0.5 + 1 / 30), (2, 0.56315)])
def test_example_b_gives_the_same_model_in_every_layout(topology: str, epochs: int, weight: float) -> None:
    assert after_one_round(OneWeight(), topology, epochs=epochs, lr=0.01) == pytest.approx(weight, rel=1e-12)


def test_two_steps_on_all_data_of_example_b_are_something_else() -> None:
    spec = RunSpec(data="blobs", scheme="batch", devices=3, rounds=1, train=TrainSpec(batch_size=0, lr=0.01, epochs=2))
    weight = float(params(simulated(spec, B, OneWeight()))[0])

    assert weight == pytest.approx(0.5 + 2 * 1 / 30 - 1 / 30 * 2 * 0.01 * 10 / 3, rel=1e-12)
    assert weight == pytest.approx(0.564444, abs=1e-6)
    assert abs(weight - 0.56315) > 1e-3  # client drift


@pytest.mark.parametrize("scheme", ["tol-fl", "fl", "sbt", "batch", "batch-small"])
def test_no_scheme_trains_device_after_device(scheme: str) -> None:
    spec = RunSpec(data="blobs", scheme=scheme, devices=3, clusters=2, rounds=1, train=TrainSpec(batch_size=0, lr=0.01))
    result = simulated(spec, B, OneWeight())

    assert float(params(result)[0]) == pytest.approx(0.5 + 1 / 30, rel=1e-12)
    assert float(params(result)[0]) != pytest.approx(0.62608, abs=1e-3)  # cyclic training


def test_the_loss_of_a_round_is_the_mean_over_samples_before_it() -> None:
    result = simulated(RunSpec(data="blobs", devices=3, clusters=2, rounds=1, train=TrainSpec(batch_size=0, lr=0.1)), A)

    assert closed(result)[0].loss == pytest.approx((1 + 9 + 16 + 36 + 64 + 100) / 6, rel=1e-12)


def test_a_smaller_server_step_goes_part_of_the_way() -> None:
    train = TrainSpec(batch_size=0, lr=0.1, server_lr=0.5)
    theta = {
        scheme: float(
            params(simulated(RunSpec(data="blobs", scheme=scheme, devices=3, clusters=2, rounds=1, train=train), A))[0]
        )
        for scheme in ("tol-fl", "batch")
    }

    assert theta == pytest.approx({"tol-fl": 8 / 15, "batch": 8 / 15}, rel=1e-12)
