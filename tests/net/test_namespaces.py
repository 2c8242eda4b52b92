"""Real cables: pulled, cut without a word, too slow, too lossy, between machines that are network namespaces."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from tests.net.namespaces import Network, left_behind, why_not
from tests.net.remote_fleet import START_PATIENCE_S, RemoteFleet
from tolfl.cli.fleet_commands import dead_devices
from tolfl.core.records import AnyRecord, FailureHappened, Joined, RoundClosed, RunStarted
from tolfl.core.spec import BlobsSpec, ModelSpec, RunSpec, Timing
from tolfl.runs.descriptions import samples_lost, who_took_over
from tolfl.runs.failure_history import FailureHistory
from tolfl.runs.run_folder import read_run, readers_of
from tolfl.runs.run_report import render, report_context

pytestmark = [pytest.mark.processes, pytest.mark.timeout(400)]

_BLOBS = BlobsSpec(samples_per_device=50, n_test=10, n_validation=0)
#: More than any test waits for: these runs have no end, the tests have.
_ENDLESS = 1_000_000


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    yield
    assert left_behind() == []


def endless(devices: int, clusters: int, min_devices: int) -> RunSpec:
    """Return a run on a wired network: silence of two seconds is a death."""
    return RunSpec(
        data="blobs",
        devices=devices,
        clusters=clusters,
        rounds=_ENDLESS,
        min_devices=min_devices,
        timing="lan",
        blobs=_BLOBS,
    )


def deaths(fleet: RemoteFleet, since_s: float = 0.0) -> list[FailureHappened]:
    return [line for line in fleet.lines() if isinstance(line, FailureHappened) and line.time_s > since_s]


def check_cut_and_return(fleet: RemoteFleet, lost: int, is_silent: bool) -> None:
    """Cut a device off; the others go on without it. Connect it again; it comes back in its next life."""
    others = [device for device in fleet.devices if device != lost]
    fleet.wait_for_the_start()
    fleet.wait_for_round_of(fleet.devices, since_s=fleet.now_s)
    lives = fleet.lives()
    cut_s = fleet.now_s
    if is_silent:
        fleet.network.separate([lost], others)
    else:
        fleet.network.pull_cable(lost)
    closed = fleet.wait_for_round_of(others, since_s=cut_s)

    assert any("silent" in death.what for death in deaths(fleet, cut_s) if death.device == lost)
    assert closed.missing.get(str(lost), "failed") == "failed"

    healed_s = fleet.now_s
    fleet.network.reunite()
    fleet.network.plug_cable(lost)
    fleet.wait_for_round_of(fleet.devices, since_s=healed_s)
    fleet.wait_until(fleet.is_one_history, "all hold one history")

    joined = [line for line in fleet.lines() if isinstance(line, Joined) and line.time_s > healed_s]
    assert {line.device for line in joined} == {lost}
    assert fleet.lives() == {**lives, lost: lives[lost] + 1}


def test_devices_find_each_other_by_seeds_and_go_on_without_one_that_is_cut_off(tmp_path: Path) -> None:
    # Nobody knows everybody: 2 knows 1, 1 knows 0, and 0 knows no one.
    seeds = {2: [1], 1: [0]}
    with Network(3) as network, RemoteFleet(network, endless(3, 2, min_devices=2), tmp_path, seeds) as fleet:
        check_cut_and_return(fleet, lost=2, is_silent=True)

        known = {device: {peer.device for peer in status.peers} for device, status in fleet.statuses_of_all().items()}
        assert known == {0: {1, 2}, 1: {0, 2}, 2: {0, 1}}


@pytest.mark.parametrize(
    "is_refused", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["packets dropped", "connections refused"]
)
def test_a_device_that_nobody_can_dial_takes_part_like_any_other(tmp_path: Path, is_refused: bool) -> None:
    with Network(3) as network:
        network.let_nobody_dial(0, is_refused)  # a head
        with RemoteFleet(network, endless(3, 2, min_devices=1), tmp_path) as fleet:
            fleet.wait_for_the_start()
            began_s = fleet.now_s
            fleet.wait_until(lambda: fleet.now_s > began_s + 3 * Timing.lan().silence_detection_s, "some time passes")

            assert network.lost_packets(0) > 0  # somebody has tried
            fleet.wait_for_round_of(fleet.devices, since_s=fleet.now_s)
            assert deaths(fleet) == []
            assert set(fleet.lives().values()) == {0}


@pytest.mark.parametrize("deaf", [2, *(pytest.param(device, marks=pytest.mark.slow) for device in (0, 1, 3))])
def test_a_link_that_breaks_in_one_direction_costs_one_device_at_most(tmp_path: Path, deaf: int) -> None:
    # Clusters 0-1 and 2-3: 2 closes and hears no more of the head before it; 0 hears nothing of the closer, ...
    unheard = {0: 2, 1: 0, 2: 0, 3: 2}[deaf]
    with Network(4) as network, RemoteFleet(network, endless(4, 2, min_devices=1), tmp_path) as fleet:
        fleet.wait_for_the_start()
        fleet.wait_for_round_of(fleet.devices, since_s=fleet.now_s)
        cut_s = fleet.now_s
        network.deafen(deaf, [unheard])
        fleet.wait_until(
            lambda: any(len(line.included) >= 3 for line in fleet.rounds_since(cut_s + 3.0)), "three go on"
        )
        healed_s = fleet.now_s
        network.reunite()
        back = fleet.wait_for_round_of(fleet.devices, since_s=healed_s)
        fleet.wait_until(fleet.is_one_history, "all hold one history")

        assert back.time_s - healed_s < 30.0  # benchmarks.network measures it; this is a bound for any machine


@pytest.mark.slow
@pytest.mark.parametrize("is_silent", [False, True], ids=["cable pulled", "packets dropped"])
def test_any_role_may_be_cut_off_and_come_back(tmp_path: Path, is_silent: bool) -> None:
    # Clusters 0-1-2 and 3-4: device 1 is a member, 0 a head, 3 the closer.
    with Network(5) as network, RemoteFleet(network, endless(5, 2, min_devices=3), tmp_path) as fleet:
        for lost in (1, 0, 3):
            check_cut_and_return(fleet, lost, is_silent)


@pytest.mark.slow
def test_two_halves_train_apart_and_end_in_one_history(tmp_path: Path) -> None:
    halves = ([0, 1], [2, 3])
    with Network(4) as network, RemoteFleet(network, endless(4, 2, min_devices=1), tmp_path) as fleet:
        fleet.wait_for_the_start()
        lives, cut_s = fleet.lives(), fleet.now_s
        network.separate(*halves)
        for half in halves:
            fleet.wait_for_round_of(half, since_s=cut_s)
        healed_s = fleet.now_s
        network.reunite()
        fleet.wait_for_round_of(fleet.devices, since_s=healed_s)
        fleet.wait_until(fleet.is_one_history, "all hold one history")

        later = fleet.lives()
        changed = [device for device in fleet.devices if later[device] != lives[device]]
        assert changed in halves  # one side stepped aside, as a whole, and the other did not
        check_nothing_is_counted_twice(fleet)


def check_nothing_is_counted_twice(fleet: RemoteFleet) -> None:
    """Compare the work of a history with the samples of the rounds in it."""
    version = fleet.statuses_of_all()[0].version
    chain = fleet.chain(version.history)
    rounds = {str(line.version).rpartition(".")[2]: line for line in fleet.lines() if isinstance(line, RoundClosed)}
    in_it = [rounds[history] for history in chain if history in rounds]
    assert [line.round for line in in_it] == list(range(version.round - 1, -1, -1))
    assert all(line.n_samples == _BLOBS.samples_per_device * len(line.included) for line in in_it)
    assert sum(line.n_samples for line in in_it) == version.work


@pytest.mark.slow
def test_nobody_is_held_for_dead_on_a_slow_and_lossy_link(tmp_path: Path) -> None:
    rate_bps, rounds = 20e6, 2
    timing = Timing.wireless()
    spec = RunSpec(
        data="blobs",
        devices=3,
        clusters=2,
        rounds=rounds,
        timing="wireless",
        blobs=_BLOBS,
        model=ModelSpec(hidden=(2048, 1024)),
    )
    with Network(3) as network, RemoteFleet(network, spec, tmp_path) as fleet:
        network.slow_down("20mbit", loss_percent=5)
        silences: list[float] = []

        def is_over() -> bool:
            peers = itertools.chain.from_iterable(status.peers for status in fleet.statuses().values())
            silences.extend(peer.silent_s for peer in peers)
            return len(fleet.rounds_since(0.0)) == rounds

        fleet.wait_until(is_over, "all rounds are closed", patience_s=START_PATIENCE_S + 120)
        fleet.wait_for_the_end(patience_s=60)

        closed = fleet.rounds_since(0.0)
        # Up to its head, on to the closer and back again: four times the model, one after the other.
        model_bytes = next(line.model_bytes for line in fleet.lines() if isinstance(line, RunStarted))
        fastest_s = 4 * model_bytes * 8 / rate_bps
        assert model_bytes * 8 / rate_bps > timing.silence_detection_s
        assert closed[-1].time_s - closed[0].time_s > (rounds - 1) * fastest_s
        assert all(network.lost_packets(device) > 0 for device in fleet.devices)
        assert [line.included for line in closed] == [(0, 1, 2)] * rounds
        assert deaths(fleet) == []
        # A model takes twice as long as this: heartbeats do not queue behind it. (Silence is counted beat by beat.)
        assert len(silences) > 100
        assert max(silences) < 3.5 * timing.heartbeat_s


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])  # a head, and its member
def test_every_folder_alone_tells_the_same_run_after_a_kill(tmp_path: Path, killed: int) -> None:
    spec = msgspec.structs.replace(endless(3, 2, min_devices=1), topology="0,1|2")
    others = [device for device in range(3) if device != killed]
    with Network(3) as network, RemoteFleet(network, spec, tmp_path) as fleet:
        fleet.wait_for_the_start()
        # A stall is measured against rounds in which nothing happens.
        fleet.wait_until(lambda: len(fleet.rounds_since(0.0)) > 10, "some rounds are closed")
        fleet.kill(killed)
        fleet.wait_for_round_of(others, since_s=fleet.now_s)
        fleet.wait_until(lambda: len(fleet.rounds_since(fleet.now_s - 1.0)) > 0, "they go on")
        said = {device: status for device, status in fleet.statuses().items() if device in others}
        fleet.stop(others)

        # Status: each survivor knows who is gone.
        assert set(said) == set(others)
        assert [dead_devices(said[device]) for device in others] == [{killed}, {killed}]

    # Report and page, each from one folder with nothing of the fleet beside it.
    alone = {
        device: shutil.copytree(tmp_path / str(device), tmp_path / f"copy-{device}" / "state") for device in others
    }
    runs = {device: read_run(folder) for device, folder in alone.items()}
    until = min(run.rounds_done for run in runs.values())
    told = {device: what_is_told(run.records, until) for device, run in runs.items()}
    assert until > 1
    assert told[others[0]] == told[others[1]]
    assert [devices for _, devices, *_ in told[others[0]][1]] == [[killed]]
    stalls_s = [FailureHistory.of(run.records).stall_s for run in runs.values()]
    # Each by its own clock, while it waits itself; nobody has a stall that no failure explains.
    assert min(stalls_s) > 0.0
    assert stalls_s[0] == pytest.approx(stalls_s[1], abs=1.0)
    # By one clock: all began to train together, whenever their processes were started.
    begun_s = [FailureHistory.of(run.records).incidents[0].time_s for run in runs.values()]
    assert begun_s[0] == pytest.approx(begun_s[1], abs=1.0)
    for device, folder in alone.items():
        shutil.copytree(folder, tmp_path / "together" / str(device))
    together = read_run(tmp_path / "together")
    assert what_is_told(together.records, until) == told[others[0]]
    assert FailureHistory.of(together.records).incidents[0].time_s == pytest.approx(begun_s[0], abs=1.0)
    for device, folder in alone.items():
        assert f"times by the clock of device {device}, from " in report_context(runs[device])["subtitle"]
        (reader,) = readers_of(folder, is_following=False)
        assert what_is_told(reader.read(), until) == told[device]
        assert f"device {killed}" in render(report_context(runs[device]), "report.md")


def what_is_told(records: Sequence[AnyRecord], until: int) -> tuple[list[object], list[tuple[object, ...]]]:
    """Return rounds with who is in them and led them, and failures: all but what each notices and measures itself."""
    closed = [line for line in records if isinstance(line, RoundClosed) and (line.round or 0) < until]
    incidents = FailureHistory.of(records).incidents
    rounds: list[object] = [(line.round, line.included, line.heads, line.n_samples, line.loss) for line in closed]
    return rounds, [(one.round, one.devices, who_took_over(one), samples_lost(one)) for one in incidents]
