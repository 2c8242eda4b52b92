"""A real browser: Chromium without a window, and what it complained of or asked for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="needs chromium and chromium-driver (Debian packages)"
)
#: Nothing takes that long, not even on a machine that has much else to do.
PATIENCE_S = 60.0
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-default-apps",
    "--disable-dev-shm-usage",
)  # fmt: skip


class Browser:
    """A window on one page."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver
        self._network: list[dict[str, Any]] = []

    def open(self, address: str, width: int = 1280, height: int = 1000) -> None:
        self.resize(width, height)
        self.driver.get(address)

    def resize(self, width: int, height: int = 1000) -> None:
        """Set the size of the page itself; a window cannot be narrower than 500 pixels."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, **features: str) -> None:
        """Set what a person asked the system for, such as `prefers_color_scheme="dark"`."""
        wishes = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wishes})

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def run_module(self, body: str, *arguments: object) -> Any:
        """Run an asynchronous function of the page; an error in it is an error here."""
        wrapped = (
            "const done = arguments[arguments.length - 1];"
            f"(async (...given) => {{ {body} }})(...arguments)"
            ".then((value) => done({value}), (error) => done({error: String(error.stack)}));"
        )
        answer = self.driver.execute_async_script(wrapped, *arguments)
        assert "error" not in answer, answer["error"]
        return answer.get("value")

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def find_all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str = "body") -> str:
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def until(self, is_so: Callable[[], object], what: str) -> None:
        """Wait until the page shows something."""
        WebDriverWait(self.driver, PATIENCE_S, poll_frequency=0.05).until(lambda _: is_so(), what)

    def until_long(self, is_so: Callable[[], object], what: str) -> None:
        """Wait for processes to start, which takes its time on a busy machine."""
        WebDriverWait(self.driver, 3 * PATIENCE_S, poll_frequency=0.2).until(lambda _: is_so(), what)

    def until_loaded(self) -> None:
        """Wait until a recorded run is there from its first to its last line, and drawn."""
        self.until(lambda: self.run("return document.body.dataset.ended"), "the run is loaded")
        self.run_module("await new Promise((ready) => requestAnimationFrame(() => requestAnimationFrame(ready)));")

    # -- what it did ----------------------------------------------------------------------------------------------

    def complaints(self) -> list[str]:
        """Return what stands in the console, without what is not worth a word."""
        entries = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in entries if entry["level"] in ("SEVERE", "WARNING")]

    def requested(self) -> list[str]:
        """Return every address that a page asked for since the browser started; its own new tab is no page."""
        entries = self.driver.get_log("performance")  # type: ignore[no-untyped-call]
        self._network += [json.loads(entry["message"])["message"] for entry in entries]
        sent = [event for event in self._network if event["method"] == "Network.requestWillBeSent"]
        asked = [event["params"] for event in sent if not event["params"]["documentURL"].startswith("chrome://")]
        return [str(one["request"]["url"]) for one in asked]

    def screenshot(self, path: Path, is_whole: bool = True) -> None:
        """Keep a picture of the page, also of what is below the edge of the window."""
        if is_whole:
            width, height = self.run("return [innerWidth, document.documentElement.scrollHeight]")
            self.resize(width, height)
            self.run_module("await new Promise((ready) => requestAnimationFrame(() => requestAnimationFrame(ready)));")
        self.driver.save_screenshot(str(path))


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """Start a browser with an empty profile."""
    options = ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=Service(executable_path=str(DRIVER)))
    driver.command_executor.client_config.timeout = int(PATIENCE_S)  # type: ignore[union-attr]
    driver.set_script_timeout(PATIENCE_S)
    try:
        yield Browser(driver)
    finally:
        driver.quit()
