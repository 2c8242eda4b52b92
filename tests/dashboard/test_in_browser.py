"""The page in a real browser: what it shows of runs whose story is known, at every moment, by mouse and by keyboard."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from selenium.webdriver.common.keys import Keys

from tests.dashboard.browser import Browser, needs_chromium
from tests.dashboard.conftest import Opened
from tests.dashboard.test_page import TOKEN, Noted
from tests.record_lines import adopted, closed, collected, cut_in_two, ended, lost_head, real_devices, started, write
from tolfl.core.records import (
    AlarmSent,
    AnyRecord,
    Evaluated,
    FailureHappened,
    Joined,
    RoundAdopted,
    RoundClosed,
    RunStarted,
    Scored,
    TakenOver,
)
from tolfl.dashboard import AlarmsOfDevice, Page, PageCommand, ShownAlarm
from tolfl.runs.run_reader import RunReader

pytestmark = [needs_chromium, pytest.mark.slow]  # test_page.py asks the page without a browser
AXE = Path(__file__).parent / "vendor" / "axe.min.js"


def big_run() -> list[AnyRecord]:
    """Five hundred devices in twenty clusters: a head dies in the third round."""
    clusters = [list(range(first, first + 25)) for first in range(0, 500, 25)]
    heads, rest = [ids[0] for ids in clusters], [device for device in range(500) if device != 25]
    after = [26 if head == 25 else head for head in heads]
    return [
        started(clusters),
        *(closed(index + 1.0, index, range(500), heads, 50_000 * (index + 1)) for index in range(2)),
        FailureHappened(time_s=2.5, device=25, round=2, what="died (train)"),
        TakenOver(time_s=2.7, device=26, round=2, version="100000.2.0.h1", cluster=1, previous=25),
        *(closed(index + 1.0, index, rest, after, 50_000 * (index + 1)) for index in range(2, 100)),
        *ended(101.0, rest),
    ]


def page_of(folder: Path, *stories: Sequence[AnyRecord], **fields: Any) -> Page:
    folders = [write(folder / f"run-{number}", story) for number, story in enumerate(stories)]
    return Page([RunReader(one) for one in folders], **fields)


def move_to(browser: Browser, seconds: float) -> None:
    """Pull the slider, and wait until the moment is drawn."""
    script = """
        const slider = document.getElementById("time");
        const [, end] = document.getElementById("clock").textContent.match(/of ([0-9.]+)/);
        slider.value = given[0] / Number(end);
        slider.dispatchEvent(new Event("input"));
        await new Promise((ready) => requestAnimationFrame(() => requestAnimationFrame(ready)));
    """
    browser.run_module(script, seconds)


def device(browser: Browser, number: int, run: int = 0) -> str:
    """Return what a device is, as a screen reader hears it."""
    fleets = browser.find_all(".fleet-card")
    return str(
        browser.run(
            "return arguments[0].querySelector(`[data-device='${arguments[1]}']`).getAttribute('aria-label')",
            fleets[run],
            number,
        )
    )


def serious_findings(browser: Browser) -> list[str]:
    browser.run(AXE.read_text())
    found = browser.run_module("return (await axe.run(document)).violations;")
    return [f"{one['id']}: {one['nodes'][0]['html']}" for one in found if one["impact"] in ("serious", "critical")]


# -- a recorded run ------------------------------------------------------------------------------------------------


def test_a_recorded_run_is_shown_in_its_last_moment(browser: Browser, opened: Opened, tmp_path: Path) -> None:
    opened(page_of(tmp_path, lost_head()))
    browser.until_loaded()

    facts = browser.text(".facts")
    for words in (
        "tol-fl on blobs",
        "Rounds done\n5 rounds",
        "Devices left\n4 of 4",
        "AUROC\n0.75",
        "Stalled by failures\n0.50 s",
    ):
        assert words in facts
    details = browser.text("#details")
    assert "4 of 4 devices are in the model of round 4, with 400 samples." in details
    assert "2\t2.2 s\tdevice 0, head of cluster 0, died (train)" in details
    assert "not recorded\tdevice 1 for 0 in cluster 0 after 0.25 s\t0.50 s" in details
    # Three rounds of four devices (6 messages each) and two of three (4 each), 1000 bytes a message.
    assert "the run 26.00 kB, 100.0 % of messages \u00d7 model size" in details
    assert "device 1 takes over cluster 0 from device 0" in browser.text(".log")
    assert len(browser.find_all(".uplot")) == 2
    assert (
        browser.text(".headline")
        == "4 of 4 devices are left; device 0, head of cluster 0, died (train); took over: device 1 for 0 in cluster 0 "
        "after 0.25 s; came back: device 0, round 4."
    )
    assert "returned" in device(browser, 0)
    assert not browser.find_all("[data-action]"), "there is nobody to kill"


def test_stages_are_named_and_a_loss_that_no_round_has_is_not_shown(
    browser: Browser, opened: Opened, tmp_path: Path
) -> None:
    stages = (("scaling", 1), ("thresholds", 4))
    told: list[AnyRecord] = []
    for line in lost_head():
        if isinstance(line, RunStarted):
            told.append(msgspec.structs.replace(line, learn="detector", stages=stages))
        else:
            told.append(msgspec.structs.replace(line, loss=None) if isinstance(line, RoundClosed) else line)
    opened(page_of(tmp_path, told))
    browser.until_loaded()

    assert [one.text for one in browser.find_all(".stages li")] == ["scaling 1/1", "thresholds 4/4"]
    text = browser.text(".facts")
    assert "Rounds done\nthresholds 4/4 (5 of 5 rounds)" in text
    assert "Loss" not in text
    assert not browser.find_all("#loss")[0].is_displayed()


def test_metrics_of_a_learner_are_curves_of_their_own(browser: Browser, opened: Opened, tmp_path: Path) -> None:
    told: list[AnyRecord] = []
    for line in lost_head():
        if isinstance(line, RoundClosed):
            metrics = (
                {"evaluate/accuracy": 0.5 + 0.1 * (line.round or 0)} if (line.round or 0) % 2 else {"train/loss": 4.0}
            )
            told.append(msgspec.structs.replace(line, loss=metrics.get("train/loss"), metrics=metrics))
        elif not isinstance(line, Evaluated | Scored):
            told.append(line)
    opened(page_of(tmp_path, told))
    browser.until_loaded()

    (curve,) = browser.find_all("figure.metric [role=img]")  # the training loss has one already
    assert "evaluate/accuracy. run-0: 0.600 in round 1, 0.800 in round 3" in str(curve.get_attribute("aria-label"))
    assert "evaluate/accuracy\n0.8" in browser.text(".facts")
    assert "AUROC" not in browser.text(".facts")  # nothing is scored
    assert not browser.find("#auroc").is_displayed()


def test_the_folder_of_one_device_shows_the_whole_fleet(browser: Browser, opened: Opened, tmp_path: Path) -> None:
    rounds = [line for line in lost_head()[:7] if isinstance(line, RoundClosed)]
    lines: list[AnyRecord] = [started([[0, 1], [2, 3]], device=3), *(adopted(line, 3) for line in rounds)]
    opened(Page([RunReader(write(tmp_path / "state", lines))]))
    browser.until_loaded()

    facts = browser.text(".facts")
    assert "Rounds done\n3" in facts
    assert "Training now\n3 of 4" in facts
    assert "Loss\n1.333" in facts
    assert "Stalled by failures\n0.50 s" in facts
    assert "found dead" in device(browser, 0)
    assert "device 1 for 0 in cluster 0" in browser.text("#details")


def test_rounds_before_a_device_was_away_are_of_the_same_training(
    browser: Browser, opened: Opened, tmp_path: Path
) -> None:
    def round_(index: int, time_s: float, included: Sequence[int]) -> RoundAdopted:
        return adopted(closed(time_s, index, included, [0], 1000 * (index + 1)), 1)

    begun = msgspec.structs.replace(started([[0, 1, 2]], device=1), unix_s=0.0)
    again = msgspec.structs.replace(begun, unix_s=9.0)
    lines: list[AnyRecord] = [
        begun,
        round_(0, 1.0, [0, 1, 2]),
        round_(1, 2.0, [0, 1, 2]),
        again,
        round_(8, 0.5, [0, 1]),
        round_(9, 1.5, [0, 1]),
    ]
    opened(Page([RunReader(write(tmp_path / "state", lines))]))
    browser.until_loaded()

    assert "4.00 in round 0, 0.400 in round 9" in str(browser.find("#loss").get_attribute("aria-label"))
    assert "device 1 stopped, and started again later" in browser.text(".log")
    assert "found dead" in device(browser, 2)
    assert "training, returned" in device(browser, 1)


def test_before_the_first_line_nothing_is_claimed(browser: Browser, opened: Opened, tmp_path: Path) -> None:
    opened(Page([RunReader(write(tmp_path / "run", []))], is_following=True))
    browser.until(lambda: "Waiting for the first message" in browser.text(".headline"), "it waits")

    shown = [name for name in (".fleet-body", "#details > *", "#charts") if browser.find(name).is_displayed()]
    assert shown == []


def test_a_second_failure_of_a_device_that_only_rounds_tell_of_counts(
    browser: Browser, opened: Opened, tmp_path: Path
) -> None:
    def story(n_rounds: int) -> list[AnyRecord]:
        rounds = [closed(n + 1.0, n, [0, 1, 2, 3], [0, 2], 100 * (n + 1)) for n in range(n_rounds)]
        return [started([[0, 1], [2, 3]], device=3), *(adopted(line, 3) for line in rounds)]

    lines = story(6)
    for place in (2, 3, 6):  # device 1 fails, returns for two rounds, fails again
        line = lines[place]
        assert isinstance(line, RoundAdopted)
        lines[place] = msgspec.structs.replace(line, included=(0, 2, 3), missing={"1": "failed"})
    lines.insert(4, Joined(time_s=3.5, device=1, round=3, incarnation=1))
    opened(Page([RunReader(write(tmp_path / "state", lines))]))
    browser.until_loaded()

    assert browser.text(".headline").startswith("3 of 4 devices")
    assert "found dead" in device(browser, 1)
    assert browser.text(".log").count("device 1 is missing from the round") == 2


def test_alarms_of_devices_that_watch_are_shown_and_open_ones_named(
    browser: Browser, opened: Opened, tmp_path: Path
) -> None:
    def alarm(time_s: float, device: int, group: str, number: int, event: str) -> AlarmSent:
        what = f"{event}, high: deauthentications 64, usual 0 to 1"
        return AlarmSent(time_s=time_s, device=device, id=f"{group}-{number}", event=event, severity="high", what=what)

    alarms = [alarm(7.0, 2, "a", 0, "open"), alarm(8.0, 3, "b", 0, "open"), alarm(9.0, 2, "a", 1, "close")]
    opened(page_of(tmp_path, [*lost_head(), *alarms]))
    browser.until_loaded()

    assert browser.text(".headline").startswith("alarm on device 3; 4 of 4 devices are left")
    assert "3\topen\thigh\t8.00 s\topen, high: deauthentications 64" in browser.text("#details")
    assert "2\tover\thigh\t9.00 s\tclose" in browser.text("#details")
    move_to(browser, 5.0)
    assert "Alarms" not in browser.text("#details"), "none was known then"


def test_live_alarms_are_those_of_every_device_with_their_age(browser: Browser, opened: Opened, tmp_path: Path) -> None:
    now_s = time.time()
    asked = (
        AlarmsOfDevice(0, (), now_s, is_silent=False),
        AlarmsOfDevice(1, (ShownAlarm("open", "high", "<b>a flood</b>", now_s - 200.0),), now_s, is_silent=False),
        AlarmsOfDevice(2, (), None, is_silent=True),
        AlarmsOfDevice(3, (ShownAlarm("close", "notice", "a twin", now_s - 8000.0),), now_s - 130.0, is_silent=True),
    )
    goes_on: dict[str, Any] = {"is_following": True, "goes_on": lambda: True}
    opened(page_of(tmp_path, lost_head(), **goes_on, alarms=lambda: asked))
    browser.until(lambda: "sent" in browser.text("#details"), "the alarms are there")

    assert browser.text(".headline").startswith("alarm on device 1; ")
    shown = browser.text("#details")
    assert "1\topen\thigh\t3 min ago\t<b>a flood</b>\tnow" in shown
    assert "3\tover\tnotice\t2 h ago\ta twin\t2 min ago" in shown
    assert "does not answer, its alarms are not known: device 2" in shown
    assert "does not answer any more: device 3" in shown
    assert "no alarm: device 0" in shown
    move_to(browser, 5.0)
    assert "a flood" not in browser.text("#details"), "nobody knows who had said what then"


def test_the_slider_goes_through_time(browser: Browser, opened: Opened, tmp_path: Path) -> None:
    opened(page_of(tmp_path, lost_head()))
    browser.until_loaded()

    move_to(browser, 2.3)
    assert device(browser, 0) == "Device 0, head of cluster 0, dead, its samples are in the model"
    assert len(browser.find_all(".chain path.broken")) == 1
    move_to(browser, 2.6)
    assert device(browser, 1) == "Device 1, head of cluster 0, training, its samples are in the model"
    assert len(browser.find_all(".chain path:not(.broken)")) == 1
    move_to(browser, 3.6)
    assert device(browser, 0) == "Device 0, member of cluster 0, dead, its samples are not in the model"
    assert "failed: device 0" in browser.text("#details")
    assert "Rounds done\n3" in browser.text(".facts")
    move_to(browser, 4.7)
    assert "coming back" in device(browser, 0)
    move_to(browser, 0.5)
    assert "No round is closed yet." in browser.text("#details")


def test_replay_plays_to_the_end(browser: Browser, opened: Opened, tmp_path: Path) -> None:
    opened(page_of(tmp_path, lost_head()))
    browser.until_loaded()
    browser.run("document.getElementById('speed').value = '10'")
    browser.find("#play").click()
    browser.until(lambda: browser.text("#play") == "Pause", "it plays")
    browser.until(lambda: browser.text("#play") == "Play", "it has played")

    assert browser.text("#clock") == "6.0 of 6.0 s"
    assert "Rounds done\n5" in browser.text(".facts")


def test_the_keyboard_does_what_the_mouse_does(browser: Browser, opened: Opened, tmp_path: Path) -> None:
    opened(page_of(tmp_path, lost_head()))
    browser.until_loaded()
    body = browser.find("body")
    body.send_keys(Keys.HOME)
    body.send_keys(".")
    assert browser.text("#clock").startswith("1.0 of")
    body.send_keys(".")
    body.send_keys(",")
    assert browser.text("#clock").startswith("1.0 of")
    browser.find("[data-device='0']").send_keys(Keys.ARROW_RIGHT)
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)

    assert browser.text(".device h4") == "Device 1"
    stops = browser.run("return document.querySelectorAll('[data-device][tabindex=\"0\"]').length")
    assert stops == 1, "the fleet is one stop of the Tab key"


def test_a_branch_behind_a_cut_is_shown_as_one(browser: Browser, opened: Opened, tmp_path: Path) -> None:
    opened(page_of(tmp_path, cut_in_two()))
    browser.until_loaded()

    assert "3 of 4 devices are in the model of round 2, with 300 samples." in browser.text("#details")
    assert "each with a model of its own: device 3" in browser.text("#details")
    assert device(browser, 3) == "Device 3, head of cluster 1, cut off, it trains another model"
    assert "device 3 cut off from devices 0, 1 and 2" in browser.text(".log")


def test_bytes_of_real_devices_are_counted_as_they_tell(browser: Browser, opened: Opened, tmp_path: Path) -> None:
    real_devices(tmp_path / "real")
    opened(Page([RunReader(tmp_path / "real")]))
    browser.until_loaded()
    before = browser.text("#details")
    write(tmp_path / "real", collected())
    opened(Page([RunReader(tmp_path / "real")]))
    browser.until_loaded()
    after = browser.text("#details")

    assert "Round 0 moved 2.00 kB of models" in before
    assert "Small messages besides: 5, 100 B." in before
    assert "come when the run is over" in before
    assert "broadcast (model sent once for all)\t2\t2.00 kB\t2" in after
    assert "come when the run is over" not in after


def test_text_of_records_is_never_markup(browser: Browser, opened: Opened, tmp_path: Path) -> None:
    evil = "<img src=x onerror=document.title='hacked'><script>document.title='hacked'</script>"
    story = lost_head()
    story[0] = msgspec.structs.replace(story[0], data=evil)
    story[4] = msgspec.structs.replace(story[4], what=f"died {evil}")
    story[6] = msgspec.structs.replace(story[6], missing={"0": evil})
    folder = write(tmp_path / "<b>run<b>", story[:7])
    opened(Page([RunReader(folder)]))
    browser.until_loaded()

    assert evil in browser.text(".facts")
    assert evil in browser.text("#details")
    assert browser.text(".name") == f"tol-fl on {evil} (<b>run<b>)"
    assert browser.find_all("main img, main script, main b") == []
    assert browser.driver.title == f"tol-fl on {evil} (<b>run<b>) · tolfl"


def test_runs_stand_side_by_side(browser: Browser, opened: Opened, tmp_path: Path) -> None:
    opened(page_of(tmp_path, lost_head(), cut_in_two()))
    browser.until_loaded()
    move_to(browser, 3.6)

    left, right = (one.rect for one in browser.find_all(".fleet-card"))
    assert (left["y"], left["x"] < right["x"]) == (right["y"], True)
    assert "dead" in device(browser, 0, run=0)
    assert "training" in device(browser, 0, run=1)
    assert "run-0: 4.00 in round 0" in str(browser.find("#loss").get_attribute("aria-label"))


def test_five_hundred_devices_move_smoothly(browser: Browser, opened: Opened, tmp_path: Path) -> None:
    opened(page_of(tmp_path, big_run()))
    browser.until_loaded()
    assert len(browser.find_all("[data-device]")) == 500
    move_to(browser, 2.8)
    broken = browser.find_all(".chain path.broken")
    took_over = device(browser, 26)
    durations = sorted(browser.run_module(MOVED, seconds) for seconds in range(5, 95, 10))

    assert took_over == "Device 26, head of cluster 1, training, its samples are in the model"
    assert broken == []
    assert durations[len(durations) // 2] < 300.0, "milliseconds for a moment, the median"
    places = browser.run(
        "const bodies = [...document.querySelectorAll('[data-device] .body')];"
        "return bodies.map((one) => one.getBoundingClientRect().toJSON());"
    )
    assert len({(round(place["x"]), round(place["y"])) for place in places}) == 500, "nobody hides another"


SHAPES = [[1], [2] * 5, [10], [1] * 10, [3, 7, 1], [500], [1] * 500, [25] * 20, [400, *[1] * 100]]


@pytest.mark.parametrize("width", [300, 1200])
def test_fleets_of_every_shape_find_room(browser: Browser, opened: Opened, tmp_path: Path, width: int) -> None:
    opened(page_of(tmp_path, lost_head()))
    for shape in SHAPES:
        firsts = [sum(shape[:number]) for number in range(len(shape))]
        clusters = [list(range(first, first + size)) for first, size in zip(firsts, shape, strict=True)]
        script = """
            const { place } = await import("/assets/fleet.js");
            const { places, radius, height } = place(...given.slice(0, 3));
            return { places: [...places.values()], radius, height };
        """
        laid = browser.run_module(script, clusters, width, 460)

        places, radius = np.array(laid["places"]), laid["radius"]
        assert len(places) == sum(shape)
        assert places.min() >= radius
        assert places[:, 0].max() <= width - radius
        assert places[:, 1].max() <= laid["height"] - radius
        assert laid["height"] <= 461
        distances = np.linalg.norm(places[:, None] - places[None], axis=2) + np.eye(len(places)) * width
        assert distances.min() >= 2 * radius, f"{shape[:5]}: nobody hides another"


#: Moves the slider and answers with the milliseconds until the page has drawn the moment.
MOVED = """
    const start = performance.now();
    const slider = document.getElementById("time");
    slider.value = given[0] / 101;
    slider.dispatchEvent(new Event("input"));
    await new Promise((ready) => requestAnimationFrame(() => requestAnimationFrame(ready)));
    return performance.now() - start;
