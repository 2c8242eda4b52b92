"""`tolfl doctor` on machines where something is really wrong."""

from __future__ import annotations

import json
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tolfl.cli.doctor import (
    CheckResult,
    Level,
    check_certificate,
    check_fleet,
    free_memory,
    why_not_bound,
)
from tolfl.core.errors import EXTRAS
from tolfl.core.spec import RunSpec
from tolfl.kernel import chosen_kernel
from tolfl.net.enrolment import KEY, REVOCATIONS, Authority
from tolfl.net.node_config import NodeConfig

AREAS = {"versions", "machine", "data"}


@pytest.fixture(autouse=True)
def _no_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TOLFL_DATA", raising=False)


def examined(tolfl: Command, *arguments: str) -> tuple[int, dict[tuple[str, str], CheckResult]]:
    code, out, err = tolfl("doctor", *arguments, "--format", "json")
    assert err == ""
    found = [CheckResult(**{**line, "state": Level(line["state"])}) for line in json.loads(out)]
    return code, {(one.area, one.name): one for one in found}


def problems(found: dict[tuple[str, str], CheckResult]) -> set[tuple[str, str]]:
    return {key for key, finding in found.items() if finding.state is Level.PROBLEM}


def own_problems(tolfl: Command) -> set[tuple[str, str]]:
    """Return what is wrong with the machine that the tests run on: no test depends on its health."""
    return problems(examined(tolfl)[1])


def device_file(folder: Path, listen: str, credentials: Path | None = None, **more: object) -> Path:
    (folder / "spec.toml").write_text(RunSpec(data="blobs", devices=3, clusters=1, rounds=2).to_toml())
    shown = {"insecure": True} if credentials is None else {"credentials": str(credentials)}
    path = folder / "device.toml"
    path.write_text(NodeConfig(device=1, listen=listen, state="state", **shown, **more).to_toml())  # type: ignore[arg-type]
    return path


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path / "fleet", "plant")


# -- this machine, well or not --------------------------------------------------------------------------------------


def test_every_area_is_examined_and_the_exit_status_says_whether_there_is_a_problem(tolfl: Command) -> None:
    code, found = examined(tolfl)

    assert {area for area, _ in found} == AREAS
    assert code == int(any(finding.state is Level.PROBLEM for finding in found.values()))
    assert found["data", "mnist"].todo == "if you want it, run: tolfl data get mnist"
    assert found["versions", "kernel"].found.startswith(chosen_kernel().kernel.name)


def test_the_table_counts_what_is_wrong_and_leaves_nothing_behind(tolfl: Command, tmp_path: Path) -> None:
    n_problems = sum(finding.state is Level.PROBLEM for finding in examined(tolfl)[1].values())
    code, out, err = tolfl("doctor")

    assert (code, err) == (int(n_problems > 0), "")
    assert out.splitlines()[-1].startswith(f"{n_problems} problem{'' if n_problems == 1 else 's'}, ")
    assert list(tmp_path.iterdir()) == []


def test_every_note_warning_and_problem_says_what_to_do(tolfl: Command, tmp_path: Path) -> None:
    missing = ("--config", "no.toml", "--fleet", "no", "--data-dir", "no", "--out", "/proc/no")
    code, found = examined(tolfl, *missing)
    bad = [finding for finding in found.values() if finding.state is not Level.OK]

    assert code == 1
    assert len(problems(found) - own_problems(tolfl)) == 4
    assert [finding for finding in bad if not finding.todo and ";" not in finding.found] == []


# -- ports ---------------------------------------------------------------------------------------------------------


