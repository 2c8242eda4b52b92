"""What a device keeps: whole or not at all, its own and nobody else's; and a disk that is full stops nothing."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.net.nodes import SMALL, fleet_of, held_back, is_same
from tests.net.test_wire import any_message, fleets, plain
from tests.sim.fleets import params
from tolfl.core.contribution import GLOBAL
from tolfl.core.errors import RunDirectoryError
from tolfl.net.storage import DeviceStorage, encode_round, has_round, planned_deaths, read_round, round_path
from tolfl.protocol.events import PeerFailed
from tolfl.protocol.history import ClosedRound, Roster, Version
from tolfl.protocol.messages import Closed
from tolfl.sim.simulation import run

RECORD = ClosedRound(Version(9, 1, 0, "ab"), Roster({0: 0, 1: 2}), {GLOBAL: np.arange(3, dtype=np.float32)}, "")


@settings(max_examples=40)
@given(st.data(), st.sampled_from(["", "over", "left"]), st.booleans())
def test_a_round_is_read_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, stopped: str, is_private: bool
) -> None:
    message = data.draw(any_message(data.draw(fleets()), Closed))
    assert isinstance(message, Closed)
    folder = tmp_path_factory.mktemp("state")
    DeviceStorage(folder, 1).save(message.record, stopped, is_private)
    record, stored = read_round(round_path(folder))

    assert plain(record) == plain(message.record)
    assert (stored.stopped, stored.is_private) == (stopped, is_private)
    assert plain(DeviceStorage(folder, 1).newest()) == plain(message.record)


def test_every_start_is_another_life(tmp_path: Path) -> None:
    assert [DeviceStorage(tmp_path / "new", 3).next_incarnation() for _ in range(3)] == [0, 1, 2]
    DeviceStorage(tmp_path / "new", 3).keep_incarnation(7)  # it was told that it is dead, and came back
    assert DeviceStorage(tmp_path / "new", 3).next_incarnation() == 8


def test_the_folder_of_another_device_is_refused(tmp_path: Path) -> None:
    DeviceStorage(tmp_path, 3).next_incarnation()
    with pytest.raises(RunDirectoryError, match="belongs to device 3, not 4; choose another folder"):
        DeviceStorage(tmp_path, 4).next_incarnation()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"device": 3}', b'{"device": 3, "incarnation": "x"}', b"\xff", b"[" * 3_000]
)
def test_a_life_that_cannot_be_read_is_no_first_life(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "life.json").write_bytes(content)
    with pytest.raises(RunDirectoryError, match=r"life\.json cannot be read"):
        DeviceStorage(tmp_path, 3).next_incarnation()
    with pytest.raises(RunDirectoryError, match=r"life\.json cannot be read"):
        planned_deaths(tmp_path)  # as `tolfl up --resume` asks


def test_a_second_process_in_one_state_folder_is_refused(tmp_path: Path) -> None:
    first = DeviceStorage(tmp_path, 3)
    life = first.next_incarnation()
    with pytest.raises(RunDirectoryError, match="in use by another process; stop that one"):
        DeviceStorage(tmp_path, 3).next_incarnation()
    first.close()

    assert DeviceStorage(tmp_path, 3).next_incarnation() == life + 1


def test_a_new_life_is_synced_with_the_folder_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its folder a power cut brings the old file back, and one life would begin twice."""
    synced, fsync = [], os.fsync

    def watched(handle: int) -> None:
        synced.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", watched)
    DeviceStorage(tmp_path, 3).next_incarnation()

    assert synced == ["file", "folder"]


@given(st.data())
def test_a_spoilt_round_is_refused_in_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("state") / "round.safetensors"
    content = bytearray(encode_round(RECORD))
    place = data.draw(st.integers(0, len(content) - 13))  # before the numbers: a changed one is another model
    if data.draw(st.booleans()):
        del content[place:]
    else:
        content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)

    try:
        record, _ = read_round(path)
    except RunDirectoryError as error:
        assert "delete it to start anew" in str(error)  # noqa: PT017
    else:
        assert isinstance(record, ClosedRound)


def test_a_file_that_was_being_written_is_not_taken_for_the_last_round(tmp_path: Path) -> None:
    DeviceStorage(tmp_path, 1).save(RECORD)
    (tmp_path / "round.safetensors.part").write_bytes(b"half a round")
    later = msgspec.structs.replace(RECORD, parent="ab", n_samples=4)

    assert plain(DeviceStorage(tmp_path, 1).newest()) == plain(RECORD)
    DeviceStorage(tmp_path, 1).save(later)
    assert plain(DeviceStorage(tmp_path, 1).newest()) == plain(later)


def test_a_round_of_another_run_is_refused(tmp_path: Path) -> None:
    DeviceStorage(tmp_path, 1, "one fleet").save(RECORD)

    assert plain(DeviceStorage(tmp_path, 1, "one fleet").newest()) == plain(RECORD)
    with pytest.raises(RunDirectoryError, match="holds a round of another model; choose another state folder"):
        DeviceStorage(tmp_path, 1, "another fleet").newest()


