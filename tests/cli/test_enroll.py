"""`tolfl enroll` as a person types it: what it makes, how it says no, and that no key is ever shown."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tolfl.net.enrolment import Authority

KEY_LINE = re.compile(r"[A-Za-z0-9+/=]{30,}|PRIVATE KEY")


def secrets_in(folder: Path) -> set[str]:
    return {line for path in folder.rglob("key.pem") for line in KEY_LINE.findall(path.read_text())}


def test_a_fleet_is_enrolled_from_the_first_to_the_last_step(tolfl: Command, tmp_path: Path) -> None:
    steps = [
        ("init", "--name", "plant-7"),
        ("device", "gateway", "--id", "3", "--days", "90"),
        ("device", "4"),
        ("operator", "me"),
        ("renew", "gateway"),
        ("revoke", "gateway"),
        ("device", "gateway-2", "--id", "3"),
        ("list",),
        ("list", "--format", "json"),
    ]
    told = [tolfl("enroll", *step) for step in steps]

    assert [(code, err) for code, _, err in told] == [(0, "")] * len(steps)
    assert "fleet plant-7" in told[0][1]
    assert "copy fleet/devices/gateway to the device" in told[1][1]
    assert "copy fleet/revocations.json" in told[5][1]
    table, found = told[7][1], json.loads(told[8][1])
    assert re.search(r"gateway +3 +1 .* revoked", table)
    assert re.search(r"me +operator", table)
    assert found["fleet"] == "plant-7"
    assert {name: (one["device"], one["generation"], one["is_revoked"]) for name, one in found["devices"].items()} == {
        "gateway": (3, 1, True),
        "4": (4, 1, False),
        "me": (None, 1, False),
        "gateway-2": (3, 2, False),
    }
    secrets = secrets_in(tmp_path)
    assert len(secrets) > 5
    for _, out, err in told:
        assert not secrets & set(KEY_LINE.findall(out + err))
    assert {path.stat().st_mode & 0o777 for path in tmp_path.rglob("key.pem")} == {0o600}


def test_to_revoke_twice_is_to_revoke_once(tolfl: Command, tmp_path: Path) -> None:
    tolfl("enroll", "init")
    tolfl("enroll", "device", "3")
    first = tolfl("enroll", "revoke", "3")
    signed = (tmp_path / "fleet" / "revocations.json").read_bytes()
    second = tolfl("enroll", "revoke", "3")

    assert first == second
    assert first[0] == 0
    assert (tmp_path / "fleet" / "revocations.json").read_bytes() == signed


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a device, an operator and a device that was revoked."""
    authority = Authority.create(tmp_path_factory.mktemp("enrolled") / "fleet", "")
    for name, device in (("three", 3), ("me", None), ("old", 9)):
        authority.issue(name, device, 365)
    authority.revoke("old")
    return authority.folder


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("init", 1, "holds an authority already"),
        ("init --fleet other --name Plant", 2, "use small letters"),
        ("init --fleet file/below", 1, "cannot be written"),
        ("device gateway", 2, "has no id; give one with --id"),
        ("device Gateway --id 5", 2, "use small letters"),
        ("device ../x --id 5", 2, "use small letters"),
        ("device gateway --id -1", 2, "--id"),
        ("device gateway --id 3", 1, "device 3 is 'three' already"),
        ("device three --id 5", 1, "'three' is enrolled already"),
        ("device gateway --id 5 --days 0", 2, "--days"),
        ("device gateway --id 5 --fleet nowhere", 1, "tolfl enroll init"),
        ("operator me", 1, "'me' is enrolled already"),
        ("renew nobody", 1, "'nobody' is not enrolled; enrolled are: me, old, three"),
        ("renew old", 1, "'old' was revoked"),
        ("revoke nobody", 1, "'nobody' is not enrolled"),
        ("revoke me", 1, "is an operator"),
        ("list --fleet nowhere", 1, "tolfl enroll init"),
        ("list --format xml", 2, "--format"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(
    tolfl: Command, fleet: Path, tmp_path: Path, command: str, code: int, said: str
) -> None:
    (tmp_path / "file").touch()
    shutil.copytree(fleet, tmp_path / "fleet")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    found, out, err = tolfl("enroll", *command.split())

    assert (found, out) == (code, "")
    assert said in err
    assert "Traceback" not in err
    assert err.startswith("tolfl: ") == (not err.startswith("Usage")), err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("content", ["", "garbage", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_a_garbage_key_is_named_and_not_shown(tolfl: Command, tmp_path: Path, content: str) -> None:
    tolfl("enroll", "init")
    (tmp_path / "fleet" / "key.pem").write_text(content)
    code, out, err = tolfl("enroll", "device", "3")

    assert (code, out) == (1, "")
    assert err == "tolfl: fleet/key.pem is no private key that tolfl enroll made\n"


def test_a_key_that_others_can_read_is_not_used(tolfl: Command, tmp_path: Path) -> None:
    tolfl("enroll", "init")
    (tmp_path / "fleet" / "key.pem").chmod(0o644)

    assert tolfl("enroll", "device", "3") == (1, "", "tolfl: others can read fleet/key.pem; chmod 600 it\n")
