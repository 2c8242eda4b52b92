"""`tolfl status` against a fleet that is training, and against nobody."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import msgspec

from tests.cli.conftest import Command
from tests.net.nodes import Fleet, fleet_of, free_addresses, held_back, small
from tests.watch.alarms import event
from tolfl.core.records import RunStarted, how_far
from tolfl.net.node_config import WatchConfig
from tolfl.watch.alarm_events import Memory
from tolfl.watch.fleet_watch import FleetWatch


def test_a_training_fleet_says_what_it_does(tolfl: Command, tmp_path: Path) -> None:
    """All in one fleet: starting it takes longer than asking it."""

    async def asked(*arguments: str) -> tuple[int, str, str]:
        return await asyncio.to_thread(tolfl, "status", *arguments)

    async def live() -> None:
        async with fleet_of(tmp_path) as fleet:
            write_configs(fleet)
            gate = held_back(fleet.prepare(3), lambda index: index < 2)
            watching = watch_of(fleet, 3)
            fleet.nodes[3].watching = watching
            fleet.launch(0, 1, 2, 3)
            await fleet.until_round(2)
            await fleet.kill(1)
            await fleet.until(lambda: (1, 0) in fleet.nodes[0].device.fleet.dead)
            one = await asked(fleet.addresses[0], "--format", "json")
            by_file = await asked(str(fleet.state(2) / "node.toml"), "--format", "json")
            all_of_them = await asked(str(tmp_path), "--format", "json")
            table = await asked(str(tmp_path))
            whole_fleet = await asked(fleet.addresses[0])
            fleet.nodes[3].watching = None  # one that watches goes on until it is asked to leave
            watching.close()
            gate.set()
            await fleet.ends(0, 2, 3)

            check_one(one, fleet)
            assert [device["role"] for device in json.loads(by_file[1])] == ["closer"]
            answers = json.loads(all_of_them[1])
            assert all_of_them[0] == 0
            assert [answer["answers"] for answer in answers] == [True, False, True, True]
            assert answers[1] == {"address": fleet.addresses[1], "answers": False}
            check_table(table, fleet)
            check_fleet(whole_fleet)

    asyncio.run(live())


def test_a_fleet_with_stages_says_in_which_one_it_is(tolfl: Command, tmp_path: Path) -> None:
    async def live() -> None:
        async with fleet_of(tmp_path, small(learn={"what": "detector"})) as fleet:
            write_configs(fleet)
            gate = held_back(fleet.prepare(3), lambda index: index < 4)
            fleet.launch(0, 1, 2, 3)
            await fleet.until_round(4)
            code, out, _ = await asyncio.to_thread(tolfl, "status", str(tmp_path))
            gate.set()
            await fleet.ends(0, 1, 2, 3)

            started = fleet.records(0)[0]
            assert isinstance(started, RunStarted)
            assert started.learn == "detector"
            assert len(started.stages) > 2
            assert code == 0
            assert out.count(how_far(started.stages, 4, sum(n for _, n in started.stages))) == 4

    asyncio.run(live())


def watch_of(fleet: Fleet, device: int) -> FleetWatch:
    """Return what a device watches with; one group of alarms is open, and a later one over after three events."""
    watch = WatchConfig(source=str(fleet.state(device) / "now.pcap"), json=str(fleet.state(device) / "alarms.jsonl"))
    watching = FleetWatch(fleet.config(device, watch=watch), 1, str(device))
    names = ("open", "update", "close")
    later = [msgspec.structs.replace(event(2), id=f"later-{number}", event=name) for number, name in enumerate(names)]
    watching.watcher.queue.put([event(1, "high"), *later], "lo", Memory())
    return watching


def write_configs(fleet: Fleet) -> None:
    for device in range(4):
        fleet.state(device).mkdir(parents=True)
        (fleet.state(device) / "node.toml").write_text(fleet.config(device).to_toml())


def check_one(answer: tuple[int, str, str], fleet: Fleet) -> None:
    code, out, err = answer
    (said,) = json.loads(out)
    assert (code, err) == (0, "")
    assert (said["device"], said["incarnation"], said["role"], said["answers"]) == (0, 0, "head", True)
    assert (said["version"]["round"], said["rounds"], said["n_samples"]) == (2, 4, 40)
    assert said["loss"] > 0
    assert said["dead"] == [{"device": 1, "incarnation": 0}]
    assert [life["device"] for life in said["roster"]] == [0, 1, 2, 3]
    assert {peer["device"]: peer["address"] for peer in said["peers"]} == {
        device: fleet.addresses[device] for device in (1, 2, 3)
    }
    assert (said["refused"], said["trouble"], said["stopped"]) == ({}, "", "")
    assert [(other["device"], other["answers"], other["watch"] is None) for other in said["others"]] == [
        (1, False, True),
        (2, True, True),
        (3, True, False),
    ]
    assert [alarm["event"] for alarm in said["others"][2]["watch"]["latest"]] == ["close", "open"]


def check_table(answer: tuple[int, str, str], fleet: Fleet) -> None:
    code, out, err = answer
    heading, *rows = out.splitlines()
    assert (code, err) == (0, "")
    assert heading.split()[:4] == ["device", "address", "incarnation", "role"]
    assert rows[4] == ""
    assert "alarm (high) on lo" in out
    assert rows[0].split()[:7] == ["0", fleet.addresses[0], "0", "head", "2", "of", "4"]
    assert "does not answer" in rows[1]
    assert rows[2].split()[3] == "closer"


def check_fleet(answer: tuple[int, str, str]) -> None:
    """One device knows of all: who trains, who is dead, since when it heard of them; of their alarms all are asked."""
    code, out, err = answer
    _, watched, alarms, (title, heading, *rows) = (part.splitlines() for part in out.split("\n\n"))
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in watched[:2]] == ["device", "3"]
    _, silent, last, before = alarms
    assert re.match(r"1 +\? +does not answer: its alarms are not known", silent)
    assert re.match(r"3 +\d+ s ago +alarm is over \(warning\) on lo since t0: 1 window", last)
    assert re.match(r"3 +\d+ s ago +alarm \(high\) on lo since t0: 1 window", before)
    assert re.fullmatch(r"the fleet as device 0 knows it; round 1, closed [\d.]+ s ago *", title)
    assert heading.split()[:4] == ["device", "cluster", "role", "state"]
    assert [row.split()[0] for row in rows] == ["0", "1", "2", "3"]
    assert "answers now" in rows[0]
    assert re.search(r"1 +0 +dead +yes +[\d.]+ s ago", rows[1])
    assert "head, closes the rounds" in rows[2]
    assert re.search(r"3 +1 +member +trains +yes +[\d.]+ s ago", rows[3])


def test_nobody_there_is_an_error_of_one_sentence(tolfl: Command) -> None:
    (address,) = free_addresses(1)
    code, out, err = tolfl("status", address, "--format", "json")

    assert code == 1
    assert json.loads(out) == [{"address": address, "answers": False}]
    assert err.startswith(f"tolfl: {address}: no answer; is a device running there")
    assert err.count("\n") == 1