@pytest.mark.parametrize("array", [np.zeros((2, 2)), np.zeros(2, np.float16)], ids=["two axes", "half numbers"])
def test_a_round_whose_arrays_could_not_travel_is_refused(tmp_path: Path, array: np.ndarray) -> None:
    DeviceStorage(tmp_path, 1).save(msgspec.structs.replace(RECORD, state={GLOBAL: array}))
    with pytest.raises(RunDirectoryError, match=r"array 'global' is of type .* delete it to start anew"):
        DeviceStorage(tmp_path, 1).newest()


def test_a_new_folder_has_no_round(tmp_path: Path) -> None:
    assert not has_round(tmp_path / "new")
    assert DeviceStorage(tmp_path / "new", 1).newest() is None


# -- whole devices ----------------------------------------------------------------------------------------------------


def test_a_folder_that_is_gone_is_reported_and_stops_nothing(tmp_path: Path) -> None:
    async def live() -> None:
        async with fleet_of(tmp_path) as fleet:
            gate = held_back(fleet.prepare(3), lambda index: index < 1)
            fleet.launch(0, 1, 2, 3)
            await fleet.until_round(1)
            before = (await fleet.status(2)).trouble
            fleet.state(2).rename(tmp_path / "elsewhere")
            fleet.state(2).write_text("a file in its place")
            gate.set()
            await fleet.until(lambda: bool(fleet.nodes[2].writer.trouble))
            during = (await fleet.status(2)).trouble
            reasons = await fleet.ends(0, 1, 2, 3)

            expected = params(run(SMALL)[0])
            assert before == ""
            assert str(fleet.state(2)) in during
            assert "training goes on" in during
            assert reasons == ["over"] * 4
            assert is_same(fleet.params(2), expected)
            assert fleet.nodes[3].writer.trouble == ""

    asyncio.run(live())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Give a disk of 160 KiB: two rounds of the model do not fit, as they must for a moment."""
    folder = tmp_path / "devices" / "2"
    folder.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs", str(folder)], check=False, capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _fill(disk: Path) -> None:
    with suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(512))


def test_a_device_does_not_begin_a_life_that_a_full_disk_cannot_keep(small_disk: Path) -> None:
    storage = DeviceStorage(small_disk, 2)
    life = storage.next_incarnation()
    storage.close()
    _fill(small_disk)
    with pytest.raises(RunDirectoryError, match="No space left on device"):
        DeviceStorage(small_disk, 2).next_incarnation()
    (small_disk / "filler").unlink()

    assert DeviceStorage(small_disk, 2).next_incarnation() == life + 1


def test_a_new_incarnation_that_a_full_disk_cannot_keep_is_reported_and_stops_nothing(
    tmp_path: Path, small_disk: Path
) -> None:
    async def live() -> None:
        async with fleet_of(tmp_path) as fleet:
            gate = held_back(fleet.prepare(3), lambda index: index < 1)
            fleet.launch(0, 1, 2, 3)
            await fleet.until_round(1)
            _fill(small_disk)
            before = fleet.nodes[2].device.incarnation
            fleet.nodes[0]._handle(PeerFailed(2, before))
            await fleet.until(lambda: fleet.nodes[2].device.incarnation > before)
            await fleet.until(lambda: bool(fleet.nodes[2].writer.trouble))
            trouble = (await fleet.status(2)).trouble
            gate.set()

            assert await fleet.ends(0, 1, 2, 3) == ["over"] * 4
            assert "No space left on device" in trouble
            assert len(fleet.histories()) == 1

    asyncio.run(live())


def test_a_full_disk_is_reported_and_stops_nothing_and_room_ends_it(tmp_path: Path, small_disk: Path) -> None:
    async def live() -> None:
        async with fleet_of(tmp_path) as fleet:
            gate = held_back(fleet.prepare(3), lambda index: index < 3)
            fleet.launch(0, 1, 2, 3)
            await fleet.until(lambda: bool(fleet.nodes[2].writer.trouble))
            trouble = (await fleet.status(2)).trouble
            await fleet.until_round(3)
            room = ["mount", "-o", "remount,size=8m", str(small_disk)]
            await asyncio.to_thread(subprocess.run, room, check=True)
            gate.set()
            reasons = await fleet.ends(0, 1, 2, 3)

            expected = params(run(SMALL)[0])
            assert "No space left on device" in trouble
            assert reasons == ["over"] * 4
            assert is_same(fleet.params(2), expected)
            assert fleet.nodes[2].writer.trouble == fleet.nodes[2].log.trouble == ""
            assert read_round(round_path(small_disk))[0].version == fleet.nodes[2].device.version
            assert fleet.records(2)[-1].time_s > 0

    asyncio.run(live())
