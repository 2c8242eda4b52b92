"""Strangers at the door of a fleet that trains: nobody gets in, and the fleet ends with the model of the simulator."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from tests.net.hostile_peers import (
    Peer,
    SecureFleet,
    Shown,
    certificate_for,
    check_unharmed,
    expire,
    expired,
    in_mid_run,
    issuer_in,
    secure_fleet_of,
    without_stale,
)
from tests.net.nodes import PATIENCE_S, TOKEN, held_back, small
from tolfl.core.errors import TolFLError
from tolfl.net.addresses import split_address
from tolfl.net.client import ask, send_command
from tolfl.net.enrolment import (
    AUTHORITY,
    CERTIFICATE,
    KEY,
    Authority,
    EnrolmentError,
    any_device_name,
    device_name,
)
from tolfl.net.prepare import prepare
from tolfl.net.tls import Credentials
from tolfl.net.wire import CommandRequest

ALL = (0, 1, 2, 3)
SPEC = small(timing="lan")
STRANGER, TARGET = 3, 2


def of_another_fleet(fleet: SecureFleet) -> Shown:
    """Return a certificate for the very name, signed by an authority that calls itself the same."""
    folder = Authority.create(fleet.folder / "other", "plant").issue("device-3", 3)
    ours = Shown.of(fleet.credentials(3))
    return Shown((folder / KEY).read_bytes(), (folder / CERTIFICATE).read_bytes(), ours.root)


def signed_by_a_device(fleet: SecureFleet) -> Shown:
    """Return a certificate of device 1 that device 3 has signed with its own key."""
    folder = fleet.credentials(3)
    key, certificate = certificate_for(["d1-g1.plant.tolfl"], *issuer_in(folder, CERTIFICATE))
    return Shown(key, certificate + (folder / CERTIFICATE).read_bytes(), (folder / AUTHORITY).read_bytes())


async def without_entry(fleet: SecureFleet) -> dict[str, str]:
    """Return what becomes of those whom the handshake sends away: TLS 1.3 tells a client after it has spoken."""
    ours = Shown.of(fleet.credentials(STRANGER))
    shown = {
        "no certificate": Shown(None, None, ours.root),
        "of another fleet": of_another_fleet(fleet),
        "expired": expired(fleet, STRANGER),
    }
    found = {who: await Peer(fleet, STRANGER, TARGET, one).tell() for who, one in shown.items()}
    found["signed by a device"] = await Peer(fleet, 1, TARGET, signed_by_a_device(fleet)).tell()
    found["plain text"] = str(await ask(fleet.addresses[TARGET], Credentials()))
    return found


async def command(fleet: SecureFleet, folder: Path, token: str) -> str:
    try:
        await send_command(fleet.addresses[TARGET], CommandRequest(token=token, leave=True), Credentials(folder))
    except TolFLError as error:
        return str(error)
    return "done"


async def was_rejected(fleet: SecureFleet) -> dict[str, str]:
    """Return what becomes of those who have a certificate of the fleet, and no right to what they ask."""
    nameless = certificate_for(["x.plant.tolfl"], *issuer_in(fleet.authority.folder))
    nobody = Shown(*nameless, root=Shown.of(fleet.credentials(STRANGER)).root)
    return {
        "operator as a device": await Peer(fleet, 1, TARGET, Shown.of(fleet.authority.folder_of("me"))).tell(),
        "certificate of nobody": await Peer(fleet, 1, TARGET, nobody).tell(),
        "commands": await command(fleet, fleet.credentials(STRANGER), "guessed"),
        "commands without a token": await command(fleet, fleet.credentials(STRANGER), ""),
        "commands beyond ASCII": await command(fleet, fleet.credentials(STRANGER), "geheim é"),
        "commands with a zero": await command(fleet, fleet.credentials(STRANGER), TOKEN + "\0"),
    }


async def garbage(address: str) -> bytes:
    """Return what a device answers to bytes that are no handshake, until it hangs up."""
    reader, writer = await asyncio.open_connection(*split_address(address))
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
    answer = b""
    with suppress(ConnectionError):
        async with asyncio.timeout(PATIENCE_S):
            answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.timeout(240)
def test_strangers_get_nowhere_and_training_is_unharmed(tmp_path: Path) -> None:
    async def live() -> None:
        async with secure_fleet_of(tmp_path, SPEC) as fleet:
            gate = await in_mid_run(fleet, STRANGER)
            outside = await without_entry(fleet)
            answer = await garbage(fleet.addresses[TARGET])
            unseen = await fleet.refused(TARGET)
            inside = await was_rejected(fleet)
            counted = await fleet.refused(TARGET)
            gate.set()

            assert set(outside.values()) <= {"no handshake", "closed", "None"}, outside
            assert b"tolfl" not in answer
            assert unseen == {}  # a handshake that fails is not counted: it says nothing
            assert [inside.pop(who) for who in ("operator as a device", "certificate of nobody")] == ["forged"] * 2
            assert all("commands are for operators" in said for said in inside.values()), inside
            assert counted == {"forged": 2, "command": 4}
            await check_unharmed(fleet, STRANGER)

    asyncio.run(live())


def test_a_poisoned_address_book_leads_nobody_to_the_wrong_device(tmp_path: Path) -> None:
    async def live() -> None:
        async with secure_fleet_of(tmp_path, SPEC) as fleet:
            for device in (0, 1, 2):
                fleet.prepare(device, absent=(3,), peers={str(one): fleet.addresses[one] for one in (0, 1)})
            gate = held_back(fleet.nodes[0], lambda index: index < 1)
            fleet.launch(0, 1, 2)
            await fleet.until_round(1)
            liar = Peer(fleet, 3, 2)
            lie = liar.hello(addresses={1: fleet.addresses[3], 0: fleet.addresses[3], 3: fleet.addresses[3]})
            said = await liar.tell(hello=lie)
            gate.set()

            assert said == "open"
            assert fleet.nodes[2].addresses[1] == fleet.addresses[1]  # the operator said so
            assert fleet.nodes[0].addresses[2] == fleet.addresses[2]  # device 2 said so itself
            assert without_stale(fleet.nodes[2].links.refused) == {}
            await check_unharmed(fleet, 3)

    asyncio.run(live())


def test_a_device_at_the_address_of_another_is_not_taken_for_it(tmp_path: Path) -> None:
    """The operator's list is wrong: device 1 stands under the address of device 2."""

    async def live() -> None:
        async with secure_fleet_of(tmp_path, SPEC) as fleet:
            places = {str(device): fleet.addresses[device] for device in (1, 2, 3)}
            fleet.prepare(0, peers={**places, "1": fleet.addresses[2]})
            fleet.launch(*ALL)
            reasons = await fleet.ends(*ALL)

            assert reasons == ["over"] * 4  # device 1 dials device 0, and that connection serves both
            assert fleet.closed()[-1].included == ALL

    asyncio.run(live())


