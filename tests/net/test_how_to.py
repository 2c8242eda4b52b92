"""docs/how-to/run-a-fleet.md, followed to the letter: its own commands, on machines that are network namespaces."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.net.how_to_page import PAGE, PATIENCE_S, UNIT, Hosts, block, blocks_of, write_table
from tests.net.namespaces import Network, left_behind, why_not
from tolfl.core.records import RoundClosed
from tolfl.net.enrolment import AUTHORITY, CERTIFICATE, KEY
from tolfl.net.wire import WIRE_VERSION

SEVERAL, SYSTEMD = "Then on several", "Under systemd or in a container"
NAMES = "abc"
ALL = (0, 1, 2)
_ENDLESS = 1_000_000
#: `tolfl`, of a release that spoke the wire version before this one.
_PREVIOUS = """
import sys
from tolfl.cli import main
from tolfl.net import links, node
links.WIRE_VERSION = node.WIRE_VERSION = {}
sys.argv[0] = "tolfl"
main()
"""
_SAMPLE = re.compile(r'tolfl_[a-z_]+\{fleet="[0-9a-f]{16}",device="1"(,[a-z]+="[a-z -]+")?\} \S+')


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with Network(4) as network:
        made = Hosts(network, tmp_path)
        try:
            yield made
        finally:
            made.close()
    assert left_behind() == []


def readings(device: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.random.default_rng(device).normal(size=(60, 5))


def settings_for(device: int) -> dict[str, Any]:
    """Return the page's device.toml, which is that of b, for another device."""
    settings: dict[str, Any] = msgspec.toml.decode(block(SEVERAL, "device = 1").text)
    addresses = [f"10.0.0.{one + 1}:7000" for one in ALL]
    assert (settings["device"], settings["listen"], settings["seeds"]) == (1, addresses[1], addresses[::2])
    seeds = [address for one, address in enumerate(addresses) if one != device]
    # On a machine that runs other tests the three may start further apart than hosts of their own do.
    return {**settings, "device": device, "listen": addresses[device], "seeds": seeds, "start_timeout_s": 100}


def follow_to_step_3(hosts: Hosts, rounds: int | None = None) -> None:
    """Enrol three devices and bring everything to their hosts; with `rounds`, to train an autoencoder for so long."""
    hosts.at_the_desk(block(SEVERAL, "enroll init").lines)
    (hosts.desk / "spec.toml").write_text(block(SEVERAL, "scheme = ").text)
    write_table(hosts.desk / "kiln.csv", readings(0)[:5])
    hosts.at_the_desk(block(SEVERAL, "tolfl data describe").lines)
    if rounds is not None:
        spec = msgspec.toml.decode((hosts.desk / "spec.toml").read_text())
        endless = {"rounds": rounds, "fail": "", "learn": {**spec["learn"], "what": "autoencoder"}}
        (hosts.desk / "spec.toml").write_bytes(msgspec.toml.encode({**spec, **endless}))
    copying = block(SEVERAL, "ssh 10.0.0.2 mkdir")
    for device in ALL:
        text = copying.text.replace("10.0.0.2", f"10.0.0.{device + 1}").replace("devices/b", f"devices/{NAMES[device]}")
        hosts.at_the_desk(line for line in text.splitlines() if not line.startswith("#"))
        hosts.give(device, settings_for(device), readings(device))


def until_all_train(hosts: Hosts, devices: tuple[int, ...] = ALL) -> None:
    """Wait for a round, later than any so far, with the samples of exactly these devices."""
    first = hosts.newest_round()

    def is_so() -> bool:
        lines = [line for host in hosts.processes for line in hosts.records(host) if isinstance(line, RoundClosed)]
        return any((line.round or 0) > first and line.included == devices for line in lines)

    hosts.until(is_so, f"devices {devices} train together")


# -- without hosts ----------------------------------------------------------------------------------------------------


def test_every_list_of_commands_says_where_it_is_typed() -> None:
    commands = [one for one in blocks_of() if not one.language and one.section != "First on one machine"]
    places = {re.split("[,;]", one.place)[0] for one in commands}

    assert len(commands) >= 10
    assert places == {"at the desk", "on every host", "on 10.0.0.1", "on 10.0.0.2", "on one host after the other"}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    program = str(Path(sys.executable).with_name("tolfl"))
    unit.write_text(UNIT.read_text().replace("/opt/tolfl/bin/tolfl", program))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


# -- with hosts -------------------------------------------------------------------------------------------------------