def test_a_port_that_somebody_has_is_a_problem(tolfl: Command, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, found = examined(tolfl, "--config", str(device_file(tmp_path, address)))

    assert code == 1
    assert found["ports", "listen"].state is Level.PROBLEM
    assert found["ports", "listen"].sentence == (
        f"{address} is taken; end the program that uses it, or choose another port"
    )
    assert found["device", "specification"].state is Level.OK


def test_a_free_port_is_fine_and_silent_peers_are_a_warning(tolfl: Command, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one:
        silent = f"127.0.0.1:{one.getsockname()[1]}"
    config = device_file(tmp_path, "127.0.0.1:0", peers={"0": silent, "1": silent}, seeds=(silent,))
    _, found = examined(tolfl, "--config", str(config))

    assert problems(found) <= own_problems(tolfl)
    assert found["ports", "listen"].state is Level.OK
    assert found["ports", "peer 0"].state is Level.WARNING
    assert found["ports", "seed"].state is Level.WARNING
    assert ("ports", "peer 1") not in found  # that is itself


def test_a_peer_that_speaks_something_else_is_a_problem(tolfl: Command, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        peers = {"0": f"127.0.0.1:{stranger.getsockname()[1]}"}
        code, found = examined(tolfl, "--config", str(device_file(tmp_path, "127.0.0.1:0", peers=peers)))

    assert code == 1
    assert "is open, but no device of this fleet answers" in found["ports", "peer 0"].found


def test_an_address_of_another_machine_cannot_be_listened_at(tmp_path: Path) -> None:
    assert why_not_bound("127.0.0.1:0") is None
    assert why_not_bound("192.0.2.1:7000") is not None  # an address for examples, nobody's


@pytest.mark.parametrize(
    ("change", "place", "sentence"),
    [
        ({"device": 7}, "specification", "ids go from 0 to 2"),
        ({"spec": "other.toml"}, "specification", "cannot be read"),
        ({"data": "gone.csv"}, "data", "gone.csv is not there"),
        ({"insecure": False}, "credentials", "device 1 has no credentials"),
    ],
)
def test_what_a_configuration_names_is_looked_at(
    tolfl: Command, tmp_path: Path, change: dict[str, object], place: str, sentence: str
) -> None:
    import msgspec

    path = device_file(tmp_path, "127.0.0.1:0")
    path.write_text(msgspec.toml.encode({**msgspec.toml.decode(path.read_text()), **change}).decode())
    code, found = examined(tolfl, "--config", str(path))

    assert code == 1
    assert found["device", place].state is Level.PROBLEM
    assert sentence in found["device", place].sentence


# -- certificates --------------------------------------------------------------------------------------------------


def states(findings: list[CheckResult]) -> list[tuple[str, Level]]:
    return [(finding.name, finding.state) for finding in findings]


def test_a_fleet_whose_certificates_are_good(authority: Authority) -> None:
    authority.issue("gateway", 0)
    authority.issue("me", None)

    expected = [("authority", Level.OK), ("gateway", Level.OK), ("me", Level.OK)]
    assert states(list(check_fleet(authority.folder))) == expected


@pytest.mark.parametrize(
    ("days", "state", "words"),
    [(5, Level.WARNING, "4 days; run: tolfl enroll renew gateway"), (0, Level.PROBLEM, "ended on")],
)
def test_a_certificate_that_ends_is_said_in_time(
    authority: Authority, tolfl: Command, days: int, state: Level, words: str
) -> None:
    authority.issue("gateway", 1, days)
    _, found = examined(tolfl, "--fleet", str(authority.folder))

    assert (problems(found) > own_problems(tolfl)) == (state is Level.PROBLEM)
    assert found["certificates", "gateway"].state is state
    assert words in found["certificates", "gateway"].sentence


def test_a_certificate_of_a_device_that_is_gone_is_judged_by_the_register(authority: Authority) -> None:
    folder = authority.issue("gateway", 1, days=0)
    folder.rename(authority.folder / "elsewhere")

    assert states(list(check_fleet(authority.folder)))[1] == ("gateway", Level.PROBLEM)


def test_a_key_that_others_can_read_is_a_problem(authority: Authority) -> None:
    folder = authority.issue("gateway", 1)
    (folder / KEY).chmod(0o644)
    (finding,) = check_certificate(folder)

    assert finding.state is Level.PROBLEM
    assert "chmod 600" in finding.found


def test_certificates_of_another_device_are_a_problem(authority: Authority, tolfl: Command, tmp_path: Path) -> None:
    config = device_file(tmp_path, "127.0.0.1:0", authority.issue("pump", 2))
    code, found = examined(tolfl, "--config", str(config))
    first = next(iter(check_certificate(authority.folder_of("pump"), device=1)))

    assert code == 1
    assert found["certificates", "pump"].state is Level.OK  # the certificate itself is good ...
    assert first.sentence.startswith("they are those of device 2, not of device 1; ")  # ... and somebody else's


def test_a_revoked_certificate_is_a_problem_once_the_list_is_there(authority: Authority) -> None:
    folder = authority.issue("gateway", 1)
    authority.revoke("gateway")
    before = states(list(check_certificate(folder)))
    (folder / REVOCATIONS).write_bytes((authority.folder / REVOCATIONS).read_bytes())

    assert before == [("gateway", Level.OK)]
    assert states(list(check_certificate(folder))) == [("gateway", Level.PROBLEM)]
    assert states(list(check_fleet(authority.folder)))[1] == ("gateway", Level.OK)  # as it should be: revoked


def test_a_clock_that_is_behind_makes_good_certificates_useless(authority: Authority) -> None:
    folder = authority.issue("gateway", 1)
    (finding,) = check_certificate(folder, now=datetime.now(UTC) - timedelta(days=400))

    assert finding.state is Level.PROBLEM
    assert finding.todo == "set the clock of this machine"


# -- the machine ---------------------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_written_is_a_problem(tolfl: Command) -> None:
    code, found = examined(tolfl, "--out", "/proc/runs")  # not even root can

    assert code == 1
    assert found["machine", "out"].todo == "choose another --out"


def test_free_memory_is_some_and_no_more_than_the_machine_has() -> None:
    free = free_memory()
    lines = Path("/proc/meminfo").read_text().splitlines()
    total = int(next(line for line in lines if line.startswith("MemTotal:")).split()[1]) * 1024

    assert free is not None
    assert 0 < free <= total


def test_an_extra_that_is_not_installed_is_a_note(tolfl: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXTRAS, "nobody_has_this", ("dashboard", "the page of a run"))
    _, found = examined(tolfl)

    assert found["versions", "dashboard"].state is Level.NOTE
    assert found["versions", "dashboard"].sentence == (
        "without nobody_has_this; for the page of a run, run: pip install 'tolfl[dashboard]'"
    )


def test_data_that_are_there_are_found(tolfl: Command, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "cifar-100-binary"
    folder.mkdir(parents=True)
    for name in ("train.bin", "test.bin"):
        (folder / name).touch()
    _, found = examined(tolfl, "--data-dir", "data")

    assert found["data", "cifar-100"].sentence == "in data/cifar-100-binary"
    assert found["data", "cifar-10"].state is Level.NOTE
