"""Strangers at the door of a fleet that trains: nobody gets in, and the fleet ends with the model of the simulator."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path

import grpc
import grpc.aio
import pytest

from tests.net.hostile_peers import (
    Peer,
    SecureFleet,
    Shown,
    certificate_for,
    expire,
    expired,
    issuer_in,
    secure_fleet_of,
    without_stale,
)
from tests.net.nodes import PATIENCE_S, held_back, is_same, small
from tests.sim.fleets import params
from tolfl.core.records import FailureHappened
from tolfl.core.spec import RunSpec
from tolfl.net.addresses import split_address
from tolfl.net.authority import AUTHORITY, CERTIFICATE, KEY, Authority, EnrolmentError
from tolfl.net.credentials import TLS
from tolfl.net.preparing import prepare
from tolfl.net.wire import CommandRequest, encode_frame
from tolfl.sim.simulation import run

ALL = (0, 1, 2, 3)
SPEC = small(timing="lan")
NO_ENTRY = "UNAVAILABLE"  #: the handshake failed: no handler ever heard of it


async def in_mid_run(fleet: SecureFleet) -> threading.Event:
    """Start a fleet and stop it at its second round, until the event that is returned."""
    gate = held_back(fleet.prepare(0), lambda index: index < 1)
    fleet.launch(*ALL)
    await fleet.until_round(1)
    return gate


def check_unharmed(fleet: SecureFleet, reasons: list[str], spec: RunSpec) -> None:
    """Check that all ended well, with the model of the simulator, and that nobody was lost on the way."""
    expected = params(run(spec)[0])
    assert reasons == ["over"] * spec.devices
    assert all(is_same(fleet.params(device), expected) for device in range(spec.devices))
    lines = [line for device in range(spec.devices) for line in fleet.records(device)]
    assert [line for line in lines if isinstance(line, FailureHappened)] == []


# -- who they are -----------------------------------------------------------------------------------------------------


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


async def ask_status(channel: grpc.aio.Channel) -> str:
    async with channel:
        call = channel.unary_unary("/tolfl.v2.Fleet/Status")(b"", timeout=PATIENCE_S)
        with suppress(grpc.aio.AioRpcError):
            await call
        return str((await call.code()).name)


async def without_entry(fleet: SecureFleet) -> dict[str, str]:
    """Return what becomes of those whom the handshake sends away."""
    ours = Shown.of(fleet.credentials(3))
    shown = {
        "no certificate": Shown(None, None, ours.root),
        "of another fleet": of_another_fleet(fleet),
        "expired": expired(fleet, 3),
    }
    found = {who: await Peer(fleet, 3, 2, one).tell() for who, one in shown.items()}
    found["signed by a device"] = await Peer(fleet, 1, 2, signed_by_a_device(fleet)).tell()
    found["asks without a certificate"] = await ask_status(
        shown["no certificate"].dial(fleet.addresses[2], "device.plant.tolfl")
    )
    found["plain text"] = await ask_status(grpc.aio.insecure_channel(fleet.addresses[2]))
    # The wrong device at an address: whoever dials does not even say hello.
    found["device 2 where 1 is wanted"] = await ask_status(TLS(fleet.credentials(0)).dial(fleet.addresses[2], 1))
    return found


async def command(fleet: SecureFleet, folder: Path, token: str) -> str:
    request = encode_frame(CommandRequest(token=token, leave=True))
    async with Shown.of(folder).dial(fleet.addresses[2], "device.plant.tolfl") as channel:
        call = channel.unary_unary("/tolfl.v2.Fleet/Command")(request, timeout=PATIENCE_S)
        with suppress(grpc.aio.AioRpcError):
            await call
        return str((await call.code()).name)


async def turned_away(fleet: SecureFleet) -> dict[str, str]:
    """Return what becomes of those who have a certificate of the fleet, and no right to what they ask."""
    peer = Peer(fleet, 3, 2)
    nameless = certificate_for(["x.plant.tolfl"], *issuer_in(fleet.authority.folder))
    nobody = Shown(*nameless, root=Shown.of(fleet.credentials(3)).root)
    return {
        "speaks for another": await peer.tell(hello=peer.hello(device=1)),
        "operator as a device": await Peer(fleet, 1, 2, Shown.of(fleet.authority.folder_of("me"))).tell(),
        "certificate of nobody": await Peer(fleet, 1, 2, nobody).tell(),
        "of another run": await peer.tell(hello=peer.hello(fleet="another")),
        "wants another": await peer.tell(hello=peer.hello(to=1)),
        "no such device": await peer.tell(hello=peer.hello(device=77)),
        "of another version": await peer.tell(hello=peer.hello(wire=3)),
        "commands": await command(fleet, fleet.credentials(3), "guessed"),
        "commands without a token": await command(fleet, fleet.credentials(3), ""),
        "commands beyond ASCII": await command(fleet, fleet.credentials(3), "geheim é"),
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
            gate = await in_mid_run(fleet)
            outside = await without_entry(fleet)
            answer = await garbage(fleet.addresses[2])
            unseen = await fleet.refused(2)
            inside = await turned_away(fleet)
            counted = await fleet.refused(2)
            gate.set()
            reasons = await fleet.ends(*ALL)

            assert set(outside.values()) == {NO_ENTRY}, outside
            assert b"tolfl" not in answer
            assert unseen == {}  # a handshake that fails is not counted: no handler sees it
            for who, code in inside.items():
                assert code == ("PERMISSION_DENIED" if who.startswith("commands") else "FAILED_PRECONDITION"), who
            assert counted == {"forged": 3, "stranger": 3, "wire version": 1, "command": 3}
            check_unharmed(fleet, reasons, SPEC)

    asyncio.run(live())


def test_a_poisoned_address_book_leads_nobody_to_the_wrong_device(tmp_path: Path) -> None:
    async def live() -> None:
        async with secure_fleet_of(tmp_path, SPEC) as fleet:
            places = {str(device): fleet.addresses[device] for device in (1, 2, 3)}
            gate = held_back(fleet.prepare(0, peers={**places, "1": fleet.addresses[2]}), lambda index: index < 1)
            fleet.launch(*ALL)
            await fleet.until_round(1)
            liar = Peer(fleet, 3, 2)
            lie = liar.hello(addresses={1: fleet.addresses[3], 3: fleet.addresses[3]})
            said = await liar.tell(hello=lie)
            gate.set()
            reasons = await fleet.ends(*ALL)

            assert said == "OK"
            assert fleet.nodes[0].addresses[1] == fleet.addresses[1]  # device 1 said so itself
            assert fleet.nodes[2].addresses[1] == fleet.addresses[1]
            assert without_stale(fleet.nodes[2].server.refused) == {}
            check_unharmed(fleet, reasons, SPEC)

    asyncio.run(live())


def test_renewed_certificates_work_after_a_restart_and_expired_ones_do_not(tmp_path: Path) -> None:
    async def live() -> None:
        async with secure_fleet_of(tmp_path, SPEC) as fleet:
            gate = await in_mid_run(fleet)
            await fleet.kill(3)
            await fleet.until(lambda: (3, 0) in fleet.nodes[2].device.fleet.dead)
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


def handshake(fleet: SecureFleet, newest: ssl.TLSVersion) -> str | None:
    """Return the version on which a client of device 3 that knows none newer agrees with device 2."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("ALL:@SECLEVEL=0")  # or this side would refuse by itself
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, newest
    context.load_cert_chain(fleet.credentials(3) / CERTIFICATE, fleet.credentials(3) / KEY)
    context.load_verify_locations(fleet.credentials(3) / AUTHORITY)
    context.set_alpn_protocols(["h2"])
    sides = ssl.MemoryBIO(), ssl.MemoryBIO()
    engine = context.wrap_bio(*sides, server_hostname="d2-g1.plant.tolfl")
    with socket.create_connection(split_address(fleet.addresses[2]), timeout=PATIENCE_S) as connection:
        while True:
            try:
                engine.do_handshake()
            except ssl.SSLWantReadError:
                connection.sendall(sides[1].read())
                received = connection.recv(65536)
                if not received:
                    return None
                sides[0].write(received)
            except ssl.SSLError:
                return None
            else:
                return engine.version()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_nothing_older_than_tls_1_2_is_spoken(tmp_path: Path) -> None:
    async def live() -> None:
        async with secure_fleet_of(tmp_path, SPEC) as fleet:
            fleet.launch(2)
            await fleet.status(2)
            versions = [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
            found = [await asyncio.to_thread(handshake, fleet, version) for version in versions]

            assert found == [None, None, "TLSv1.2", "TLSv1.3"]

    asyncio.run(live())