@pytest.mark.slow  # test_detector_fleets has the same three tables and the same kill, on one machine
@pytest.mark.processes
@pytest.mark.timeout(500)  # on a busy machine; alone it takes a minute
def test_three_tables_become_a_detector_although_one_host_is_killed(hosts: Hosts) -> None:
    follow_to_step_3(hosts)
    for host in ALL:
        hosts.on_host(host, block(SEVERAL, "tolfl node").lines)
    hosts.until(lambda: all(process.poll() is not None for process in hosts.processes.values()), "all end")

    assert [process.returncode for process in hosts.processes.values()] == [0, -signal.SIGKILL, 0]
    said = [hosts.log(host).read_text().splitlines() for host in (0, 2)]
    assert [lines[-1] for lines in said] == [f"tolfl: device {device}: over" for device in (0, 2)]
    assert all(any(" device 1 " in line for line in lines) for lines in said), said
    detectors = [hosts.state(host) / "detector.tolfl" for host in ALL]
    assert [path.exists() for path in detectors] == [True, False, True]
    assert detectors[0].read_bytes() == detectors[2].read_bytes()
    rounds = [line for host in (0, 2) for line in hosts.records(host) if isinstance(line, RoundClosed)]
    assert [line.included for line in sorted(rounds, key=lambda line: line.round or 0)] == [ALL] * 21 + [(0, 2)]
    assert all(key.stat().st_mode & 0o77 == 0 for key in hosts.desk.parent.rglob("key.pem"))

    november = readings(7)
    november[11, 3] += 40
    write_table(hosts.etc(0) / "november.csv", november)
    verdicts, told = (hosts.on_host(0, [line]) for line in block(SEVERAL, "tolfl score").lines)

    assert re.search(r"^12 .*alarm.*sensor-3", verdicts, re.MULTILINE), verdicts
    assert "thresholds" in told
    for host in (0, 2):  # any of them
        hosts.on_host(host, block(SEVERAL, "tolfl report").lines)
        report = (hosts.state(host) / "report.html").read_text()
        assert "device 1, head of cluster 1," in report


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("curl") is None, reason="the page asks for curl")
def test_a_fleet_is_watched_upgraded_renewed_and_restored_while_it_trains(hosts: Hosts) -> None:
    start_as_a_service(hosts)
    check_status(hosts)
    check_page(hosts)
    check_metrics(hosts)
    check_upgrading(hosts)
    check_renewal(hosts)
    check_backup(hosts)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(900)
def test_a_dead_device_is_replaced_and_one_of_the_previous_wire_version_is_refused(hosts: Hosts) -> None:
    start_as_a_service(hosts)
    check_replacement(hosts)
    check_previous_wire_version(hosts)


def start_as_a_service(hosts: Hosts) -> None:
    follow_to_step_3(hosts, rounds=_ENDLESS)
    for host in ALL:
        hosts.on_host(host, block(SYSTEMD, "systemctl").lines)
    until_all_train(hosts)


def check_status(hosts: Hosts) -> None:
    said = hosts.at_the_desk(block(SEVERAL, "tolfl status").lines)

    assert re.search(r"^1 +\S+\.2:7000 +0 +(head|closer) +autoencoder \d+/1000000 ", said, re.MULTILINE), said


def check_page(hosts: Hosts) -> None:
    """Open the page of the device on 10.0.0.2, and go on reading when that device is killed."""
    (line,) = block(SEVERAL, "tolfl dashboard").lines
    with hosts.begun_at_the_desk(f"{line} --port 0") as page:
        shown = page.readline()
        address = re.search(r"http://\S+", shown)
        assert address is not None, shown
        with urllib.request.urlopen(f"{address[0]}api/lines", timeout=PATIENCE_S) as lines:
            assert any(b'"round_closed"' in one for one in lines)
            hosts.kill(1)
            wanted = {f"from the device at {hosts.network.address(0)}:7000".encode(), b"device 1, head of cluster 1,"}
            for one in lines:
                wanted = {words for words in wanted if words not in one}
                if not wanted:
                    break
            assert not wanted
    hosts.on_host(1, block(SYSTEMD, "systemctl").lines)
    until_all_train(hosts)


