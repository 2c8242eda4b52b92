"""The paper's tables: everything shown comes from rows, and the rows from the runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tolfl.core.errors import DataError, RunDirectoryError, UnknownNameError
from tolfl.core.records import Scored
from tolfl.experiments.paper.printed import printed_auroc
from tolfl.experiments.paper.significance import significance_tables
from tolfl.experiments.paper.studies import STUDIES, chosen_studies
from tolfl.experiments.paper.tables import PaperTables, methods, report_of
from tolfl.experiments.paper.targets import verdicts_of
from tolfl.experiments.report import ExperimentReport
from tolfl.experiments.reproduce import provenance, read_results, write_report
from tolfl.experiments.rows import Method, units_of
from tolfl.runs.run_reader import read_records


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cells")


@pytest.fixture(scope="module")
def tables(store: Path) -> PaperTables:
    found = PaperTables(("clean", "client", "server"), [STUDIES["comms-ml"]], quick=True, store=store)
    for _ in found.sweep:
        pass
    return found


def report_named(tables: PaperTables, name: str) -> ExperimentReport:
    return next(report for report in tables.reports() if report.name == name)


def test_every_method_has_every_repetition(tables: PaperTables) -> None:
    for scenario in ("clean", "client", "server"):
        rows = [row for row in tables.rows if row["scenario"] == scenario]
        for method in methods(scenario, rows):
            units = units_of(rows, method)
            assert {unit: len(values) for unit, values in units.items()} == {("comms-ml", 0): 1, ("comms-ml", 1): 1}


def test_tol_fl_and_fl_are_the_same_number_until_a_server_fails(tables: PaperTables) -> None:
    for scenario in ("clean", "client"):
        rows = [row for row in tables.rows if row["scenario"] == scenario]
        assert units_of(rows, Method("tol-fl")) == units_of(rows, Method("fl"))
    held = {verdict.claim: verdict.held for verdict in report_named(tables, "clean").verdicts}
    assert held["Comms-ML: Tol-FL = FL, exactly"] is True


def test_rows_are_what_the_records_say(tables: PaperTables, store: Path) -> None:
    for row in tables.rows:
        if "cell" not in row:
            continue
        (folder,) = store.glob(f"*{row['cell']}")
        index = row["seed"]
        records = read_records(folder / f"repetition-{index}" / "records.jsonl")
        last = records[-1]
        assert isinstance(last, Scored)
        for score in ("auroc", "auroc_best", "auroc_all_models", "auroc_chosen", "train_loss"):
            assert getattr(last, score) == row[score]


def test_stored_rows_give_the_same_report_again(tables: PaperTables, tmp_path: Path) -> None:
    report = report_named(tables, "server")
    write_report(tmp_path, report, provenance("tolfl reproduce server --quick", 1.0))
    stored = read_results(tmp_path / "server.json")

    assert report_of("server", stored["rows"], tables.rows).to_markdown() == report.to_markdown()
    assert stored["command"] == "tolfl reproduce server --quick"
    assert (tmp_path / "server.png").stat().st_size > 10_000
    assert "(0.75)" in (tmp_path / "server.md").read_text()


def test_a_failing_table_alone_takes_the_clean_runs_that_are_on_disk(tables: PaperTables, store: Path) -> None:
    alone = PaperTables(("server",), [STUDIES["comms-ml"]], quick=True, store=store)
    assert list(alone.sweep) == []
    claims = {verdict.claim: verdict.held for verdict in alone.reports()[0].verdicts}
    assert claims == {verdict.claim: verdict.held for verdict in report_named(tables, "server").verdicts}
    assert "not run" not in [verdict.evidence for verdict in alone.reports()[0].verdicts]


def test_damaged_results_are_named(tmp_path: Path) -> None:
    for content, words in (("{", "cannot|can be read"), ('{"schema": 99, "rows": []}', "schema 99")):
        (tmp_path / "x.json").write_text(content)
        with pytest.raises(RunDirectoryError, match=words):
            read_results(tmp_path / "x.json")


# -- by hand ------------------------------------------------------------------------------------------------------


def made_up(scenario: str, scheme: str, policy: str, **scores: float) -> list[dict[str, Any]]:
    return [
        {"scenario": scenario, "data": "comms-ml", "scheme": scheme, "policy": policy, "split": split, "seed": split}
        | {name: value + 0.001 * split for name, value in scores.items()}
        for split in range(5)
    ]


def test_the_papers_own_numbers_have_the_papers_shape() -> None:
    rows: list[dict[str, Any]] = []
    for scenario in ("clean", "client", "server"):
        for scheme, policy in (("tol-fl", "drop"), ("fl", "isolate"), ("batch", "")):
            printed = printed_auroc(scenario, "comms-ml", scheme, policy, "auroc")
            if printed:
                rows += made_up(scenario, scheme, policy if scenario == "server" else "", auroc=printed[0])
        for scheme in ("fedgroup", "ifca", "fesem"):
            kinds = {
                kind: printed_auroc(scenario, "comms-ml", scheme, "strict", kind)
                for kind in ("auroc_best", "auroc_all_models")
            }
            policy = "strict" if scenario == "server" else ""
            rows += made_up(scenario, scheme, policy, **{kind: value[0] for kind, value in kinds.items() if value})

    for scenario in ("clean", "client", "server"):
        not_held = {v.claim for v in verdicts_of(scenario, rows, ["comms-ml"]) if v.held is False}
        assert not_held == set()
    untold = {v.claim for v in verdicts_of("server", rows, ["comms-ml"]) if v.held is None}
    assert untold
    assert all("elect" in claim or "freeze" in claim for claim in untold)


def test_a_gap_that_goes_either_way_from_split_to_split_settles_nothing() -> None:
    rows = made_up("server", "fl", "freeze", auroc=0.8)
    for shift, verdict in ((0.05, True), (-0.05, False), (0.0, None)):
        ours = made_up("server", "tol-fl", "drop", auroc=0.8 + shift)
        ours[0]["auroc"], ours[1]["auroc"] = ours[0]["auroc"] + 0.01, ours[1]["auroc"] - 0.01
        found = {v.claim: v for v in verdicts_of("server", rows + ours, ["comms-ml"])}
        assert found["Comms-ML: FL (freeze) < Tol-FL (drop)"].held is verdict
    assert found["Comms-ML: FL (freeze) < Tol-FL (drop)"].evidence.startswith("0.802 - 0.802 = +0.000 (-0.00")


def test_a_consistent_gap_over_many_splits_is_settled_and_over_few_it_is_not() -> None:
    rows = made_up("server", "tol-fl", "drop", auroc=0.8) + made_up("server", "fl", "isolate", auroc=0.6)
    assert significance_tables(rows)[0].rows[0][-1] == "not settled"  # 5 splits: p is at least 1/16
    more = [row | {"data": name} for row in rows for name in ("comms-ml", "fashion-mnist", "cifar-10", "cifar-100")]
    table = significance_tables(more)[0]
    assert (table.rows[0][1], table.rows[0][3], table.rows[0][-1]) == ("+0.200", "20 of 20", "ahead")


def test_data_sets_that_are_not_at_hand_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOLFL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UnknownNameError, match="choose one of: all, comms-ml"):
        chosen_studies("mars")
    found, missing = chosen_studies("all")
    assert "comms-ml" in [study.data for study in found]
    assert set(missing) == set(STUDIES) - {study.data for study in found}
    for name in missing:
        with pytest.raises(DataError):
            chosen_studies(name)


def test_studies_are_specifications_that_hold() -> None:
    for study in STUDIES.values():
        for quick in (False, True):
            spec = study.spec(quick)
            assert msgspec.structs.replace(spec, seed=1).check().seed == 1
            assert spec.repetitions % spec.splits == 0
