"""Diagrams show what the protocol does: the page equals the code, and every change of role that happens is drawn."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from docs.generate.diagrams import DEAD, PAGE, SCENARIOS, diagram, filled, state_of, traced
from tests.protocol.fleets import clusters, started
from tolfl.protocol.device import Device
from tolfl.protocol.events import LeaveAsked

PROTOCOL = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "protocol.md"
INSIDE = ("member", "head", "closer")
#: Failures, cuts and returns that lead devices through all they can be.
STORIES: list[tuple[str, dict[str, object]]] = [
    ("", {}),
    ("device:0@1-2", {"rounds": 4}),
    ("device:2@1-2/chain", {"rounds": 4}),
    ("device:2,3@1-3", {"rounds": 5}),
    ("cut:0,1|2,3@1-3", {"rounds": 6}),
    ("server@1", {"on_head_failure": "drop", "rounds": 3}),
    ("server@1", {"on_head_failure": "isolate", "rounds": 3}),
    ("server@1", {"on_head_failure": "freeze", "rounds": 3}),
]


def test_the_diagrams_of_the_page_are_what_the_protocol_does_now() -> None:
    text = PAGE.read_text(encoding="utf-8")

    assert sorted(re.findall(r"<!-- diagram: (\S+) -->", text)) == sorted(SCENARIOS)
    assert filled(text) == text


def test_a_diagram_of_another_failure_is_another_one() -> None:
    drawn = {name: diagram(name) for name in SCENARIOS}

    assert len(set(drawn.values())) == len(SCENARIOS)
    assert "dies" not in drawn["nobody"]
    assert "d0->>d2: mean of 0, 1" in drawn["nobody"]
    assert "Note over d1: is now head of cluster 0" in drawn["head-in-chain"]
    assert "d1->>d2: mean of 1" in drawn["head-in-chain"]
    assert "closes round 0 with 0, 2, 3" in drawn["member-in-report"]
    assert "d0->>d3: round 0, closed with 0, 1, 2, 3" in drawn["closer-in-distribute"]


def drawn_changes() -> set[tuple[str, str]]:
    """Return the arrows of the state diagram; `inside` stands for all three roles."""
    (text,) = re.findall(r"^```mermaid\nstateDiagram-v2\n(.*?)^```$", PROTOCOL.read_text(), re.MULTILINE | re.DOTALL)
    return set(re.findall(r"^\s*(\w+) --> (\w+):", text, re.MULTILINE))


def grouped(change: tuple[str, str]) -> tuple[str, str]:
    """Return a change as it is drawn: between two roles as it is, all else from or to `inside`."""
    before, after = change
    if before in INSIDE and after in INSIDE:
        return change
    return "inside" if before in INSIDE else before, "inside" if after in INSIDE else after


def test_every_change_that_happens_is_drawn_and_every_one_that_is_drawn_happens() -> None:
    seen = {grouped(change) for fail, options in STORIES for change in traced(fail, **options).changes}
    leaver = started(clusters([0, 1], [2, 3]), id=1)
    before = state_of(leaver)
    leaver.handle(LeaveAsked())
    seen.add(grouped((before, state_of(leaver))))

    assert seen == drawn_changes()


def test_the_states_are_the_roles_that_a_device_reports() -> None:
    told = set(re.findall(r'(?:return|else) "(\w+)"', inspect.getsource(vars(Device)["role"].fget)))
    stopped = {"over", "left", "dropped"}
    named = {name for change in drawn_changes() for name in change} - {"inside", DEAD}

    assert named - stopped == told
    assert stopped <= named


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_a_diagram_names_nobody_but_the_four_devices(name: str) -> None:
    assert set(re.findall(r"\bd(\d+)\b", diagram(name))) == {"0", "1", "2", "3"}
