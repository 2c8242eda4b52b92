"""A fleet on this machine while it trains: its table on the terminal, its page, and the commands of that page."""

from __future__ import annotations

import secrets
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, assert_never

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tolfl.cli.event_lines import EventLines
from tolfl.cli.output import notify, table_of
from tolfl.cli.progress import interruptions
from tolfl.core.errors import TolFLError
from tolfl.core.records import FailureHappened, how_far
from tolfl.learners.layouts import layout
from tolfl.net import client
from tolfl.net.collect import RoundScorer
from tolfl.net.launcher import FleetView, Launcher, Process
from tolfl.net.node_config import ENDED
from tolfl.net.wire import CommandRequest
from tolfl.runs.descriptions import describe, tone
from tolfl.runs.run_reader import RunReader

if TYPE_CHECKING:
    from tolfl.dashboard import PageCommand  # an extra: without it the user gets a sentence, not a traceback

_N_NEWS = 6
#: A device that does not answer a cut takes two seconds; a few clicks may wait before this one.
_COMMAND_TIMEOUT_S = 20.0


def watch_fleet(launcher: Launcher, on_view: Callable[[], None]) -> bool:
    """Start the devices and follow them until they have ended; return False after Ctrl-C.

    `on_view` is called every time the fleet was looked at. No device process is left behind in any case.
    """
    scorer = RoundScorer(launcher.spec, launcher.data, launcher.out / "devices", lambda: launcher.now_s)
    with interruptions(signal.SIGTERM, is_patient=True) as was_interrupted:
        try:
            launcher.start()
            with live_table(launcher) as refresh:
                for view in launcher:
                    refresh(view)
                    on_view()
                    for line in scorer.look():
                        launcher.note(line)
                    if was_interrupted():
                        return False
        finally:
            launcher.stop()
        for line in scorer.finish():
            launcher.note(line)
    return True


# -- on the terminal --------------------------------------------------------------------------------------------


@contextmanager
def live_table(launcher: Launcher) -> Iterator[Callable[[FleetView], None]]:
    """Draw the fleet while it trains; where nothing can be drawn, print a line for each important event."""
    if not sys.stderr.isatty() or Console(stderr=True).is_dumb_terminal:
        lines = EventLines(lambda record: f"{record.time_s:7.1f} s ")

        def print_new(view: FleetView) -> None:
            for record in view.news:
                lines.print_event(record)

        yield print_new
        return
    clusters = layout(launcher.spec).cluster_of
    news: deque[str] = deque(maxlen=_N_NEWS)
    with Live(console=Console(stderr=True), refresh_per_second=4, transient=True) as live:

        def refresh(view: FleetView) -> None:
            told = [line for line in view.news if tone(line) in {"good", "bad"}]
            news.extend(f"{line.time_s:7.1f} s  {describe(line, view.stages)}" for line in told)
            live.update(_picture(view, clusters, news))

        yield refresh


def _picture(view: FleetView, clusters: dict[int, int], news: deque[str]) -> Group:
    loss = "" if view.loss is None else f", loss {view.loss:.4g}"
    rows = [
        (str(one.device), str(clusters[one.device]), _role(one, view), _state(one), str(one.pid or ""))
        for one in view.processes
    ]
    table = table_of(["device", "cluster", "role", "state", "pid"], rows)
    lines = [Text(line, style="yellow") for line in news]
    far = how_far(view.stages, view.rounds_done, view.rounds)
    return Group(Text(f"{far}{loss}", style="bold"), table, *lines)


def _role(process: Process, view: FleetView) -> str:
    if not process.is_running or process.device not in view.heads:
        return "member" if process.is_running else ""
    return "head, closes the rounds" if process.device == view.heads[-1] else "head"


def _state(process: Process) -> Text:
    if process.is_running:
        return Text("frozen", style="cyan") if process.is_frozen else Text("running", style="green")
    if process.process is None:
        return Text("starts")
    return Text(process.ended or "done") if process.exit_code in ENDED else Text("dead", style="red")


# -- on the page ------------------------------------------------------------------------------------------------


class FleetControls:
    """Takes commands from any thread; `work` executes them in the launcher's own thread."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._waiting: SimpleQueue[tuple[PageCommand, Future[None]]] = SimpleQueue()
        self._is_over = False

    def obey(self, command: PageCommand) -> None:
        """Wait until the command is done."""
        if self._is_over:
            raise TolFLError("the run is over")
        done: Future[None] = Future()
        self._waiting.put((command, done))
        try:
            done.result(_COMMAND_TIMEOUT_S)
        except TimeoutError:
            raise TolFLError("the run is over, or its launcher is busy; try again") from None

    def work(self) -> None:
        """Execute the commands since the last call."""
        while True:
            try:
                command, done = self._waiting.get_nowait()
            except Empty:
                return
            try:
                self._do(command)
            except (TolFLError, OSError) as error:
                done.set_exception(error if isinstance(error, TolFLError) else TolFLError(str(error)))
            else:
                done.set_result(None)

    def close(self) -> None:
        """Refuse all further commands."""
        self._is_over = True
        self.work()

    def _do(self, command: PageCommand) -> None:
        launcher, device = self._launcher, command.device
        if self._is_over:
            raise TolFLError("the run is over")
        if not 0 <= device < len(launcher.processes):
            raise TolFLError(f"there is no device {device}")
        match command.action:
            case "kill" | "freeze" | "thaw" | "revive":
                getattr(launcher, command.action)(device)
            case "cut":
                self._cut(device, [one.device for one in launcher.processes if one.device != device], "cut")
            case "heal":
                self._cut(device, [], "healed")
            case _:
                assert_never(command.action)

    def _cut(self, device: int, others: list[int], what: str) -> None:
        """Cut a device off all others, or end that."""
        launcher = self._launcher
        if not launcher.processes[device].is_running:
            raise TolFLError(f"device {device} is not running")
        request = CommandRequest(token=launcher.token, cut=tuple(others))
        client.command(launcher.address_of(device), request, client.credentials_for(str(launcher.out)))
        rest = ",".join(str(one.device) for one in launcher.processes if one.device != device)
        line = FailureHappened(time_s=launcher.now_s, round=launcher.view.rounds_done, what=f"{what} {device} | {rest}")
        launcher.note(line)


@contextmanager
def live_page(launcher: Launcher) -> Iterator[Callable[[], None]]:
    """Show a fleet as a page on this machine while it trains; yield what does the page's commands."""
    from tolfl.dashboard import Page, address_of, listen, served

    controls, token = FleetControls(launcher), secrets.token_urlsafe(24)
    page = Page([RunReader(launcher.out)], is_following=True, obey=controls.obey, token=token)
    listening = listen("127.0.0.1", 0)
    # Behind the `#`, it stays in the browser: no log and no other page receives it.
    notify(f"watch the fleet, and kill devices: {address_of(listening)}#token={token}")
    with served(page, listening):
        try:
            yield controls.work
        finally:
            controls.close()
