"""Where AUROCs come from: the paper, stored results, a rehearsal; and what may be borrowed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tolfl.core.errors import SpecError, UnknownNameError
from tolfl.core.spec import BlobsSpec, ModelSpec, RunSpec
from tolfl.datasets import FederatedDataset, load
from tolfl.experiments.paper import published as paper
from tolfl.experiments.planning.aurocs import Aurocs, Layout, Worth, aurocs_of_files, aurocs_of_paper
from tolfl.experiments.planning.plan import layouts_of
from tolfl.experiments.planning.rehearsal import Rehearsal
from tolfl.sim.simulation import run

pytestmark = pytest.mark.slow


def stored(path: Path, *rows: dict[str, Any], **common: Any) -> Path:
    """Write a file of results; what a row does not say is usual."""
    usual = {"data": "comms-ml", "scheme": "tol-fl", "policy": "", "scenario": "clean", "clusters": 5, "devices": 10}
    usual |= {"rounds": 100, "split": 0, "seed": 0, "auroc": 0.8, "label": "not looked at"}
    path.write_text(json.dumps({"rows": [{**usual, **common, **row} for row in rows], "when": "today"}))
    return path


CLEAN, CLIENT = {"auroc": 0.8}, {"scenario": "client", "auroc": 0.78}


def server(policy: str, auroc: float, **fields: Any) -> dict[str, Any]:
    return {"scenario": "server", "policy": policy, "auroc": auroc, **fields}


def worth_of(aurocs: Aurocs, k: int, policy: str) -> Worth:
    found = aurocs.worth(Layout(k, policy), 10)
    assert found is not None
    return found


# -- stored results -------------------------------------------------------------------------------------------------


def test_what_was_measured_is_used_and_what_is_proven_is_borrowed(tmp_path: Path) -> None:
    path = stored(tmp_path / "r.json", CLEAN, CLIENT, server("drop", 0.7), server("elect", 0.77))
    aurocs = aurocs_of_files([path], n_devices=10)

    assert worth_of(aurocs, 5, "drop") == Worth({"none": {"0/0": 0.8}, "client": {"0/0": 0.78}, "server": {"0/0": 0.7}})
    assert worth_of(aurocs, 3, "elect").mean("server") == 0.77
    assert worth_of(aurocs, 3, "elect").borrowed["server"] == "with elect, k changes nothing"
    assert worth_of(aurocs, 10, "drop").mean("server") == 0.78
    assert aurocs.worth(Layout(3, "drop"), 10) is None
    assert aurocs.worth(Layout(1, "isolate"), 10) is None


def test_of_several_k_that_would_do_one_is_taken(tmp_path: Path) -> None:
    heads_lost = [server("elect", 0.7, clusters=2), server("elect", 0.77, clusters=5)]
    aurocs = aurocs_of_files([stored(tmp_path / "r.json", CLEAN, CLIENT, *heads_lost)], n_devices=10)

    assert worth_of(aurocs, 5, "elect").values["server"] == {"0/0": 0.77}
    assert worth_of(aurocs, 3, "elect").values["server"] == {"0/0": 0.7}


def test_beyond_the_paper_a_head_lost_for_every_k_is_of_use_and_the_rest_is_not(tmp_path: Path) -> None:
    asked = {"scenario": "beyond", "policy": "drop", "clusters": 4}
    beyond = [{**asked, "question": "clusters", "auroc": 0.75}, {**asked, "question": "early", "auroc": 0.1}]
    aurocs = aurocs_of_files([stored(tmp_path / "r.json", CLEAN, CLIENT, *beyond)], n_devices=10)

    assert worth_of(aurocs, 4, "drop").values["server"] == {"0/0": 0.75}


def test_without_a_run_of_elect_a_lost_head_costs_a_client(tmp_path: Path) -> None:
    aurocs = aurocs_of_files([stored(tmp_path / "r.json", CLEAN, CLIENT)], n_devices=10)

    assert worth_of(aurocs, 5, "elect").mean("server") == 0.78


def test_several_files_are_read_together_and_means_are_over_splits_and_seeds(tmp_path: Path) -> None:
    clean = stored(tmp_path / "clean.json", CLEAN, {"auroc": 0.84, "seed": 1}, {"auroc": 0.88, "split": "b"})
    client = stored(tmp_path / "client.json", CLIENT, {**CLIENT, "seed": 1, "auroc": 0.8}, scheme="fl", clusters=1)
    lost = stored(tmp_path / "server.json", server("freeze", 0.7), scheme="fl", clusters=1)
    aurocs = aurocs_of_files([clean, client, lost], n_devices=10)
    freeze = worth_of(aurocs, 1, "freeze")

    assert freeze.mean("none") == pytest.approx(0.84)
    assert freeze.mean("client") == pytest.approx(0.79)
    assert freeze.by_repetition({"none": 0.5, "client": 0.25, "server": 0.25}) == {"0/0": pytest.approx(0.77)}
    assert "3 repetitions of 100 rounds" in aurocs.source
    assert "client.json" in aurocs.source


def test_its_own_scheme_comes_first(tmp_path: Path) -> None:
    path = stored(
        tmp_path / "r.json", CLEAN, CLIENT, {"scheme": "fl", "auroc": 0.81}, {**CLIENT, "scheme": "fl", "auroc": 0.79},
        {"scheme": "sbt", "auroc": 0.82}, {"scheme": "fedgroup", "auroc": 0.5}, {"scheme": "batch", "auroc": 0.99},
        server("isolate", 0.6, scheme="fl", clusters=None), {**CLEAN, "auroc": None, "seed": 9},
    )  # fmt: skip
    aurocs = aurocs_of_files([path], n_devices=10)

    assert worth_of(aurocs, 1, "isolate").mean("none") == 0.81
    assert worth_of(aurocs, 5, "elect").mean("none") == 0.8
    assert worth_of(aurocs, 10, "elect").values["none"] == {"0/0": 0.82}  # the chain is Tol-FL with k = N
    assert worth_of(aurocs, 1, "isolate").mean("server") == 0.6


def test_one_data_set_of_several_is_chosen_by_name(tmp_path: Path) -> None:
    path = stored(tmp_path / "r.json", CLEAN, CLIENT, {"data": "blobs", "auroc": 0.6}, {**CLIENT, "data": "blobs"})

    assert worth_of(aurocs_of_files([path], 10, "blobs"), 5, "elect").mean("none") == 0.6
    with pytest.raises(SpecError, match="more than one data set; choose with --data: blobs, comms-ml"):
        aurocs_of_files([path], 10)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "not a file of results"),
        ("[1, 2]", "not a file of results"),
        ('{"rows": [{"data": "x"}]}', "not a file of results"),
        ('{"rows": []}', "no row of tol-fl, fl or sbt"),
        (None, "cannot be read"),
    ],
    ids=["broken", "a-list", "fields-missing", "empty", "no-file"],
)
def test_a_file_that_is_none_gets_a_sentence(tmp_path: Path, text: str | None, sentence: str) -> None:
    path = tmp_path / "r.json"
    if text is not None:
        path.write_text(text)

    with pytest.raises(SpecError, match=sentence) as caught:
        aurocs_of_files([path], 10)
    assert "r.json" in str(caught.value)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"scenario": "flood"}, "unknown scenario 'flood'"),
        ({"rounds": 40}, "runs of 40 and of 100 rounds"),
    ],
    ids=["scenario", "lengths"],
)
def test_rows_that_do_not_go_together_get_a_sentence(tmp_path: Path, row: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        aurocs_of_files([stored(tmp_path / "r.json", CLEAN, row)], 10)


def test_results_of_another_fleet_are_not_used(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no row for the number of devices 7; use --devices 10"):
        aurocs_of_files([stored(tmp_path / "r.json", CLEAN, CLIENT)], 7)


# -- the paper ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", ["comms-ml", "fashion-mnist", "cifar-10", "cifar-100"])
def test_the_papers_numbers_are_those_it_prints(data: str) -> None:
    aurocs, published = aurocs_of_paper(data), paper.published()["auroc"]

    for layout, scheme in ((Layout(1, "isolate"), "fl"), (Layout(5, "drop"), "tol-fl")):
        worth = aurocs.worth(layout, 10)
        assert worth is not None
        assert {s: worth.mean(s) for s in published} == {s: published[s][data][scheme][0] for s in published}


def test_the_paper_has_no_other_data() -> None:
    with pytest.raises(UnknownNameError, match="unknown data set of the paper 'blobs'"):
        aurocs_of_paper("blobs")


# -- a rehearsal ----------------------------------------------------------------------------------------------------

SPEC = RunSpec(
    data="blobs",
    devices=4,
    rounds=4,
    repetitions=2,
    model=ModelSpec(hidden=(8,), code=2),
    blobs=BlobsSpec(samples_per_device=20, n_features=6, n_test=60),
)


def rehearsed(layouts: list[Layout], data: list[FederatedDataset] | None = None) -> Aurocs:
    rehearsal = Rehearsal(SPEC, layouts, data)
    for _ in rehearsal:
        pass
    return rehearsal.aurocs


def test_a_rehearsal_gives_what_whole_runs_of_every_layout_give() -> None:
    layouts = layouts_of((1, 2, 4))
    aurocs = rehearsed(layouts)
    fails = {"none": "", "client": "client@2", "server": "server@2"}

    for layout in layouts:
        worth = aurocs.worth(layout, SPEC.devices)
        assert worth is not None
        for scenario, fail in fails.items():
            policy = layout.policy if fail else ""
            spec = msgspec.structs.replace(SPEC, scheme=layout.scheme, clusters=layout.clusters, fail=fail)
            results = run(msgspec.structs.replace(spec, on_head_failure=policy))
            own = {f"seed {result.spec.seed}": result.summary["auroc"] for result in results}
            # The chain that drops a head is lent the loss of a client: of another device, but of one alone.
            if (layout, scenario) != (Layout(4, "drop"), "server"):
                assert worth.values[scenario] == own, (layout, scenario)


def test_data_without_a_test_set_cannot_be_rehearsed() -> None:
    untested = [
        FederatedDataset.from_arrays([one.slice_of(device) for device in range(4)])
        for one in (load(SPEC), load(msgspec.structs.replace(SPEC, seed=1)))
    ]

    with pytest.raises(SpecError, match="without a test set nobody knows what a model is worth"):
        rehearsed([Layout(2, "elect")], untested)


def test_a_rehearsal_needs_a_round_before_and_one_after() -> None:
    with pytest.raises(SpecError, match="a rehearsal of 1 rounds"):
        Rehearsal(msgspec.structs.replace(SPEC, rounds=1), [Layout(2, "elect")])
