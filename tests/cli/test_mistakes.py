"""Every mistake that a command line can hold gets one sentence and the right exit code, and leaves nothing behind."""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import tolfl as tolfl_api
from tests.cli.detectors import lines_of_buildings, run, small_detector, write_lines
from tests.cli.test_captures import traffic
from tests.cli.test_recordings import noise_recording
from tolfl.cli import main
from tolfl.core.errors import did_you_mean
from tolfl.net.enrolment import Authority
from tolfl.signals.sigmf import write_recording


class Answer(NamedTuple):
    """What a command line with a mistake gets."""

    code: int
    out: str
    err: str


SIX = "--data blobs --devices 6 --clusters 3 --rounds 4"
FOUR = "--data blobs --devices 4 --clusters 2 --rounds 5"
ROLES = "--device-column building --time-column time"
GENERATE = "data generate comms-ml --out d"

#: Command line, exit code, and what the sentence says.
MISTAKES = [
    # -- files and folders
    ("simulate nowhere.toml", 2, "nowhere.toml: cannot be read (No such file or directory)"),
    ("simulate folder", 2, "folder: cannot be read (Is a directory)"),
    ("simulate odd.toml", 2, "unknown key 'devises'; known are: blobs"),
    ("simulate rate.toml", 2, "spec rate.toml: train: unknown key 'learning_rate'; known are: batch_size, epochs, lr"),
    ("simulate --data empty.csv", 2, "empty.csv: the file is empty"),
    ("simulate --data folder", 2, "folder: there is no file in it"),
    ("simulate --data nowhere.csv", 2, "nowhere.csv: no such file or folder"),
    ("simulate --data mnist", 2, "fetch it with `tolfl data get mnist`"),
    ("simulate --data mnist --data-dir nowhere", 2, "nowhere: no such folder"),
    (f"simulate {SIX} --out used", 1, "run directory used: is not empty; choose another --out"),
    (f"simulate {SIX} --out empty.csv/below", 1, "empty.csv/below: cannot be written (Not a directory)"),
    ("simulate --data blobs --rounds 2 --out /proc/x", 1, "/proc/x: cannot be written"),
    ("demo --out empty.csv", 1, "empty.csv: is not empty"),
    ("demo --out /proc/x", 1, "/proc/x: cannot be written"),
    # -- a run
    ("simulate --clusters 11", 2, "11 clusters for 10 devices; use at most 10"),
    ("simulate -n 99999999999999999999", 2, "devices 99999999999999999999; use at most 1,000,000,000"),
    ("simulate --data blobs --samples-per-device 9999999999", 2, "samples_per_device 9999999999; use at most 1,"),
    ("simulate -n -5", 2, "devices -5; use at least 1"),
    ("simulate --rounds -3", 2, "rounds -3; use at least 1"),
    ("simulate --lr -1", 2, "lr -1; use a number above 0"),
    ("simulate --scheme nope", 2, "unknown scheme 'nope'; choose one of:"),
    ("simulate --data nope", 2, "unknown data set 'nope'; choose one of: comms-ml"),
    ("simulate --fail device:99@3", 2, "failure plan 'device:99@3': there is no device 99; ids go from 0 to 9"),
    ("simulate --fail nonsense", 2, "failure plan 'nonsense': say when"),
    ("simulate --fail server@100", 2, "round 100 never comes in a run of 100 rounds"),
    ("simulate --on-head-failure pray", 2, "unknown on-head-failure policy 'pray'; choose one of: elect"),
    ("simulate --fail server:3@1", 2, "server takes no id; for another device write device:3"),
    ("simulate --fail 'cut:0|1@1/chain'", 2, "a cut has no phase"),
    ("simulate --fail device:3@2-200", 2, "round 200 never comes in a run of 100 rounds; leave out the return"),
    ("simulate --scheme mean-vector --fail server@999", 2, "round 999 never comes"),
    ("simulate --data blobs --fail server@thresholds:2", 2, "no stage 'thresholds', this run has none"),
    ("simulate --seed 99999999999999999999", 2, "use a smaller one (below 2**63)"),
    ("simulate --optimizer magic", 2, "train.optimizer: unknown value 'magic'; choose one of: sgd, momentum, adam"),
    ("simulate --topology 0,1", 2, "topology '0,1': name each of the 10 devices"),
    ("simulate --set dataset.test_share=1", 2, "dataset test_share 1; use at least 0 and less than 1"),
    ("simulate --resume", 2, "--resume needs --out"),
    ("simulate --resume --out nowhere", 1, "run directory nowhere: holds no run to resume"),
    ("simulate --resume --out x --seed 9", 1, "was started with other options"),
    ("simulate --data blobs --rounds 2 --out d --track paper", 2, "choose one of: tensorboard, mlflow"),
    # -- many runs
    (f"compare {SIX} --schemes gossip", 2, "unknown scheme 'gossip'; choose one of: all, tol-fl, sbt"),
    (f"compare {SIX} --schemes ''", 2, "no scheme to compare; name some"),
    (f"compare {SIX} --fail server@9", 2, "round 9 never comes"),
    (f"compare {SIX} --fail random:2", 2, "write a probability"),
    ("compare --data nowhere", 2, "unknown data set 'nowhere'"),
    (f"compare {SIX} --clusters 9", 2, "9 clusters for 6 devices"),
    (f"compare {SIX} --lost-model found", 2, "unknown value 'found'; choose one of: lost, frozen"),
    (f"compare {SIX} --set ifca.restarts", 2, "write a field and its value"),
    (f"compare {SIX} --set ifca.restarts=0", 2, "ifca restarts 0; use at least 1"),
    (f"compare {SIX} --set ifca.resets=2", 2, "ifca: unknown key 'resets'"),
    (f"compare {SIX} --set nothing.a=2", 2, "no section 'nothing'"),
    (f"compare {SIX} --set on_head_failure=drop", 2, "does not apply to comparisons"),
    (f"compare {SIX} --out used", 1, "is not empty; choose another --out"),
    ("compare --resume", 2, "--resume needs --out"),
    ("compare --resume --out used", 1, "holds no comparison to resume"),
    (f"compare {SIX} --out used --resume", 2, "give --out and --resume alone"),
    ("reproduce tables", 2, "unknown experiment 'tables'; choose one of: clean, client, server"),
    ("reproduce clean --data mars", 2, "unknown data set of this experiment 'mars'"),
    ("reproduce all --quick --data comms-ml,mars", 2, "unknown data set of this experiment 'mars'"),
    ("reproduce communication --page empty.csv", 2, "--page goes with render, once results are stored"),
    (
        "reproduce liars --data cifar-10",
        2,
        "of this experiment 'cifar-10'; choose one of: all, comms-ml",
    ),
    ("reproduce clean --on moon", 2, "use local, ray (this machine) or ray:ADDRESS"),
    ("reproduce clean --quick --data cifar-100", 2, "cifar-100"),
    ("reproduce render --out nowhere", 2, "there are no results to render"),
    ("plan --fail-odds -1", 2, "fail odds -1; give a probability"),
    ("plan --head-fail-odds 2", 2, "head fail odds 2; give a probability"),
    ("plan --clusters 11", 2, "11 clusters for 10 devices"),
    ("plan --clusters 0", 2, "0 clusters; at least 1"),
    ("plan --clusters two", 2, "--clusters 'two': give whole numbers"),
    ("plan --devices 1", 2, "a plan needs at least 2"),
    ("plan --latency -1", 2, "latency_s -1; use at least 0"),
    ("plan --bandwidth 0", 2, "bandwidth_bps 0; use a number above 0"),
    ("plan --deadline 0", 2, "deadline 0 s"),
    ("plan --uplink radio", 2, "unknown value 'radio'; choose one of: serial, parallel"),
    ("plan --timing mars", 2, "unknown timing preset 'mars'"),
    ("plan --set 'topology=\"0,1|2,3\"'", 2, "leave it out"),
    ("plan --out empty.csv/below", 1, "cannot be written"),
    ("plan --data blobs --out empty.csv", 1, "empty.csv: cannot be written (Not a directory); choose another --out"),
    ("reproduce communication --quick --out empty.csv", 1, "empty.csv: cannot be written (Not a directory)"),
    ("plan --data nowhere", 2, "unknown data set 'nowhere'"),
    ("plan --data blobs --pilot-rounds 1", 2, "a pilot run of 1 rounds"),
    ("plan --data blobs --pilot-rounds 0", 2, "rounds 0; use at least 1"),
    # -- real devices
    (f"up {FOUR} --scheme batch", 2, "runs in the simulator only (tolfl simulate)"),
    (f"up {FOUR} --set repetitions=3", 2, "3 repetitions; a real network runs one at a time"),
    (f"up {FOUR} --fail device:9@3", 2, "there is no device 9"),
    (f"up {FOUR} --fail nobody@3", 2, "start with client, server, device:ID"),
    (f"up {FOUR} --clusters 9", 2, "9 clusters for 4 devices"),
    (f"up {FOUR} --timing slow", 2, "localhost, lan, wireless"),
    (f"up {FOUR} --out used", 1, "is not empty"),
    ("up --data nowhere", 2, "nowhere"),
    ("up --data empty.csv", 2, "empty.csv: the file is empty"),
    ("up --latency 0.1", 2, "--latency"),  # a flag of virtual time
    ("up --resume", 2, "--resume needs --out"),
    ("up --resume --out x", 1, "holds no run of real devices to resume"),
    ("up --resume --out real --seed 9", 1, "was started with other options"),
    ("up --resume --out real --set seed=9", 1, "was started with other options"),
    ("node", 2, "missing option '--config' / '-c'; see tolfl node --help"),
    ("node --config nowhere.toml", 2, "nowhere.toml: cannot be read"),
    ("status", 2, "see tolfl status --help"),
    ("status 127.0.0.1:1 --format xml", 2, "see tolfl status --help"),
    ("status 127.0.0.1:1 another", 2, "see tolfl status --help"),
    ("status nowhere", 2, "address 'nowhere'; write host:port"),
    ("status 127.0.0.1:99999", 2, "write host:port"),
    ("status 127.0.0.1:", 2, "write host:port"),
    ("status folder", 2, "folder is no run directory of real devices"),
    ("status notes", 2, "no run directory of real devices"),
    ("status broken.toml", 2, "device configuration"),
    ("status unknown.toml", 2, "device configuration"),
    ("status binary.toml", 2, "device configuration"),
    ("enroll init", 1, "holds an authority already"),
    ("enroll init --fleet other --name Plant", 2, "use small letters"),
    ("enroll init --fleet empty.csv/below", 1, "cannot be written"),
    ("enroll device gateway", 2, "has no id; give one with --id"),
    ("enroll device Gateway --id 5", 2, "use small letters"),
    ("enroll device ../x --id 5", 2, "use small letters"),
    ("enroll device gateway --id -1", 2, "--id"),
    ("enroll device gateway --id 3", 1, "device 3 is 'three' already"),
    ("enroll device three --id 5", 1, "'three' is enrolled already"),
    ("enroll device gateway --id 5 --days 0", 2, "--days"),
    ("enroll device gateway --id 5 --fleet nowhere", 1, "tolfl enroll init makes one"),
    ("enroll operator me", 1, "'me' is enrolled already"),
    ("enroll renew nobody", 1, "'nobody' is not enrolled; enrolled are: me, old, three"),
    ("enroll renew old", 1, "'old' was revoked"),
    ("enroll revoke nobody", 1, "'nobody' is not enrolled"),
    ("enroll revoke me", 1, "is an operator"),
    ("enroll list --fleet nowhere", 1, "tolfl enroll init"),
    ("enroll list --format xml", 2, "--format"),
    # -- reports and pages
    ("report nowhere", 1, "run directory nowhere: does not exist"),
    ("report folder", 1, "holds no run"),
    ("report x/spec.toml", 1, "is a file; name the folder that it is in"),
    ("report x --failure-free x", 2, "run x had failures of its own"),
    ("report x --out x", 1, "is a folder; name a file with --out"),
    ("dashboard nowhere", 1, "run directory nowhere: does not exist"),
    ("dashboard typical.csv", 1, "typical.csv has no record that can be read (JSON is malformed"),
    ("dashboard empty.csv", 1, "empty.csv: has no records"),
    ("dashboard x x/spec.toml", 1, "spec.toml has no record that can be read"),
    # -- a detector
    ("fit nowhere.csv", 2, "nowhere.csv: no such file"),
    (
        "evaluate model truth.csv --label-column state --out empty.csv",
        1,
        "empty.csv: cannot be written (Not a directory)",
    ),
    ("watch model nowhere.pcap", 2, "nowhere.pcap: no such file or folder"),
    ("watch model truth.csv --metrics nine", 2, "address 'nine'; write host:port"),
    ("data generate comms-ml --out empty.csv", 1, "empty.csv: cannot be written (Not a directory)"),
    ("fit nowhere", 2, "unknown data set 'nowhere'"),
    ("fit empty.csv", 2, "empty.csv: the file is empty"),
    ("fit empty.csv --out folder", 2, "--out folder is a folder"),
    ("fit typical.csv --device-column room", 2, "no column 'room' for the device"),
    ("fit one.csv --device-column site", 2, "one device, only, which has all the rows"),
    ("fit words.csv", 2, "only words are there; a detector needs at least one column of numbers"),
    (f"fit typical.csv {ROLES} --model forest", 2, "unknown model 'forest'"),
    (f"fit typical.csv {ROLES} --model auto", 2, "model 'auto' is not supported"),
    (f"fit typical.csv {ROLES} --fail tomorrow", 2, "failure plan 'tomorrow'"),
    (f"fit typical.csv {ROLES} --alarms-per-day 1", 2, "go together"),
    (f"fit typical.csv {ROLES} --contamination 2", 2, "contamination 2"),
    (f"fit typical.csv {ROLES} --contamination much", 2, "setting of the detector is wrong"),
    (f"fit typical.csv {ROLES} --set colour=3", 2, "a detector has no such field"),
    (f"fit typical.csv {ROLES} --set scaling=max", 2, "unknown scaling 'max'"),
    (f"fit typical.csv {ROLES} --clusters 9 --model pca", 2, "9 clusters for 3 devices"),
    (f"fit typical.csv {ROLES} --continue nothing", 2, "there is no such file; tolfl fit makes one"),
    (f"fit typical.csv {ROLES} --out typical.csv", 2, "is there already"),
    (f"fit typical.csv {ROLES} --out .", 2, "is a folder"),
    (f"fit typical.csv {ROLES} --out typical.csv/x", 1, "cannot be written"),
    (f"fit typical.csv {ROLES} --model pca --track paper", 2, "unknown tracker 'paper'"),
    (f"fit truth.csv {ROLES} --label-column building", 2, "name the typical ones"),
    ("score model", 2, "name what to score"),
    ("score model truth.csv --follow", 2, "only a capture can be followed"),
    ("score model truth.csv --interface lo", 2, "leave one of them out"),
    ("score model truth.csv --group -1", 2, "--group -1"),
    ("score model nowhere.csv", 2, "nowhere.csv: no such file"),
    ("score model blobs", 2, "not the name of a data set"),
    ("score model truth.csv --device-column room", 2, "no column 'room'"),
    ("score model other.csv", 2, "no column for 5 of 5 columns: 'temp', 'humidity', 'co2', 'fan', 'power'"),
    ("score model wide.npz", 2, "the detector was trained on 5 columns"),
    ("score model empty.csv", 2, "the file is empty"),
    ("score folder empty.csv", 2, "detector folder: is a folder"),
    ("score nowhere empty.csv", 2, "there is no such file; tolfl fit makes one"),
    ("score truth.csv truth.csv", 2, "is no detector"),
    ("inspect empty.csv", 2, "is no detector"),
    ("evaluate model typical.csv", 2, "--label-column says which column has the truth"),
    ("evaluate model truth.csv --label-column verdict", 2, "no column 'verdict'"),
    ("evaluate model typical.csv --time-column time --label-column building", 2, "name the typical ones"),
    (f"evaluate model truth.csv {ROLES} --label-column state --typical calm", 2, "no row has the class 'calm'"),
    ("evaluate model nowhere", 2, "nowhere: no such file or folder"),
    ("export model --out folder", 1, "run directory folder: is there and is no file; choose another --out"),
    ("export model --to tflite", 2, "unknown kind of export 'tflite'; choose one of: scorer, onnx"),
    # -- captures and recordings
    ("fit empty.pcap", 2, "empty.pcap: the file is empty"),
    ("fit text.pcapng", 2, "text.pcapng: is neither pcap nor pcapng"),
    ("fit good.pcap --label-column y", 2, "has no labels of anomalous windows"),
    ("fit good.pcap --device-column y", 2, "put one capture per device into a folder"),
    ("fit good.pcap --time-column y", 2, "the start of a window is called 'time'"),
    ("fit good.pcap --window 2 --step 1", 2, "the step must be at least the window"),
    ("fit good.pcap --window 0", 2, "dataset window_s 0; use a number above 0"),
    ("fit mixed", 2, "captures and tables are mixed"),
    ("fit twice", 2, "the same device as a.pcap"),
    ("evaluate packets good.pcap --label-column y", 2, "has no labels of anomalous windows to compare with"),
    ("evaluate packets good.pcap", 2, "has no labels of anomalous windows to compare with"),
    ("evaluate packets captures", 2, "has no labels of anomalous windows to compare with"),
    ("fit cut.sigmf-meta", 2, "the metadata refer to sample 1500, but there are 1000"),
    ("fit alone.sigmf-meta", 2, "alone.sigmf-data is not beside it"),
    ("fit nothing.sigmf-meta", 2, "nothing.sigmf-meta: no such file or folder"),
    ("fit good.sigmf-meta --device-column x", 2, "there is no column 'x' for the device"),
    ("fit good.sigmf-meta --label-column x", 2, "there is no column 'x' for the label"),
    ("fit two-rates", 2, "its columns are not those of two-rates/a.sigmf-meta"),
    ("fit broken.sigmf-meta", 2, "data row 2: samples of this window are no finite numbers"),
    (f"fit typical.csv {ROLES} --continue model", 2, "fit again"),
    ("score noise slow.sigmf-meta", 2, "no column for 64 of 75 columns"),
    ("score noise good.sigmf-meta --time-column when", 2, "there is no column 'when' for the time"),
    ("data spectrogram good.sigmf-meta --out x.doc", 2, "a picture ends in one of .png, .svg, .pdf"),
    ("data spectrogram good.sigmf-meta --from 9 --out x.png", 2, "the recording lasts 0.06144 s"),
    ("data spectrogram good.csv --out x.png", 2, "no recording by its name"),
    # -- data sets
    ("data describe nowhere", 2, "unknown data set 'nowhere'; choose one of: comms-ml"),
    ("data describe nowhere.csv", 2, "nowhere.csv: no such file or folder"),
    ("data describe empty.csv", 2, "empty.csv: the file is empty"),
    ("data describe fashion-mnist", 2, "fetch it with `tolfl data get fashion-mnist`"),
    ("data describe comms-ml --label-column x", 2, "columns are for tables of one's own"),
    ("data describe blobs --partition fair", 2, "unknown value 'fair'; choose one of: classes, iid"),
    ("data get comms-ml", 2, "unknown data set to get 'comms-ml'; choose one of: cifar-10"),
    ("data get wsn-ds --data-dir d", 1, "wsn-ds has no address to fetch it from; put wsn_ds.csv"),
    ("data generate blobs --out d", 2, "choose one of: comms-ml, comms-ml-published"),
    (f"{GENERATE} --sim-config a.json", 2, "go together"),
    (f"{GENERATE} --sim-config a.json --sampling-config b.json", 2, "a.json"),
    (f"{GENERATE} --set comms_ml.rate_factor=-1", 2, "rate_factor -1; use a number above 0"),
    (f"{GENERATE} --iq --seconds 0", 2, "--seconds 0; use a number"),
]

