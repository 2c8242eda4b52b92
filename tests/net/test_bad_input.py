"""Learners that go wrong, specifications that differ, tables that do not fit: one sentence, and the others go on."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.cli.conftest import Command
from tests.net.fleet_processes import fleet_of, small_spec
from tests.net.hostile_peers import secure_fleet_of
from tests.net.nodes import fleet_of as fleet_in_process
from tests.net.nodes import free_addresses, small
from tests.net.own_tables import COLUMNS, write_table
from tolfl.core.contribution import Contribution, Part
from tolfl.core.errors import DataError, SpecError
from tolfl.core.spec import DatasetSpec, RunSpec
from tolfl.detect import Detector
from tolfl.detect.detector_learner import DETECTOR_FILE
from tolfl.net import trainer
from tolfl.net.collect import collect
from tolfl.net.node_config import NodeConfig
from tolfl.net.prepare import prepare
from tolfl.sim.simulation import run

LEARNER = '''
import threading

import numpy as np
from tolfl.learners import Learner, Shape


class Mean(Learner):
    """The mean row. Some devices go wrong in the third round."""

    WRONG, ROUNDS = {}, 6

    def __init__(self, fleet):
        self.rounds, self.n = self.ROUNDS, fleet.n_features

    def start(self, state):
        return {**state, "mean": np.zeros(self.n)}

    def contribute(self, turns):
        return [{"mean": turn.mean(self.wrong(turn, turn.rows.mean(axis=0).astype(float)))} for turn in turns]

    def wrong(self, turn, vector):
        return self.WRONG[turn.device](vector) if turn.round >= 2 and turn.device in self.WRONG else vector

    def apply(self, state, total, closing):
        return {**state, "mean": total.parts["mean"].mean} if "mean" in total.parts else state


class Checked(Mean):
    WRONG = {
        1: lambda vector: vector * (1 // 0),
        2: lambda vector: vector * np.nan,
        3: lambda vector: vector.astype(np.float16),
        4: lambda vector: vector[None],
        5: lambda vector: vector[1:],
    }

    def shapes(self, state, round_index):
        return {"mean": Shape("mean", "f8", self.n)}


class Unchecked(Mean):
    WRONG = {3: lambda vector: vector[1:]}


class Endless(Mean):
    WRONG, ROUNDS = {2: lambda vector: threading.Event().wait()}, 4


class Broken(Mean):
    def apply(self, state, total, closing):
        return state["mode"]


class NeverMade(Mean):
    def __init__(self, fleet):
        raise KeyError("colour")
'''

SENTENCES = {
    1: "contribute failed (mine.py, line 31: ZeroDivisionError: integer division or modulo by zero)",
    2: "part 'mean' has numbers that are not finite",
    3: "part 'mean' is float16 of shape (32,); contribute flat arrays of f4, f8, i8, u1",
    4: "part 'mean' is float64 of shape (1, 32); contribute flat arrays of f4, f8, i8, u1",
    5: "part 'mean' is a mean of 31 numbers (f8); this round takes a mean of 32 numbers (f8)",
}


def learn(folder: Path, name: str) -> dict[str, object]:
    """Return what `[learn]` says of a learner in a file."""
    (folder / "mine.py").write_text(LEARNER)
    return {"what": f"{folder / 'mine.py'}:{name}"}


# -- learners -------------------------------------------------------------------------------------------------------


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_a_learner_that_goes_wrong_costs_its_contributions_and_its_device_says_so_and_fails(tmp_path: Path) -> None:
    spec = small_spec(6, 1, learn=learn(tmp_path, "Checked"))
    with fleet_of(spec, tmp_path / "run") as fleet:
        fleet.until_the_end()
        codes = {one.device: one.exit_code for one in fleet.launcher.processes}

    # All go on to the end; who added nothing from the third round on says why, then and in the end.
    assert codes == {0: 0, 1: 1, 2: 1, 3: 1, 4: 1, 5: 1}
    for device, sentence in SENTENCES.items():
        log = (tmp_path / "run" / "devices" / str(device) / "log.txt").read_text()
        told = f"tolfl: device {device}, round 2: {sentence}"
        assert log == f"{told}; the run goes on without what it was to add\n{told}\n"
    summary = collect(fleet.launcher.directory, spec, fleet.data, fleet.survivors)
    assert (summary["ended"], summary["rounds_done"]) == ("over", 6)


@pytest.mark.parametrize("n_rows_of_head", [40, 0], ids=["head with rows", "head without a row"])
def test_a_contribution_of_another_length_is_refused_by_who_has_to_add_it(n_rows_of_head: int, tmp_path: Path) -> None:
    spec = small(learn=learn(tmp_path, "Unchecked"), topology="2,0,1,3", clusters=None, devices=4)
    samples = tmp_path / "samples.npy"
    np.save(samples, np.empty((n_rows_of_head, 8), np.float32))

    async def live() -> None:
        async with fleet_in_process(tmp_path, spec) as fleet:
            if not n_rows_of_head:
                fleet.prepare(2, samples=str(samples))
            fleet.launch(0, 1, 2, 3)
            assert await fleet.ends(0, 1, 2, 3) == ["over"] * 4

            first, second, *others = (line.missing for line in fleet.closed())
            assert (first, second) == ({}, {})
            # Who has nothing to compare with takes who comes first, and leaves out whoever differs from it.
            either = [{"3": "refused"}] + [{"0": "refused", "1": "refused"}] * (n_rows_of_head == 0)
            assert all(missing in either for missing in others)
            assert len(others) == 4
            assert len(fleet.histories()) == 1

    asyncio.run(live())


@pytest.mark.parametrize(
    "topology",
    ["0,1|2,3", pytest.param("2,3|0,1", marks=pytest.mark.slow), "0,2|1,3"],
    ids=["closer", "head", "member"],
)
def test_a_contribution_that_takes_for_ever_is_late_and_its_device_says_so(
    topology: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(trainer, "_LONG_S", 0.5)
    endless = learn(tmp_path, "Endless")
    spec = small(learn=endless, topology=topology, clusters=None, devices=4, deadline_s=1.0, timing="lan")

    async def live() -> None:
        async with fleet_in_process(tmp_path, spec) as fleet:
            fleet.launch(0, 1, 2, 3)
            assert await fleet.ends(0, 1, 2, 3) == ["over"] * 4
            assert [line.missing for line in fleet.closed()] == [{}, {}] + [{"2": "late"}] * 2

    with caplog.at_level(logging.WARNING, logger="tolfl"):
        asyncio.run(live())
    said = [line for line in caplog.messages if "contribute" in line]
    assert said == [
        "tolfl: device 2: the learner's contribute has taken 0.5 s and has not ended; rounds close without it"
    ]


def test_a_learner_that_cannot_close_a_round_says_so(tmp_path: Path) -> None:
    spec = small(learn=learn(tmp_path, "Broken"), devices=2, clusters=1)

    async def live() -> None:
        async with fleet_in_process(tmp_path, spec) as fleet:
            fleet.launch(0, 1)
            await fleet.ends(0, 1)

    with pytest.raises(RuntimeError, match=r"device \d, round 0: apply failed \(mine.py, line 52: KeyError: 'mode'\)"):
        asyncio.run(live())


@pytest.mark.parametrize(
    "part",
    [
        Part.mean_of(3, 40, np.ones(7)),
        pytest.param(Part.mean_of(3, 40, np.ones(44, np.float32)), marks=pytest.mark.slow),
        pytest.param(Part.total_of(3, np.ones(44)), marks=pytest.mark.slow),
    ],
    ids=["length", "type", "sum"],
)
def test_a_report_of_an_enrolled_device_in_another_shape_is_refused_and_the_fleet_ends_without_it(
    part: Part, tmp_path: Path
) -> None:
    # Of 8 features: 8 + 36 statistics in its second round.
    spec = small(learn={"what": "detector", "model": "pca"}, timing="lan")

    async def live() -> None:
        async with secure_fleet_of(tmp_path, spec) as fleet:
            trainer = fleet.prepare(3).trainer
            honest, wrong = trainer._contribute, Contribution(part.included, 40, {"statistics": part})
            trainer._contribute = lambda version, state: wrong if version.round == 1 else honest(version, state)  # type: ignore[method-assign]
            fleet.launch(0, 1, 2, 3)
            await fleet.until_round(2, [0, 1, 2])
            assert fleet.nodes[2].trainer.n_refused == 1
            assert await fleet.ends(0, 1, 2, 3) == ["over"] * 4

            assert [(line.round, line.missing) for line in fleet.closed() if line.missing] == [(1, {"3": "refused"})]
            assert len({(fleet.state(device) / DETECTOR_FILE).read_bytes() for device in range(4)}) == 1

    asyncio.run(live())


# -- devices that cannot train together -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"what": "detector", "model": "pca"}, marks=pytest.mark.slow),
        {"what": "detector", "columns": [f"x{place}" for place in reversed(range(8))]},
        pytest.param({"what": "autoencoder"}, marks=pytest.mark.slow),
    ],
    ids=["settings", "columns", "learner"],
)
def test_devices_that_learn_something_else_never_meet_and_say_so(
    other: dict[str, object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec = small(
        learn={"what": "detector", "columns": [f"x{place}" for place in range(8)]}, devices=3, clusters=1, timing="lan"
    )
    (tmp_path / "other.toml").write_text(small(learn=other, devices=3, clusters=1, timing="lan").to_toml())
    told = []

    async def live() -> None:
        async with fleet_in_process(tmp_path, spec) as fleet:
            for device in (0, 1):
                fleet.prepare(device, start_quiet_s=1.0)
            fleet.prepare(2, start_quiet_s=1.0, spec=str(tmp_path / "other.toml"))
            fleet.launch(0, 1, 2)
            await fleet.until(lambda: 2 in fleet.nodes[0].rejections and bool(fleet.nodes[2].rejections))
            told.extend([await fleet.status(0), await fleet.status(2)])
            assert await fleet.ends(0, 1, 2) == ["over"] * 3
            assert fleet.closed()[-1].included == (0, 1)

    with caplog.at_level(logging.WARNING, logger="tolfl"):
        asyncio.run(live())

    sentence = "device 2 answers, but belongs to another fleet or run: compare the specification, [learn], the file of "
    assert any(sentence in line for line in caplog.messages)
    assert sum(sentence in line for line in caplog.messages) <= 2, "each device says it once"
    assert told[0].trouble.startswith(sentence)
    assert all(one.refused["unexpected"] for one in told)


def test_a_device_that_learns_something_else_and_knows_seeds_alone_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec = small(devices=3, clusters=1, timing="lan")
    (tmp_path / "other.toml").write_text(msgspec.structs.replace(spec, seed=7).to_toml())

    async def live() -> None:
        async with secure_fleet_of(tmp_path, spec) as fleet:
            seeds = tuple(fleet.config(2).peers.values())
            fleet.prepare(2, spec=str(tmp_path / "other.toml"), peers={}, seeds=seeds)
            fleet.launch(0, 1, 2)
            await fleet.until(lambda: fleet.nodes[2].rejections.keys() == {0, 1})

    with caplog.at_level(logging.WARNING, logger="tolfl"):
        asyncio.run(live())
    assert any("device 0 answers, but belongs to another fleet or run" in line for line in caplog.messages)


def test_one_list_of_seeds_serves_all_devices(tmp_path: Path) -> None:
    told: list[tuple[str, int]] = []

    async def live() -> None:
        async with secure_fleet_of(tmp_path, small(devices=2, clusters=1, timing="lan")) as fleet:
            for device in (0, 1):
                fleet.prepare(device, peers={}, seeds=tuple(fleet.addresses))
            fleet.launch(0, 1)
            await fleet.until(lambda: all(node.has_begun for node in fleet.nodes.values()))
            for device in (0, 1):
                status = await fleet.status(device)
                told.append((status.trouble, status.refused.get("unexpected", 0)))
            assert await fleet.ends(0, 1) == ["over"] * 2

    asyncio.run(live())
    assert told == [("", 0)] * 2


def test_a_second_process_with_the_id_of_a_device_is_told_so(tmp_path: Path) -> None:
    async def live() -> None:
        async with secure_fleet_of(tmp_path, small(devices=2, clusters=1, timing="lan")) as fleet:
            fleet.prepare(1, peers={})
            fleet.launch(1)
            address, state = free_addresses(1)[0], str(tmp_path / "other")
            second = prepare(fleet.config(1, peers={}, seeds=(fleet.addresses[1],), listen=address, state=state))
            fleet.tasks[0] = asyncio.create_task(second.run())
            await fleet.until(lambda: bool(second.rejections))
            assert second.rejections[1].startswith("another process is device 1, too: give each device")

    asyncio.run(live())


# -- tables ---------------------------------------------------------------------------------------------------------


def own_table(folder: Path, table: str | None = None, columns: tuple[str, ...] = COLUMNS) -> NodeConfig:
    """Return the configuration of one device with a table, of which the specification says this."""
    agreed = {"columns": list(columns)} if columns else {}
    spec = RunSpec(devices=2, clusters=1, learn={"what": "detector", **agreed})
    (folder / "spec.toml").write_text(spec.to_toml())
    write_table(folder / "table.csv", device=1)
    if table is not None:
        (folder / "table.csv").write_text(table)
    return NodeConfig(
        device=0,
        listen=free_addresses(1)[0],
        state=str(folder / "state"),
        spec=str(folder / "spec.toml"),
        data=str(folder / "table.csv"),
        insecure=True,
    )


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (
            "warm,load,mode\n1,2,eco\n2,3,full\n",
            "there is no column 'flow' of --columns; the columns are warm, load, mode",
        ),
        ("warm,flow,load,mode\na,2,3,eco\nb,3,4,full\n", "data row 1: 'a' in column 'warm' is no number; correct it"),
        ("warm,flow,load,mode\n1,,3,eco\n2,3,4,full\n", "data row 1: 'flow' is missing; fill it in"),
        ("warm,flow,load,mode\n", "table.csv"),
    ],
    ids=["column", "words", "value", "empty"],
)
def test_a_table_that_does_not_fit_is_one_sentence_before_the_first_round(
    table: str, sentence: str, tolfl: Command, tmp_path: Path
) -> None:
    (tmp_path / "node.toml").write_text(own_table(tmp_path, table).to_toml())
    code, _, said = tolfl("node", "--config", str(tmp_path / "node.toml"))

    assert code != 0
    assert sentence in said
    assert said.startswith("tolfl: ")
    assert said.count("\n") == 1
    assert not (tmp_path / "state" / "records.jsonl").exists()


def test_a_table_without_a_typical_row_is_refused(tmp_path: Path) -> None:
    config = own_table(tmp_path, "warm,flow,load,mode,state\n1,2,3,eco,bad\n2,3,4,full,bad\n")
    spec = RunSpec(
        devices=2,
        clusters=1,
        dataset=DatasetSpec(label_column="state", typical=("fine",)),
        learn={"what": "detector", "columns": list(COLUMNS)},
    )
    Path(config.spec).write_text(spec.to_toml())

    with pytest.raises((DataError, SpecError), match=r"typical|fine"):
        prepare(config)


def test_columns_must_be_agreed_on_where_devices_have_tables(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"which columns the fleet has; .*tolfl data describe .*table.csv --columns"):
        prepare(own_table(tmp_path, columns=()))


# -- rows that are not there ----------------------------------------------------------------------------------------


def sites(folder: Path, n_rows: dict[str, int], label: dict[str, str] | None = None) -> RunSpec:
    """Return a run of sites with so many rows each."""
    rng = np.random.default_rng(1)
    lines = ["site,warm,flow,label"]
    for site, n in n_rows.items():
        state = (label or {}).get(site, "fine")
        lines += [f"{site},{a:.4f},{b:.4f},{state}" for a, b in rng.normal(size=(n, 2))]
    (folder / "sites.csv").write_text("\n".join(lines) + "\n")
    dataset = DatasetSpec(device_column="site", label_column="label", typical=("fine",))
    return RunSpec(
        data=str(folder / "sites.csv"),
        dataset=dataset,
        devices=len(n_rows),
        clusters=2,
        timing="lan",
        learn={"what": "detector"},
    )


def both(spec: RunSpec, folder: Path) -> Detector:
    """Run real processes and the simulator, check that they leave the same file, and return what is in it."""
    run(spec, out=folder / "simulated")
    with fleet_of(spec, folder / "run") as fleet:
        fleet.until_the_end()
    collect(fleet.launcher.directory, spec, fleet.data, fleet.survivors)
    left = {(fleet.out / "devices" / str(device) / DETECTOR_FILE).read_bytes() for device in fleet.survivors}
    assert left == {(folder / "run" / DETECTOR_FILE).read_bytes(), (folder / "simulated" / DETECTOR_FILE).read_bytes()}
    return Detector.load(folder / "run" / DETECTOR_FILE)


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_a_device_without_a_typical_row_takes_part_and_adds_nothing(tmp_path: Path) -> None:
    spec = sites(tmp_path, {"kiln": 40, "mill": 40, "oven": 5, "press": 40}, {"oven": "burnt"})
    detector = both(spec, tmp_path)

    shares = {one.name: one.n_trained + one.n_held_back for one in detector.trainings[0].devices}
    assert shares["oven"] == 0
    assert min(shares[name] for name in ("kiln", "mill", "press")) > 20


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", ["nothing held back", "lost before thresholds"])
def test_thresholds_without_held_back_rows_promise_nothing(case: str, tmp_path: Path) -> None:
    spec = sites(tmp_path, {"kiln": 60, "mill": 3, "oven": 3, "press": 3})
    if case == "nothing held back":
        spec = msgspec.structs.replace(spec, learn={"what": "detector", "held_back": 0.0})
    else:
        spec = msgspec.structs.replace(spec, fail="device:0@scatter:0/distribute")
    detector = both(spec, tmp_path)

    assert not detector.thresholds.fleet.is_guaranteed
    assert detector.thresholds.calibrated_on in {"training rows", "no rows"}


# -- what is asked for ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--scheme", "pca-16"], "scheme 'pca-16' has all rows in one place and runs in the simulator only"),
        (["--scheme", "batch"], "scheme 'batch' has all rows in one place and runs in the simulator only"),
        (["--learn", "detectr"], "unknown learner 'detectr'; .*did you mean 'detector'"),
        (["--learn", "nowhere.py:KMeans"], "there is no file nowhere.py; name a file and a class"),
        (["--learn", "mine.py:KMeans"], "mine.py has no class KMeans"),
        (["--learn", "mine.py:NeverMade"], r"learner 'mine.py:NeverMade' cannot be made \(KeyError: 'colour'\)"),
        (["--learn", "detector", "--set", "learn.colour=3"], "a detector has no setting 'colour'; it has model,"),
        (["--learn", "detector", "--scheme", "fedgroup"], "scheme fedgroup learns its own models, not 'detector'"),
        (["--learn", "detector", "--fail", "head@threshold:1"], "no stage 'threshold'; .*did you mean 'thresholds'"),
    ],
)
def test_what_cannot_be_run_is_refused_in_a_sentence_and_leaves_no_folder(
    flags: list[str], sentence: str, tolfl: Command, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(LEARNER)
    code, _, said = tolfl("up", "--data", "blobs", *flags, "--out", str(tmp_path / "run"))

    assert code == 2
    assert re.search(sentence, said), said
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()
