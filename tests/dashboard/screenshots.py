"""The pictures of the page in the documentation, made anew: python -m tests.dashboard.screenshots [FOLDER]."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, cast

from PIL import Image

from tests.dashboard.browser import CHROMIUM, DRIVER, Browser, chromium
from tolfl.core.spec import RunSpec
from tolfl.dashboard import Page, address_of, listen, served
from tolfl.runs.run_folder import readers_of
from tolfl.sim.simulation import run

FIGURES = Path(__file__).resolve().parents[2] / "docs" / "figures"
RUNS = {
    "tol-fl": RunSpec(data="blobs", clusters=5, rounds=40, fail="server@15;device:5@20-28", evaluate_every=2),
    "fl": RunSpec(scheme="fl", data="blobs", clusters=1, rounds=40, fail="server@15", evaluate_every=2),
    "many": RunSpec(data="blobs", devices=500, clusters=20, rounds=20, fail="device:0,40@5;cluster:7@8"),
}


@dataclass(frozen=True)
class Picture:
    """One picture: which runs, how wide, in which colours, after which share of the time."""

    name: str
    runs: Sequence[str]
    width: int
    scheme: str
    share: float
    device: int


PICTURES = [
    Picture("dashboard-wide", ["tol-fl"], 1280, "light", 0.62, 0),
    Picture("dashboard-narrow", ["tol-fl"], 400, "dark", 0.62, 0),
    Picture("dashboard-two-runs", ["tol-fl", "fl"], 1280, "light", 1.0, 0),
    Picture("dashboard-500-devices", ["many"], 1280, "dark", 0.7, 40),
]


def take(browser: Browser, picture: Picture, runs: Path, folder: Path) -> None:
    readers = [reader for name in picture.runs for reader in readers_of(runs / name, is_following=False)]
    listening = listen("127.0.0.1", 0)
    with served(Page(readers), listening):
        browser.prefer(prefers_color_scheme=picture.scheme)
        browser.driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
        browser.open(address_of(listening), picture.width)
        browser.until_loaded()
        script = """
            const slider = document.getElementById("time");
            slider.value = given[0];
            slider.dispatchEvent(new Event("input"));
            document.querySelector(`[data-device='${given[1]}']`).dispatchEvent(new MouseEvent("click"));
            document.activeElement.blur();
        """
        browser.run_module(script, picture.share, picture.device)
        browser.screenshot(folder / f"{picture.name}.png")


#: A run on real devices, long enough to be filmed.
FILMED = (
    "up --data blobs --devices 10 --clusters 5 --rounds 2000 --samples-per-device 2000 --evaluate-every 20 --dashboard"
)
_WIDTH, _HEIGHT, _SHOWN_WIDTH = 1180, 940, 860
#: Colours of style.css for what is bad, good and on its way, and how high a strip of each is beside a frame.
_RARE, _STRIP = ("#b3243a", "#1b7340", "#b35c00", "#d05f70"), 20
_FRAME_S, _N_BEFORE, _N_AFTER = 0.35, 8, 20


def film(browser: Browser, scratch: Path, target: Path) -> None:
    """Film a real fleet: a click kills the head of the first cluster, a member takes over, training goes on."""
    command = [sys.executable, "-m", "tolfl", *FILMED.split(), "--out", str(scratch / "filmed")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as fleet:
        try:
            told = next(line for line in cast("TextIO", fleet.stderr) if "http://" in line)
            browser.prefer(prefers_color_scheme="light")
            browser.driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
            browser.open(told[told.index("http://") :].strip(), _WIDTH, _HEIGHT)
            browser.until(lambda: "10 of 10 devices train" in browser.text(), "they train")
            browser.run_module("document.querySelector(`[data-device='0']`).dispatchEvent(new MouseEvent('click'));")
            frames = [frame_of(browser) for _ in range(_N_BEFORE)]
            browser.find("[data-action=kill]").click()
            frames += [frame_of(browser) for _ in range(_N_AFTER)]
            assert "took over: device 1 for 0 in cluster 0 after" in browser.text(".headline"), browser.text(
                ".headline"
            )
        finally:
            fleet.send_signal(signal.SIGINT)
            cast("TextIO", fleet.stderr).read()
    palette = palette_of(frames[-1])
    pictures = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    lasts_ms = [round(1000 * _FRAME_S)] * (len(frames) - 1) + [2500]
    pictures[0].save(target, save_all=True, append_images=pictures[1:], duration=lasts_ms, loop=0, optimize=True)


def palette_of(frame: Image.Image) -> Image.Image:
    """Return the colours of a frame, those among them of which there is little: a cross, dots, a dashed line."""
    sample = Image.new("RGB", (frame.width, frame.height + _STRIP * len(_RARE)))
    sample.paste(frame)
    for number, colour in enumerate(_RARE):
        sample.paste(colour, (0, frame.height + _STRIP * number, frame.width, frame.height + _STRIP * (number + 1)))
    return sample.quantize(96, dither=Image.Dither.NONE)


def frame_of(browser: Browser) -> Image.Image:
    """Return what the page shows, a moment after the last time."""
    time.sleep(_FRAME_S)
    shown = Image.open(io.BytesIO(browser.driver.get_screenshot_as_png())).convert("RGB")
    return shown.resize((_SHOWN_WIDTH, _SHOWN_WIDTH * shown.height // shown.width), Image.Resampling.LANCZOS)


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FIGURES
    if CHROMIUM is None or DRIVER is None:
        sys.exit("the pictures need chromium and chromium-driver (Debian packages)")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        for name, spec in RUNS.items():
            run(spec, out=Path(scratch) / name)
        with chromium(Path(scratch) / "profile") as browser:
            for picture in PICTURES:
                take(browser, picture, Path(scratch), folder)
                print(folder / f"{picture.name}.png")
            film(browser, Path(scratch), folder / "server-killed.gif")
            print(folder / "server-killed.gif")


if __name__ == "__main__":
    main()