def check_metrics(hosts: Hosts) -> None:
    section = "Metrics and logs"
    settings = {**settings_for(1), **msgspec.toml.decode(block(section, "metrics = ").text)}
    hosts.give(1, settings, readings(1))
    restart, ask = block(section, "curl").lines
    hosts.on_host(1, [restart])
    until_all_train(hosts)
    page = hosts.on_host(1, [ask.replace("curl", "curl --silent")])

    samples = [line for line in page.splitlines() if not line.startswith("#")]
    assert all(_SAMPLE.fullmatch(line) for line in samples), page
    named = re.findall(r"`(tolfl_[a-z_]+)`", PAGE.read_text().partition(f"## {section}")[2])
    assert named
    assert all(f"# TYPE {name} " in page for name in named)


def check_upgrading(hosts: Hosts) -> None:
    stop, _, start = block("Upgrading", "pip install").lines
    for host in (2, 0):
        others = tuple(one for one in ALL if one != host)
        life = hosts.status_of(host).incarnation
        hosts.on_host(host, [stop])
        until_all_train(hosts, others)
        hosts.on_host(host, [start])
        until_all_train(hosts)

        assert hosts.status_of(host).incarnation > life


def check_renewal(hosts: Hosts) -> None:
    before = shown_by(hosts, 1)
    listed = hosts.at_the_desk(block("Certificates that end", "enroll renew").lines)
    until_all_train(hosts)

    assert [name in listed for name in ("a ", "b ", "c ", "me ")] == [True] * 4
    assert shown_by(hosts, 1) != before


def shown_by(hosts: Hosts, host: int) -> bytes | None:
    """Return the certificate that a device shows."""
    operator = hosts.desk / "fleet" / "devices" / "me"
    context = ssl.create_default_context(cafile=operator / AUTHORITY)
    context.load_cert_chain(operator / CERTIFICATE, operator / KEY)
    context.check_hostname = False
    with (
        socket.create_connection((hosts.network.address(host), 7000)) as plain,
        context.wrap_socket(plain) as secure,
    ):
        return secure.getpeercert(binary_form=True)


def check_backup(hosts: Hosts) -> None:
    hosts.on_host(1, block("Backup", "-czf").lines)
    until_all_train(hosts)
    hosts.on_host(1, ["systemctl restart tolfl@device"])
    until_all_train(hosts)
    life = hosts.status_of(1).incarnation
    hosts.on_host(1, block("Backup", "-xzf").lines)
    until_all_train(hosts)

    assert hosts.status_of(1).incarnation > life

    hosts.stop(1)
    shutil.rmtree(hosts.state(1))
    hosts.on_host(1, ["systemctl start tolfl@device"])
    until_all_train(hosts)

    assert hosts.status_of(1).incarnation > life


def check_replacement(hosts: Hosts) -> None:
    hosts.kill(1)
    until_all_train(hosts, (0, 2))
    *before, start = block("A dead device", "enroll revoke").lines
    hosts.at_the_desk(before)
    hosts.give(3, {**settings_for(1), "listen": "10.0.0.4:7000"}, readings(1))
    hosts.at_the_desk([start])
    until_all_train(hosts)

    peers = {peer.device: peer.address for peer in hosts.status_of(0).peers}
    assert peers[1] == f"{hosts.network.address(3)}:7000"

    # The old one wakes up; while it looks for the others it is not told why nobody answers.
    hosts.give(1, {**settings_for(1), "start_timeout_s": 1}, readings(1))
    hosts.on_host(1, ["systemctl start tolfl@device"])
    revived = hosts.processes.pop(1)
    assert revived.wait(100) == 1
    assert "device 1 was revoked" in hosts.log(1).read_text().splitlines()[-1]
    until_all_train(hosts)


def refuses_the_other(hosts: Hosts, host: int) -> bool:
    return hosts.status_of(host).refused.get("wire version", 0) > 1


def check_previous_wire_version(hosts: Hosts) -> None:
    hosts.stop(2)
    config = str(hosts.etc(2) / "device.toml")
    hosts.start(2, [sys.executable, "-c", _PREVIOUS.format(WIRE_VERSION - 1), "node", "--config", config])
    for host in (0, 2):
        hosts.until(partial(refuses_the_other, hosts, host), f"{host} refuses the other")
    before = hosts.status_of(2).version.round
    until_all_train(hosts, (0, 1))
    said = hosts.at_the_desk(line.replace(".2:", ".1:") for line in block(SEVERAL, "tolfl status").lines)

    assert hosts.status_of(2).version.round == before < hosts.status_of(0).version.round
    assert "wire" in said  # the table may break the line before the next word
    assert "`wire version` under *refused*" in PAGE.read_text()

    hosts.stop(2)
    hosts.on_host(2, ["systemctl start tolfl@device"])
    until_all_train(hosts)
