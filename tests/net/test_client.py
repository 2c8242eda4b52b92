"""Asking a fleet from outside for what its devices have written down."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.net.fleet_processes import wait_until
from tests.net.hostile_peers import secure_fleet_of
from tests.net.nodes import fleet_of, held_back, small
from tolfl.core.records import RoundClosed
from tolfl.net.client import RecordsMirror
from tolfl.net.tls import Credentials
from tolfl.runs.run_reader import RECORDS, RunReader


def test_any_device_tells_the_whole_run_and_another_one_goes_on_when_it_dies(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()

    async def live() -> None:
        async with fleet_of(tmp_path, small(rounds=6)) as fleet:
            for device in range(4):
                fleet.prepare(device)
            gate = held_back(fleet.nodes[0], lambda index: index < 2)
            fleet.launch(0, 1, 2, 3)
            await fleet.until_round(2)
            mirror = RecordsMirror(fleet.addresses[3], Credentials(), copy)
            await mirror.look()
            await mirror.ask_others()
            assert [(word.device, word.is_silent) for word in mirror.last_answers] == [(n, False) for n in range(4)]
            reader = RunReader(copy)
            rounds = {line.round for line in reader.read() if isinstance(line, RoundClosed)}
            copied = (copy / RECORDS).read_bytes()
            assert rounds == {0, 1}
            assert (fleet.state(3) / RECORDS).read_bytes().startswith(copied)

            await fleet.kill(3)

            def follow() -> None:  # its end waits for an answer, which devices on the thread that waits cannot give
                with mirror.running():
                    wait_until(
                        lambda: mirror.address != fleet.addresses[3] and mirror.silent_s < 1.0, "another answers"
                    )
                    wait_until(lambda: mirror.last_answers[3].is_silent, "it is known to be silent")

            await asyncio.to_thread(follow)
            gate.set()
            reader.read()
            assert (reader.n_starts, reader.n_unreadable) == (2, 0)
            assert {line.round for line in reader.records if isinstance(line, RoundClosed)} == {0, 1}
            assert [word.is_silent for word in mirror.last_answers] == [False, False, False, True]
            last = mirror.last_answers[3].status
            assert last is not None
            assert last.device == 3, "what it said before it fell silent is still known"

    asyncio.run(live())


def test_records_are_for_those_with_a_certificate_of_the_fleet(tmp_path: Path) -> None:
    async def live() -> None:
        async with secure_fleet_of(tmp_path, small(rounds=3)) as fleet:
            for device in range(4):
                fleet.prepare(device)
            gate = held_back(fleet.nodes[0], lambda index: index < 1)
            fleet.launch(0, 1, 2, 3)
            await fleet.until_round(1)
            operator = RecordsMirror(fleet.addresses[1], Credentials(fleet.authority.folder_of("me")), tmp_path)
            await operator.look()
            with pytest.raises((OSError, EOFError)):
                await RecordsMirror(fleet.addresses[1], Credentials(), tmp_path).look()
            gate.set()
            assert (tmp_path / RECORDS).read_bytes().startswith(b'{"kind":"run_started"')

    asyncio.run(live())
