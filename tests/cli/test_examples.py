"""The examples of every `--help` run, where seconds are enough; the others are named with the reason."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from docs.generate.commands import commands, examples
from tests.cli.conftest import Command
from tests.cli.detectors import lines_of_buildings, small_detector, write_lines
from tests.record_lines import lost_head, started, write
from tolfl.core.spec import RunSpec
from tolfl.net.enrolment import Authority
from tolfl.net.node_config import NodeConfig

#: Examples that take longer than a test may, or need what a test cannot have. All are parsed by test_first_hour.py.
NOT_RUN = {
    "tolfl fit comms-ml --devices 10 --fail server@50 --out model": "a minute",
    "tolfl fit flows.csv --ignore port --label-column attack --typical benign": "needs a table of flows; test_fit.py",
    "tolfl fit router.pcap --window 10 --out model": "needs a capture of a day; tests/cli/test_captures.py",
    "tail -f readings.jsonl | tolfl score model --follow --format jsonl": "never ends; tests/cli/test_score.py",
    "tolfl simulate --devices 10 --clusters 5 --rounds 100 --fail server@50 --seed 0": "half a minute",
    "tolfl simulate --scheme fl --fail server@50 --on-head-failure freeze --format json": "half a minute",
    "tolfl compare --schemes all --fail server@50": "many minutes; tests/cli/test_compare.py",
    "tolfl compare --schemes tol-fl,fl,ifca --rounds 40 --fail client@20 --format json": "minutes",
    "tolfl compare --schemes ifca --set ifca.restarts=5 --set train.lr=0.01 --out runs/mine": "minutes",
    "tolfl reproduce server --quick": "a minute; tests/cli/test_reproduce.py",
    "tolfl reproduce all --data-dir ~/data --out results": "a day",
    "tolfl reproduce clean --data fashion-mnist --on ray": "hours, and needs a download",
    "tolfl plan --devices 10 --fail-odds 0.02 --head-fail-odds 0.05 --deadline 1.0": "seconds; test_plan.py",
    "tolfl plan --data readings.csv --device-column site --label-column state --bandwidth 1e6": "the same",
    "tolfl up --devices 10 --clusters 5 --rounds 20": "real processes; tests/cli/test_up.py",
    "tolfl up --fail server@5/chain --rounds 20 --out runs/real ; tolfl simulate runs/real/spec.toml": "the same",
    "tolfl up --learn detector --data readings.csv --device-column site --fail server@0": "the same; tests/net",
    "tolfl up --rounds 200 --dashboard": "the same",
    'tolfl up --flower my-app --devices 6 --run-config "num-server-rounds=8" --fail server@6': "needs a Flower app",
    "tolfl simulate --flower my-app --devices 100 --fail random:0.01": "needs a Flower app; tests/flower",
    'tolfl node --config device.toml --flower my-app --node-config "partition-id=0"': "the same",
    "tolfl up --out runs/real --resume": "the same",
    "tolfl node --config device.toml": "runs until its fleet is done; tests/net",
    "tolfl node --config device.toml --verbose": "the same",
    "tolfl status 127.0.0.1:7003": "needs a device at that port; tests/cli/test_status.py",
    "tolfl status runs/real --format json": "needs a fleet that runs; tests/cli/test_status.py",
    "tolfl status 10.0.0.3:7000 --credentials fleet/devices/me": "needs another machine",
    "tolfl dashboard runs/001-tol-fl-comms-ml": "serves until Ctrl-C; tests/dashboard",
    "tolfl dashboard runs/tol-fl runs/fl --port 9000": "the same",
    "tolfl dashboard --follow runs/real": "the same",
    "tolfl dashboard 10.0.0.3:7000 --credentials fleet/devices/me": "needs another machine; tests/dashboard",
    "tolfl demo": "a minute or two; tests/cli/test_demo.py",
    "tolfl demo --seed 3": "the same",
    "tolfl demo --simulated": "the same",
    "tolfl watch model --interface wlan0 --mqtt mqtt://broker.example:1883 --device gate": "needs a broker",
    "tcpdump -i wlan0 -U -w - | tolfl watch model - --syslog unix:///dev/log": "needs an adapter",
    "rtl_sdr -f 433.92M -s 250k - | tolfl watch model - --raw cu8": "needs a receiver",
    "tolfl score model --interface wlan0 --alert-only": "needs an adapter: test_captures.py has loopback",
    "tolfl data spectrogram data/recordings/bluetooth/region-1.sigmf-meta --out picture.png": "test_recordings.py",
    "tolfl data spectrogram theirs.sigmf --from 0.25 --seconds 0.02 --out picture.png": "tests/cli/test_recordings.py",
    "tolfl data describe comms-ml --out pictures": "half a minute; tests/cli/test_data.py",
    "tolfl data get fashion-mnist": "a download; tests/datasets has a server of its own",
    "tolfl data generate comms-ml --out data --set comms_ml.windows_per_region=500": "half a minute; test_data.py",
    "tolfl data generate comms-ml --pcap --out data --set comms_ml.windows_per_region=100": "a gigabyte",
    "tolfl data generate comms-ml --iq --seconds 0.25 --out data": "120 MB; tests/cli/test_recordings.py",
    "tolfl data generate comms-ml --sim-config sim_cfg1.json --sampling-config sampling_cfg1.json --out data": (
        "needs the original project's files; tests/signals/test_published_configs.py"
    ),
    "tolfl enroll operator me ; tolfl status 10.0.0.3:7000 --credentials fleet/devices/me": "needs another machine",
    "tolfl enroll revoke gateway ; scp fleet/revocations.json 10.0.0.4:/etc/tolfl/credentials/": "the same",
}
EXAMPLES = [example for command in commands().values() for example in examples(command)]
#: What must be there before: a fleet, except for the example that makes it; and who is in it.
ENROLLED = {"tolfl enroll renew gateway": ("gateway", 3)}


def lay_out(folder: Path, example: str, tolfl: Command) -> None:
    """Make the files that an example names, small."""
    if "data describe readings.csv" in example:  # four sites
        rows = [f"{site},{row % 7},{row % 11},normal" for row in range(40) for site in "abcd"]
        write_lines(folder / "readings.csv", ["site,temp,power,state", *rows])
    elif ".csv" in example:
        without_time = [line.partition(",")[2] for line in lines_of_buildings()]
        write_lines(folder / "readings.csv", without_time)
        write_lines(folder / "november.csv", lines_of_buildings(is_labelled=True, seed=7))
    if "model" in example.split() and not example.startswith("tolfl fit readings.csv"):
        small_detector().save(folder / "model")
    tiny = RunSpec(data="blobs", devices=4, clusters=2, rounds=3)
    (folder / "run.toml").write_text(tiny.to_toml())
    if example.startswith("tolfl report state"):
        write(folder / "state", [started([[0, 1], [2, 3]], device=1), *lost_head()[1:-2]])
    if example.startswith("tolfl report"):
        for name, fail in (("real", ("--fail", "server@1")), ("clean", ())):
            if name in example:
                tolfl("simulate", "run.toml", *fail, "--out", f"runs/{name}")
    is_fleet_there = "enroll" in example and "init" not in example
    if is_fleet_there or example.startswith("tolfl doctor --fleet"):
        authority = Authority.create(folder / "fleet", "plant")
        if example in ENROLLED:
            authority.issue(*ENROLLED[example])
    if "device.toml" in example:
        (folder / "spec.toml").write_text(tiny.to_toml())
        config = NodeConfig(device=0, listen="127.0.0.1:0", state="state", insecure=True)
        (folder / "device.toml").write_text(config.to_toml())
    (folder / "home" / "data").mkdir(parents=True)


@pytest.mark.parametrize("example", [example for example in EXAMPLES if example not in NOT_RUN])
def test_an_example_of_the_help_runs(
    tolfl: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TOLFL_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    lay_out(tmp_path, example, tolfl)
    for part in example.split(" ; "):
        words = [os.path.expanduser(word) for word in shlex.split(part)]  # noqa: PTH111  (as a shell does it)
        code, _, err = tolfl(*words[1:])

        assert words[0] == "tolfl"
        assert code == 0, err


def test_what_is_not_run_is_still_an_example() -> None:
    assert sorted(NOT_RUN.keys() - set(EXAMPLES)) == []
    assert len(EXAMPLES) - len(NOT_RUN) >= 25