def test_renewed_certificates_work_after_a_restart_and_expired_ones_do_not(tmp_path: Path) -> None:
    async def live() -> None:
        async with secure_fleet_of(tmp_path, SPEC) as fleet:
            gate = held_back(fleet.prepare(0), lambda index: index < 1)
            fleet.launch(*ALL)
            await fleet.until_round(1)
            await fleet.kill(3)
            await fleet.until(lambda: fleet.nodes[2].device.fleet.has_failed((3, 0)))
            expire(fleet, 3)
            with pytest.raises(EnrolmentError, match="; tolfl enroll renew"):
                prepare(fleet.config(3))
            fleet.authority.renew("device-3")
            fleet.launch(3)
            await fleet.until(lambda: 3 in fleet.nodes[2].device.fleet.joiners)
            gate.set()

            assert await fleet.ends(*ALL) == ["over"] * 4
            assert len(fleet.histories()) == 1
            assert fleet.closed()[-1].included == ALL

    asyncio.run(live())


def test_a_certificate_that_ends_during_the_run_stops_nobody_and_is_said(tmp_path: Path) -> None:
    """Connections that stand go on; the device says what to do, and a new connection of it is not wanted any more."""

    async def live() -> None:
        async with secure_fleet_of(tmp_path, SPEC) as fleet:
            gate = held_back(fleet.prepare(0), lambda index: index < 1)
            fleet.prepare(1)
            fleet.prepare(2)
            names = [device_name("plant", 3, 1), any_device_name("plant")]
            key, chain = certificate_for(names, *issuer_in(fleet.authority.folder), days=8 / 86_400)
            (fleet.credentials(3) / KEY).write_bytes(key)
            (fleet.credentials(3) / CERTIFICATE).write_bytes(chain)
            fleet.launch(*ALL)
            await fleet.until_round(1)
            before = fleet.nodes[3].credentials.trouble
            await fleet.until(lambda: fleet.nodes[3].credentials.trouble != "")
            said, again = (await fleet.status(2)).trouble, await Peer(fleet, 3, 2).tell()
            gate.set()

            assert (before, said) == ("", "")
            assert again in ("closed", "no handshake")  # TLS 1.3 tells the client afterwards
            assert "tolfl enroll renew, then restart the device" in fleet.nodes[3].credentials.trouble
            assert await fleet.ends(*ALL) == ["over"] * 4
            assert len(fleet.histories()) == 1
            assert fleet.closed()[-1].included == ALL

    asyncio.run(live())


def handshake(fleet: SecureFleet, newest: ssl.TLSVersion) -> str | None:
    """Return the version on which a client of device 3 that knows none newer agrees with device 2."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.set_ciphers("ALL:@SECLEVEL=0")  # or this side would refuse by itself
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, newest
    context.load_cert_chain(fleet.credentials(3) / CERTIFICATE, fleet.credentials(3) / KEY)
    context.load_verify_locations(fleet.credentials(3) / AUTHORITY)
    with socket.create_connection(split_address(fleet.addresses[2]), timeout=PATIENCE_S) as plain:
        try:
            with context.wrap_socket(plain) as secure:
                return secure.version()
        except (ssl.SSLError, ConnectionError):
            return None


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_nothing_older_than_tls_1_3_is_spoken(tmp_path: Path) -> None:
    async def live() -> None:
        async with secure_fleet_of(tmp_path, SPEC) as fleet:
            fleet.launch(2)
            await fleet.status(2)
            versions = [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
            found = [await asyncio.to_thread(handshake, fleet, version) for version in versions]

            assert found == [None, None, None, "TLSv1.3"]

    asyncio.run(live())
