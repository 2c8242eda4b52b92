"""`tolfl enroll` as a person types it: what it makes, how it says no, and that no key is ever shown."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Command

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
