"""A certificate is taken back while the fleet trains: the list spreads, its holder is out, its replacement is in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.net.hostile_peers import Peer, SecureFleet, in_mid_run, secure_fleet_of
from tests.net.nodes import PATIENCE_S, held_back, small
from tolfl.core.records import FailureHappened
from tolfl.net.enrolment import REVOCATIONS, Authority, EnrolmentError
from tolfl.net.tls import Identity
from tolfl.net.wire import RevocationList

ALL = (0, 1, 2, 3)
SPEC = small(timing="lan")
REVOKED = "device 3 was revoked; enrol it anew to let it in again"


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so, whatever becomes of the devices meanwhile."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110  (what it waits for has no event)
            await asyncio.sleep(0.01)


def give_list(fleet: SecureFleet, device: int) -> bytes:
    """Copy the authority's list into the credentials of one device, as an operator does; return it."""
    content = (fleet.authority.folder / REVOCATIONS).read_bytes()
    (fleet.credentials(device) / REVOCATIONS).write_bytes(content)
    return content


def knows(fleet: SecureFleet, device: int) -> bool:
    return fleet.nodes[device].credentials.is_revoked(Identity(3, 1))


@pytest.mark.timeout(240)
def test_a_revoked_device_is_cut_off_by_all_and_its_replacement_joins(tmp_path: Path) -> None:
    async def live() -> None:
        async with secure_fleet_of(tmp_path, SPEC) as fleet:
            gate = held_back(fleet.prepare(0), lambda index: index < 1)
            fleet.launch(*ALL)
            await fleet.until_round(1)
            fleet.authority.revoke("device-3")
            content = give_list(fleet, 1)
            with pytest.raises(EnrolmentError) as said:
                async with asyncio.timeout(PATIENCE_S):
                    await fleet.tasks[3]
            await until(lambda: all(knows(fleet, device) for device in (0, 1, 2)))
            await until(lambda: fleet.nodes[2].device.fleet.has_failed((3, 0)))
            again = await Peer(fleet, 3, 2).tell()
            counted = await fleet.refused(2)

            # Another machine, which has never been in the fleet: its life number starts anew.
            folder = fleet.authority.issue("spare", 3)
            fleet.prepare(3, credentials=str(folder), state=str(tmp_path / "spare"))
            fleet.launch(3)
            await until(lambda: 3 in fleet.nodes[2].device.fleet.joiners)
            gate.set()
            reasons = await fleet.ends(*ALL)

            assert str(said.value) == REVOKED
            assert [(fleet.state(device) / REVOCATIONS).read_bytes() for device in ALL] == [content] * 4
            assert again == "revoked"
            assert counted["revoked"] >= 1
            assert reasons == ["over"] * 4
            assert len(fleet.histories()) == 1
            assert fleet.closed()[-1].included == ALL
            lines = [line for device in (0, 1, 2) for line in fleet.records(device)]
            assert {line.device for line in lines if isinstance(line, FailureHappened)} == {3}

    asyncio.run(live())


def test_a_revoked_device_does_not_start_and_a_restart_remembers(tmp_path: Path) -> None:
    async def live() -> None:
        async with secure_fleet_of(tmp_path, SPEC) as fleet:
            gate = held_back(fleet.prepare(0), lambda index: index < 1)
            fleet.launch(*ALL)
            await fleet.until_round(1)
            fleet.authority.revoke("device-3")
            give_list(fleet, 0)
            await until(lambda: all(fleet.tasks[3].done() if device == 3 else knows(fleet, device) for device in ALL))
            before = (fleet.credentials(2) / REVOCATIONS).read_bytes()
            await fleet.kill(2)
            fleet.prepare(2)
            is_remembered = knows(fleet, 2)
            with pytest.raises(EnrolmentError) as said:
                fleet.prepare(3)
            gate.set()

            assert json.loads(json.loads(before)["content"])["version"] == 0  # nobody gave it the list on disk
            assert is_remembered
            assert str(said.value) == REVOKED

    asyncio.run(live())


def test_a_list_travels_by_hello_and_an_older_or_forged_one_changes_nothing(tmp_path: Path) -> None:
    async def live() -> None:
        async with secure_fleet_of(tmp_path, SPEC) as fleet:
            gate = await in_mid_run(fleet, 1)
            older = (fleet.authority.folder / REVOCATIONS).read_bytes()
            other = Authority.create(tmp_path / "other", "plant")
            other.issue("device-1", 1)
            other.revoke("device-1")
            forged = (other.folder / REVOCATIONS).read_bytes()
            peer = Peer(fleet, 1, 2)
            said = {
                "forged": await peer.tell(RevocationList(forged)),
                "garbage": await peer.tell(RevocationList(b"\xff{")),
                "forged hello": await peer.tell(hello=peer.hello(revocations=forged)),
            }
            counted = await fleet.refused(2)
            fleet.authority.revoke("device-3")
            newer = (fleet.authority.folder / REVOCATIONS).read_bytes()
            said["newer hello"] = await peer.tell(hello=peer.hello(revocations=newer))
            await until(lambda: fleet.tasks[3].done() and all(knows(fleet, device) for device in (0, 2)))
            said["older"] = await peer.tell(RevocationList(older))
            gate.set()
            reasons = await fleet.ends(0, 2)

            assert said == {
                "forged": "forged",
                "garbage": "forged",
                "forged hello": "open",
                "newer hello": "open",
                "older": "open",
            }
            assert counted == {"forged": 3}
            assert knows(fleet, 2)
            assert not fleet.nodes[2].credentials.is_revoked(Identity(1, 1))
            assert reasons == ["over"] * 2

    asyncio.run(live())