#: What was typed, and what was probably meant.
TYPOS = [
    ("simulat", "simulate"),
    ("data lst", "list"),
    ("enrol list", "enroll"),
    ("simulate --schem fl", "--scheme"),
    ("simulate --scheme tolfl", "tol-fl"),
    ("simulate --scheme fed-group", "fedgroup"),
    ("simulate --data commsml", "comms-ml"),
    ("simulate --data fashion_mnist", "fashion-mnist"),
    ("simulate --optimizer adm", "adam"),
    ("simulate --timing lam", "lan"),
    ("simulate --set train.lrr=1", "lr"),
    ("simulate --on-head-failure elekt", "elect"),
    ("compare --schemes tolfl", "tol-fl"),
    ("reproduce servr", "server"),
    ("data get mnsit", "mnist"),
    ("data describe cifar10", "cifar-10"),
    ("fit commsml", "comms-ml"),
    ("fit blobs --model pcaa", "pca"),
    ("up --scheme tolfl", "tol-fl"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that the mistakes are made with: tables, runs, detectors, a fleet, captures, recordings."""
    folder = tmp_path_factory.mktemp("mistakes")
    for name in ("folder", "used", "notes/devices/notes", "mixed", "twice", "captures"):
        (folder / name).mkdir(parents=True)
    texts = {
        "empty.csv": "",
        "empty.pcap": "",
        "text.pcapng": "no capture",
        "odd.toml": "devises = 3\n",
        "rate.toml": "[train]\nlearning_rate = 3\n",
        "words.csv": "a,b\nx,y\nz,w\n",
        "one.csv": "a,site\n" + "1,only\n" * 20,
        "other.csv": "a,b\n1,2\n",
        "used/thesis.txt": "precious",
        "broken.toml": "device = ",
        "unknown.toml": 'device = 1\nlisten = "127.0.0.1:1"\nstate = "s"\ncolour = "red"\n',
        "notes/devices/notes/node.toml": "",  # no device, whatever it is
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "binary.toml").write_bytes(b"\xff\xfe\x00")
    write_lines(folder / "typical.csv", lines_of_buildings())
    write_lines(folder / "truth.csv", lines_of_buildings(is_labelled=True, seed=7))
    np.savez(folder / "wide.npz", X=np.zeros((3, 6)))
    small_detector().save(folder / "model")
    tolfl_api.simulate(data="blobs", devices=4, clusters=2, rounds=4, fail="server@2", out=folder / "x")
    (folder / "real" / "devices").mkdir(parents=True)
    for copy in ("real/spec.toml", "real/devices/spec.toml"):
        (folder / copy).write_bytes((folder / "x" / "spec.toml").read_bytes())
    authority = Authority.create(folder / "fleet", "")
    for name, device in (("three", 3), ("me", None), ("old", 9)):
        authority.issue(name, device, 365)
    authority.revoke("old")
    add_captures(folder)
    add_recordings(folder)
    return folder


def add_captures(folder: Path) -> None:
    good = traffic(folder / "good.pcap", 1, 60)
    for name in ("mixed/a.pcap", "mixed/b.csv", "twice/a.pcap", "twice/a.pcapng", "captures/x.pcap"):
        (folder / name).write_bytes(good.read_bytes())
    assert run("fit", good, "--model", "mahalanobis", "--out", folder / "packets").code == 0


def add_recordings(folder: Path) -> None:
    good = noise_recording(folder / "good", 0)
    assert run("fit", good, "--model", "pca", "--out", folder / "noise").code == 0
    about = {"core:datatype": "ci8", "core:sample_rate": 1e6, "core:version": "1.0.0"}
    notes = [{"core:sample_start": 1000, "core:sample_count": 500}]
    for name in ("cut", "alone"):
        meta = {"global": about, "captures": [], "annotations": notes}
        (folder / f"{name}.sigmf-meta").write_text(json.dumps(meta))
    (folder / "cut.sigmf-data").write_bytes(bytes(2000))
    samples = np.zeros(4096, np.complex64)
    write_recording(folder / "slow", [samples], rate_hz=1e5, frequency_hz=0.0)
    noise_recording(folder / "two-rates" / "a", 0)
    write_recording(folder / "two-rates" / "b", [samples], rate_hz=1e5, frequency_hz=0.0)
    samples[1500] = np.inf
    write_recording(folder / "broken", [samples], rate_hz=1e6, frequency_hz=0.0)


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in folder.rglob("*")
    }


def answer(
    typed: str,
    place: Path,
    elsewhere: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Answer:
    """Return what a command line in that place gets; whatever is kept for later is kept elsewhere."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("XDG_CACHE_HOME", str(elsewhere))
    monkeypatch.delenv("TOLFL_DATA", raising=False)
    monkeypatch.setattr(sys, "argv", ["tolfl", *shlex.split(typed)])
    with pytest.raises(SystemExit) as ended:
        main()
    shown = capsys.readouterr()
    return Answer(int(str(ended.value.code or 0)), shown.out, shown.err)


@pytest.mark.parametrize(("typed", "code", "sentence"), MISTAKES, ids=[typed for typed, *_ in MISTAKES])
def test_a_mistake_gets_one_sentence_and_leaves_nothing_behind(
    typed: str,
    code: int,
    sentence: str,
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = contents(place)
    got = answer(typed, place, tmp_path, monkeypatch, capsys)

    assert (got.code, got.out) == (code, "")
    assert got.err.startswith("tolfl: ")
    assert sentence in got.err
    assert got.err.count("\n") == 1
    assert contents(place) == before


@pytest.mark.parametrize(("typed", "meant"), TYPOS, ids=[typed for typed, _ in TYPOS])
def test_a_typo_is_answered_with_what_was_probably_meant(
    typed: str,
    meant: str,
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    got = answer(typed, place, tmp_path, monkeypatch, capsys)

    assert (got.code, got.out) == (2, "")
    assert any(f"{ask} {quote}{meant}" in got.err for ask in ("id you mean", "options:") for quote in ("'", "")), got
    assert got.err.count("\n") == 1


def test_a_name_that_is_nowhere_near_gets_no_suggestion() -> None:
    assert did_you_mean("gossip", ["tol-fl", "fl", "sbt"]) == ""
    assert did_you_mean("Tol_FL", ["tol-fl", "fl"]) == "; did you mean 'tol-fl'?"
