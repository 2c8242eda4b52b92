"""Commands from the page to a fleet on this machine, done by the loop that watches the fleet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, assert_never

import typer

from tolfl.core.errors import SpecError, TolFLError
from tolfl.core.records import FailureHappened
from tolfl.net.client import command as tell
from tolfl.net.client import credentials_for
from tolfl.net.launcher import Launcher
from tolfl.net.wire import CommandRequest
from tolfl.runs.run_reader import RunReader

if TYPE_CHECKING:
    from tolfl.dashboard import PageCommand  # an extra: whoever has not installed it gets a sentence, not a traceback

#: A device that does not answer a cut takes two seconds; a few clicks may wait before this one.
_PATIENCE_S = 20.0


class FleetControls:
    """Takes commands from any thread; `work` does them in the launcher's own, so that nobody else touches it."""

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
            done.result(_PATIENCE_S)
        except TimeoutError:
            raise TolFLError("the run is over, or its launcher has much to do; try again") from None

    def work(self) -> None:
        """Do what was asked since the last time."""
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
        """Refuse everything from now on."""
        self._is_over = True
        self.work()

    def _do(self, command: PageCommand) -> None:
        launcher, device = self._launcher, command.device
        if self._is_over:
            raise TolFLError("the run is over")
        if not 0 <= device < len(launcher.processes):
            raise TolFLError(f"there is no device {device}")
        match command.action:
            case "kill":
                launcher.kill(device)
            case "freeze":
                launcher.freeze(device)
            case "thaw":
                launcher.thaw(device)
            case "revive":
                launcher.revive(device)
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
        tell(launcher.address_of(device), request, credentials_for(str(launcher.out)))
        rest = ",".join(str(one.device) for one in launcher.processes if one.device != device)
        line = FailureHappened(time_s=launcher.now_s, round=launcher.view.rounds_done, what=f"{what} {device} | {rest}")
        launcher.note(line)


@contextmanager
def live_page(launcher: Launcher) -> Iterator[Callable[[], None]]:
    """Show a fleet as a page on this machine while it trains; yield what does the page's commands."""
    import secrets

    try:
        from tolfl.dashboard import Page, address_of, listen, served
    except ImportError:
        raise SpecError("--dashboard needs starlette and uvicorn; install tolfl[dashboard]") from None

    controls, token = FleetControls(launcher), secrets.token_urlsafe(24)
    page = Page([RunReader(launcher.out)], is_following=True, obey=controls.obey, token=token)
    listening = listen("127.0.0.1", 0)
    # Behind the `#`, it stays in the browser: no log and no other page gets to see it.
    typer.echo(f"tolfl: watch the fleet, and kill devices: {address_of(listening)}#token={token}", err=True)
    with served(page, listening):
        try:
            yield controls.work
        finally:
            controls.close()
