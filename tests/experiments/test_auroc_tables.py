"""The paper's tables: what they say of rows that were made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tolfl.core.errors import DataError, UnknownNameError
from tolfl.experiments.experiment import Options
from tolfl.experiments.paper.auroc_tables import jobs, report
from tolfl.experiments.paper.published import published_auroc
from tolfl.experiments.paper.setups import SETUPS, available_data
from tolfl.experiments.result_rows import Method
from tolfl.experiments.results import Verdict


def verdicts_of(scenario: str, rows: list[dict[str, Any]]) -> list[Verdict]:
    return list(report(scenario, rows).verdicts)


def made_up(scenario: str, scheme: str, policy: str, **scores: float) -> list[dict[str, Any]]:
    return [
        {"scenario": scenario, "data": "comms-ml", "scheme": scheme, "policy": policy, "split": split, "seed": split}
        | {"clusters_in_use": None, "clusters": 3}
        | {name: value + 0.001 * split for name, value in scores.items()}
        for split in range(5)
    ]


def test_the_papers_own_numbers_have_the_papers_shape() -> None:
    rows: list[dict[str, Any]] = []
    for scenario in ("clean", "client", "server"):
        for scheme, policy in (("tol-fl", "drop"), ("fl", "isolate"), ("batch", "")):
            published = published_auroc(scenario, "comms-ml", Method(scheme, policy))
            if published:
                rows += made_up(scenario, scheme, policy if scenario == "server" else "", auroc=published[0])
        for scheme in ("fedgroup", "ifca", "fesem"):
            kinds = {
                kind: published_auroc(scenario, "comms-ml", Method(scheme, "strict", kind))
                for kind in ("auroc_best", "auroc_all_models")
            }
            policy = "strict" if scenario == "server" else ""
            rows += made_up(scenario, scheme, policy, **{kind: value[0] for kind, value in kinds.items() if value})

    for scenario in ("clean", "client", "server"):
        assert [v.claim for v in verdicts_of(scenario, rows) if v.is_supported is False] == []
    untold = [v.claim for v in verdicts_of("server", rows) if v.is_supported is None]
    assert untold
    assert all("elect" in claim or "freeze" in claim or "all models" in claim or "alone" in claim for claim in untold)


def test_a_gap_that_goes_either_way_from_split_to_split_settles_nothing() -> None:
    rows = made_up("server", "fl", "freeze", auroc=0.8)
    for shift, verdict in ((0.05, True), (-0.05, False), (0.0, None)):
        ours = made_up("server", "tol-fl", "drop", auroc=0.8 + shift)
        ours[0]["auroc"], ours[1]["auroc"] = ours[0]["auroc"] + 0.01, ours[1]["auroc"] - 0.01
        found = {v.claim: v for v in verdicts_of("server", rows + ours)}
        assert found["Comms-ML: FL (freeze) < Tol-FL (drop)"].is_supported is verdict
    assert found["Comms-ML: FL (freeze) < Tol-FL (drop)"].evidence.startswith("0.802 - 0.802 = +0.000 (-0.00")


def test_devices_alone_and_all_models_of_isolated_devices_stand_in_the_table_and_are_judged() -> None:
    rows = made_up("server", "tol-fl", "elect", auroc=0.8, auroc_all_models=0.8)
    rows += made_up("server", "fl", "isolate", auroc=0.6, auroc_all_models=0.83)
    rows += made_up("alone", "fl", "isolate", auroc=0.59, auroc_all_models=0.84)
    found = report("server", rows)
    lines = {line[0]: line[1] for line in found.tables[0].rows}
    judged = {v.claim.removeprefix("Comms-ML: "): v.is_supported for v in found.verdicts}

    assert [lines[name][:5] for name in ("fl isolate", "fl isolate all models")] == ["0.602", "0.832"]
    assert [lines[name][:5] for name in ("fl alone", "fl alone all models")] == ["0.592", "0.842"]
    assert judged["FL (isolate), all models < Tol-FL (elect)"] is False
    assert judged["devices alone < Tol-FL (elect)"] is True
    assert judged["devices alone, all models < Tol-FL (elect)"] is False


def test_a_scheme_that_uses_one_model_is_named() -> None:
    rows = made_up("clean", "ifca", "", auroc=0.5)
    for row in rows:
        row["clusters_in_use"] = 1
    (line,) = [line for line in report("clean", rows).tables[1].rows if line[0] == "ifca"]
    assert line[1] == "1 of 3; one model in 5 of 5 runs"


def test_no_mean_over_data_sets_stands_without_those_of_each() -> None:
    rows = made_up("server", "tol-fl", "drop", auroc=0.8) + made_up("server", "fl", "isolate", auroc=0.6)
    more = [row | {"data": name} for row in rows for name in SETUPS]
    table = report("server", more).tables[-1]

    assert table.columns == ("against", "Comms-ML", "Fashion-MNIST", "CIFAR-10", "CIFAR-100", "p", "Holm")
    assert table.rows[0][1] == "+0.200 (+0.200 to +0.200) ahead"
    assert float(table.rows[0][-1]) < 0.05


def test_a_table_has_the_runs_that_it_is_judged_by() -> None:
    asked = jobs("server", Options(["comms-ml"], quick=True))
    assert [job.spec.scheme for job in asked if job.tags["scenario"] == "clean"] == ["tol-fl", "fl"]
    (alone,) = [job.spec for job in asked if job.tags["scenario"] == "alone"]
    assert (alone.scheme, alone.on_head_failure, alone.fail) == ("fl", "isolate", "device:0@0")


def test_data_sets_that_are_not_available_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOLFL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UnknownNameError, match="choose one of: all, comms-ml"):
        available_data("mars", tuple(SETUPS))
    found, missing = available_data("all", tuple(SETUPS))
    assert "comms-ml" in found
    assert set(missing) == set(SETUPS) - set(found)
    for name in missing:
        with pytest.raises(DataError):
            available_data(name, tuple(SETUPS))


def test_setups_are_specifications_that_hold() -> None:
    for setup in SETUPS.values():
        for quick in (False, True):
            spec = setup.spec(quick)
            assert msgspec.structs.replace(spec, seed=1).check().seed == 1
            assert spec.repetitions % spec.splits == 0
