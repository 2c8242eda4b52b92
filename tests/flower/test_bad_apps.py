"""Apps that a fleet cannot run, and apps that misbehave: one sentence each, and the fleet goes on where it can."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Command
from tests.cli.conftest import tolfl as tolfl  # noqa: PLC0414  (a fixture)
from tests.flower.environments import APPS, NEWEST, OLDEST, app_spec, needs_flwr, simulated
from tolfl.core.errors import TolFLError
from tolfl.core.records import RoundClosed
from tolfl.flower.app_process import FlowerAppError
from tolfl.learners.registry import fingerprint

HEAD = """
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()
arrays = ArrayRecord({"w": Array(np.zeros(3, np.float32))})
"""
CLIENT = "from flwr.clientapp import ClientApp\napp = ClientApp()\n"


def written(folder: Path, server: str, client: str = CLIENT) -> Path:
    """Write an app called `mine`."""
    folder.mkdir()
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "mine"\n[tool.flwr.app.components]\n'
        'serverapp = "mine_server:app"\nclientapp = "mine_client:app"\n'
    )
    (folder / "mine_server.py").write_text(HEAD + server)
    (folder / "mine_client.py").write_text(client)
    return folder


def main_of(body: str) -> str:
    return "\n@app.main()\ndef main(grid, context):\n" + "".join(f"    {line}\n" for line in body.splitlines())


SENDS = "mine sends messages itself instead of calling strategy.start(); it needs its server"
REFUSED = {
    "own loop": (main_of("grid.send_and_receive([])"), SENDS),
    "own start": (
        "class Own(FedAvg):\n    def start(self, grid, **options):\n        return grid.send_and_receive([])\n"
        + main_of("Own().start(grid=grid, initial_arrays=arrays)"),
        SENDS,
    ),
    "query": (
        main_of("grid.push_messages([grid.create_message(RecordDict(), 'query', 1, '')])"),
        SENDS,
    ),
    "secure aggregation": (
        "from flwr.server.workflow import SecAggPlusWorkflow\n" + main_of("SecAggPlusWorkflow(3, 2)"),
        "secure aggregation of Flower needs its server",
    ),
    "raises": (
        main_of("raise KeyError('no data')"),
        "the ServerApp of mine failed before its first round (KeyError: 'no data')",
    ),
    "does nothing": (
        main_of("pass"),
        "the ServerApp of mine ended without calling strategy.start(); there is nothing to train",
    ),
    "waits for nodes": (
        main_of("while len(list(grid.get_node_ids())) < 10:\n    pass"),
        "mine waits for more nodes; 6 are there",
    ),
    "configures badly": (
        "class Own(FedAvg):\n    def configure_train(self, *told):\n        raise KeyError('no node')\n"
        + main_of("Own().start(grid=grid, initial_arrays=arrays)"),
        "mine: configure_train of its strategy raised KeyError: 'no node' in round 1",
    ),
    "no rounds": (
        main_of("FedAvg().start(grid=grid, initial_arrays=arrays, num_rounds='3')"),
        "mine asks for '3' rounds; it needs a whole number, at least one",
    ),
    "many nodes": (
        main_of("FedAvg(min_available_nodes=10).start(grid=grid, initial_arrays=arrays)"),
        "the strategy waits for 10 nodes; this fleet has 6",
    ),
    "no import": (
        "import nothing_of_this_name\n",
        "its serverapp 'mine_server:app' cannot be imported with",
    ),
    "no component": ("del app\n", "AttributeError: module 'mine_server' has no attribute 'app'"),
}


def spec_of(folder: Path, **fields: Any) -> Any:
    return app_spec(**fields).__class__(
        devices=6, clusters=3, learn={"what": f"flower:{folder}", "python": str(NEWEST)}, **fields
    )


@needs_flwr
@pytest.mark.parametrize("case", REFUSED)
def test_an_app_that_needs_its_server_is_refused_in_one_sentence(case: str, tmp_path: Path) -> None:
    server, sentence = REFUSED[case]

    with pytest.raises(TolFLError) as refused:
        simulated(spec_of(written(tmp_path / "mine", server)))

    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


@needs_flwr
@pytest.mark.parametrize("python", [NEWEST, OLDEST], ids=["newest", "oldest"])
def test_an_own_server_and_differential_privacy_are_refused(python: Path) -> None:
    with pytest.raises(FlowerAppError, match=r"^older brings a server of its own; a fleet has none$"):
        simulated(app_spec("older", python, "own-server=true"))
    with pytest.raises(FlowerAppError, match=r"its noise would be known to all devices$"):
        simulated(app_spec(python=python, config="strategy='DifferentialPrivacy'"))


@needs_flwr
def test_local_noise_is_refused(tmp_path: Path) -> None:
    client = "from flwr.clientapp import ClientApp\nfrom flwr.clientapp.mod import LocalDpMod\n"
    client += "app = ClientApp(mods=[LocalDpMod(1.0, 1.0, 1.0, 1e-5)])\n"

    with pytest.raises(FlowerAppError, match=r"^mine uses LocalDpMod: its noise would be known to all devices$"):
        simulated(spec_of(written(tmp_path / "mine", main_of("pass"), client)))


@needs_flwr
def test_an_attribute_that_cannot_be_handed_on_ends_the_run_with_its_name() -> None:
    with pytest.raises(
        FlowerAppError, match=r"^linear: Odd.file is a TextIOWrapper that changes during training, .* keep"
    ):
        simulated(app_spec(config="strategy='Odd'"))


@needs_flwr
@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("raises", "its ClientApp raised ValueError: no such file"),
        ("exits", "its ClientApp raised SystemExit: 3"),
        ("crashes", "the process of linear ended with exit code 7"),
        ("half", "num-examples = 0.5: a weight is a whole number"),
        ("not finite", "array 'weights' has numbers that are not finite; use a smaller step"),
        ("shape", "its arrays have another shape than most"),
    ],
)
def test_a_client_that_fails_is_missing_in_that_round_and_the_others_go_on(what: str, reason: str) -> None:
    result = simulated(app_spec(config=f"misbehaves='{what}' victim=2 at-round=2"))

    rounds = [line for line in result.records if isinstance(line, RoundClosed)]
    assert {line.round: line.missing for line in rounds if line.missing} == {3: {"2": reason}}
    assert [len(line.included) for line in rounds] == [6, 6, 6, 5, 6, 6, 6, 6, 6]
    assert 0 < result.summary["metrics"]["evaluate/eval_loss"] < 100  # type: ignore[index]


@needs_flwr
@pytest.mark.parametrize("what", ["prints", "forks", "none"])
def test_a_client_that_prints_forks_or_has_no_examples_is_in_the_round(what: str) -> None:
    result = simulated(app_spec(config=f"misbehaves='{what}' victim=2"))

    assert all(not line.missing for line in result.records if isinstance(line, RoundClosed))


@needs_flwr
def test_a_client_that_hangs_is_ended_after_the_deadline() -> None:
    result = simulated(app_spec(config="misbehaves='hangs' victim=2 at-round=2 num-server-rounds=2", deadline_s=3.0))

    missing = {line.round: line.missing for line in result.records if isinstance(line, RoundClosed) and line.missing}
    assert missing == {3: {"2": "gave no answer within 3 s, and its process was ended"}}


@needs_flwr
@pytest.mark.parametrize("what", ["raises", "half", "not finite"])
def test_a_run_in_which_nobody_can_train_ends_with_the_reason(what: str) -> None:
    with pytest.raises(FlowerAppError, match=r"^linear: no device could train; of one of them "):
        simulated(app_spec(config=f"misbehaves='{what}'"))


@needs_flwr
@pytest.mark.processes
def test_a_fleet_in_which_nobody_can_train_ends_with_the_reason_too(tolfl: Command, tmp_path: Path) -> None:
    code, _, said = tolfl(
        "up", "--flower", str(APPS / "linear"), "--devices", "3", "--python", str(NEWEST),
        "--run-config", "misbehaves='raises'", "--out", str(tmp_path / "run"),
    )  # fmt: skip

    assert code == 1
    assert said.splitlines()[-1] == (
        "tolfl: every device ended: linear: no device could train; of one of them its ClientApp raised "
        "ValueError: no such file"
    )


@needs_flwr
def test_a_run_in_which_nobody_has_an_example_ends_with_that_sentence() -> None:
    with pytest.raises(FlowerAppError, match=r"^linear: no reply of round 1 has an example to train on$"):
        simulated(app_spec(config="misbehaves='none'"))


@needs_flwr
@pytest.mark.parametrize(
    ("end", "problem"),
    [
        ("raise OSError('no room')", "OSError: no room"),
        ("import os; os._exit(3)", "the process of mine ended with exit code 3"),
        ("raise SystemExit", ""),
    ],
)
def test_a_main_that_fails_at_its_end_is_told_and_its_files_take_no_names_of_a_device(
    end: str, problem: str, tmp_path: Path
) -> None:
    body = (
        "FedAvg(fraction_evaluate=0.0).start(grid=grid, initial_arrays=arrays, num_rounds=1)\n"
        "open('records.jsonl', 'w').close()\nopen('model.txt', 'w').close()\n" + end
    )
    client = CLIENT + (
        "from flwr.app import Message, MetricRecord, RecordDict\n\n@app.train()\ndef train(message, context):\n"
        "    content = {'arrays': message.content['arrays'], 'metrics': MetricRecord({'num-examples': 1})}\n"
        "    return Message(RecordDict(content), reply_to=message)\n"
    )

    files = simulated(spec_of(written(tmp_path / "mine", main_of(body), client))).models["flower"].files()

    assert {"app/records.jsonl", "model.safetensors", "model.txt"} == {*files} - {"app-problem.txt"}
    told = files.get("app-problem.txt", b"").decode()
    assert told == (f"after the last round the ServerApp of mine failed: {problem}\n" if problem else "")


@needs_flwr
def test_an_app_of_another_version_is_another_fleet(tmp_path: Path) -> None:
    shutil.copytree(APPS / "linear", tmp_path / "same", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(tmp_path / "same", tmp_path / "other")
    with (tmp_path / "other" / "linear_app" / "task.py").open("a") as file:
        file.write("\n")
    names = {
        name: fingerprint(spec_of(folder))
        for name, folder in {"linear": APPS / "linear", "same": tmp_path / "same", "other": tmp_path / "other"}.items()
    }

    assert names["linear"] == names["same"] != names["other"]
    # Flower's own version counts, too, and so does the configuration.
    assert len({fingerprint(app_spec(python=python)) for python in (NEWEST, OLDEST)}) == 2
    assert fingerprint(app_spec(config="learning-rate=0.2")) != names["linear"]


@needs_flwr
@pytest.mark.parametrize("case", ["own loop", "no import", "no component", "raises"])
def test_a_command_refuses_an_app_in_one_line(case: str, tolfl: Command, tmp_path: Path) -> None:
    server, sentence = REFUSED[case]
    folder = written(tmp_path / "mine", server)

    code, _, said = tolfl("simulate", "--flower", str(folder), "--devices", "6", "--python", str(NEWEST))

    assert (code, said.count("\n")) == (1, 1)
    assert said.startswith("tolfl: ")
    assert "mine" in said
    assert sentence in said


@needs_flwr
@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("raises", "its ClientApp raised ValueError: no such file"),
        ("exits", "its ClientApp raised SystemExit: 3"),
        ("crashes", "the process of linear ended with exit code 7"),
        ("hangs", "gave no answer within 4 s, and its process was ended"),
        ("half", "num-examples = 0.5: a weight is a whole number"),
        ("not finite", "array 'weights' has numbers that are not finite; use a smaller step"),
        ("forks", ""),
        ("prints", ""),
        ("locks", ""),
        ("none", ""),
    ],
)
def test_a_command_says_in_one_line_why_a_device_is_missing(
    what: str, reason: str, tolfl: Command, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = f"misbehaves='{what}' victim=2 at-round=1 num-server-rounds=2"

    code, said, _ = tolfl(
        "simulate", "--flower", str(APPS / "linear"), "--devices", "3", "--python", str(NEWEST),
        "--run-config", config, "--deadline", "4", "--out", str(tmp_path / "run"),
    )  # fmt: skip

    assert code == 0
    assert "ended: over\nrounds: 5 of 5" in said
    assert "devices left: 3 of 3" in said
    expected = [f"tolfl: linear: device 2 is not in round 1: {reason}"] if reason else []
    assert [line.getMessage() for line in caplog.records if line.name == "tolfl"] == expected


@needs_flwr
def test_an_app_trains_again_after_its_main_has_ended(tmp_path: Path) -> None:
    client = CLIENT + (
        "import os\nfrom flwr.app import Message, MetricRecord, RecordDict\n\n@app.train()\n"
        "def train(message, context):\n    os.getcwd()  # raises in a folder that is gone\n"
        "    metrics = MetricRecord({'num-examples': 1})\n"
        "    content = RecordDict({'arrays': message.content['arrays'], 'metrics': metrics})\n"
        "    return Message(content, reply_to=message)\n"
    )
    server = main_of(
        "FedAvg(fraction_evaluate=0.0).start(grid=grid, initial_arrays=arrays, num_rounds=2)\nopen('end', 'w').close()"
    )
    spec = spec_of(written(tmp_path / "mine", server, client))

    for _ in range(2):
        result = simulated(spec)
        assert "end" in result.models["flower"].files()
        assert all(not line.missing for line in result.records if isinstance(line, RoundClosed))


def test_an_interpreter_without_flwr_says_what_to_do(tolfl: Command) -> None:
    code, _, said = tolfl(
        "simulate", "--flower", str(APPS / "linear"), "--devices", "6", "--python", "/usr/bin/python3"
    )

    assert code == 1
    assert said.startswith("tolfl: the process of linear ended with exit code 1; /usr/bin/python3 has no flwr: install")


def test_a_folder_without_an_app_says_so(tolfl: Command, tmp_path: Path) -> None:
    code, _, said = tolfl("up", "--flower", str(tmp_path), "--devices", "3")

    assert (code, said.count("\n")) == (2, 1)
    assert said.startswith("tolfl: Flower app ")
    assert "name the folder of an app (flwr new)" in said
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("flag", "sentence"),
    [
        ("--learn detector", "--flower and --learn: name one of them"),
        ("--rounds 5", '--rounds: a Flower app sets them; use --run-config, as in "num-server-rounds=8"'),
        ("--data blobs", "--data: a Flower app brings its own data; leave it out"),
    ],
)
def test_flags_that_an_app_has_no_use_for_are_refused(flag: str, sentence: str, tolfl: Command) -> None:
    code, _, said = tolfl("simulate", "--flower", str(APPS / "linear"), *flag.split())

    assert (code, said) == (2, f"tolfl: {sentence}\n")


@needs_flwr
def test_what_a_simulated_app_printed_is_left_only_where_an_error_names_it(tmp_path: Path) -> None:
    (scratch := tmp_path / "scratch").mkdir()
    broken = written(tmp_path / "mine", "import os\nos.write(2, b'no good')\nos._exit(3)\n")
    for app, is_left in ((APPS / "linear", False), (broken, True)):
        flags = f"--flower {app} --python {NEWEST} --devices 6".split()
        done = subprocess.run(
            [sys.executable, "-m", "tolfl", "simulate", *flags],
            cwd=tmp_path,
            env={**os.environ, "TMPDIR": str(scratch)},
            check=False,
            capture_output=True,
            text=True,
        )
        assert (done.returncode != 0) == is_left, done.stderr
        assert [str(file) in done.stderr for file in scratch.iterdir()] == [True] * is_left