"""


# -- everybody can use it ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (400, "dark"),
        (1280, "light"),
        pytest.param(400, "light", marks=pytest.mark.slow),
        pytest.param(1280, "dark", marks=pytest.mark.slow),
    ],
)
def test_the_page_is_accessible(browser: Browser, opened: Opened, tmp_path: Path, width: int, scheme: str) -> None:
    browser.prefer(prefers_color_scheme=scheme)
    opened(page_of(tmp_path, lost_head(), obey=Noted().obey, token=TOKEN), width, f"#token={TOKEN}")
    browser.until_loaded()
    move_to(browser, 2.3)
    browser.find("[data-device='0']").send_keys(Keys.ENTER)

    assert serious_findings(browser) == []
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth"), "nothing hangs over the edge"


def test_the_theme_can_be_chosen_and_is_kept(browser: Browser, opened: Opened, tmp_path: Path) -> None:
    def background() -> str:
        return str(browser.run("return getComputedStyle(document.body).backgroundColor"))

    opened(page_of(tmp_path, lost_head()))
    browser.until_loaded()
    light = background()
    browser.find("#theme").click()
    assert (browser.text("#theme"), background()) == ("Theme: light", light)
    browser.find("#theme").click()
    dark = background()
    browser.driver.refresh()
    browser.until_loaded()

    assert browser.text("#theme") == "Theme: dark"
    assert background() == dark != light


# -- commands ------------------------------------------------------------------------------------------------------


def test_a_click_sends_a_command_and_the_token_leaves_the_address(
    browser: Browser, opened: Opened, tmp_path: Path
) -> None:
    controls = Noted()
    page = page_of(tmp_path, lost_head()[:4], obey=controls.obey, token=TOKEN, is_following=True)
    address = opened(page, fragment=f"#token={TOKEN}")
    browser.until(lambda: "Rounds done\n2" in browser.text(".facts"), "two rounds")
    assert browser.driver.current_url == address
    browser.find("[data-device='2']").click()
    browser.find("[data-action=kill]").click()
    browser.until(lambda: browser.text("#status") == "device 2: kill done", "it is done")
    assert controls.commands == [PageCommand("kill", 2)]
    write(tmp_path / "run-0", [*lost_head()[:4], FailureHappened(time_s=2.2, device=2, round=2, what="died (x)")])
    browser.until(lambda: "dead" in device(browser, 2), "its death is shown")

    assert [one.text for one in browser.find_all("[data-action]:not([hidden])")] == ["Revive"]
    move_to(browser, 1.0)
    assert not browser.find("[data-action=kill]").is_enabled(), "the past cannot be struck"
    browser.find("#live").click()
    browser.until(lambda: browser.find("[data-action=revive]").is_enabled(), "back in the present")


def test_without_the_token_nobody_is_killed(browser: Browser, opened: Opened, tmp_path: Path) -> None:
    controls = Noted()
    opened(page_of(tmp_path, lost_head()[:4], obey=controls.obey, token=TOKEN, is_following=True))
    browser.until(lambda: "Rounds done\n2" in browser.text(".facts"), "two rounds")
    browser.find("[data-device='2']").click()
    answer = browser.run_module(
        "const sent = await fetch('/api/command', {method: 'POST', body: '{\"action\":\"kill\",\"device\":2}',"
        "headers: {'Content-Type': 'application/json', 'X-Tolfl-Token': 'guess'}}); return sent.status;"
    )

    assert browser.find_all("[data-action]:not([hidden])") == []
    assert "open the address with the token" in browser.text(".device")
    assert (answer, controls.commands) == (403, [])
    assert any("403" in words for words in browser.complaints()), "the browser says that it was refused"
