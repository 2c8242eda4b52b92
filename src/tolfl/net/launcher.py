"""`tolfl up`: a fleet of real processes on this machine. A convenience, not a hidden server: no round needs it.

The launcher starts the devices, watches the lines that they write, brings back those that a plan says return, and
scores closed models beside the training. Killed or frozen, it ends nothing: the devices go on and end by themselves,
and wait in vain at most for those whom only it would have brought back.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tolfl.core.errors import RunDirectoryError, TolFLError
from tolfl.core.failures import Failure, FailurePlan
from tolfl.core.records import (
    AnyRecord,
    FailureHappened,
    RoundClosed,
    RunEnded,
    RunStarted,
    TakenOver,
    decode_records,
    encode_records,
)
from tolfl.core.spec import RunSpec, Timing
from tolfl.datasets import FederatedDataset
from tolfl.learners.layouts import failure_plan, wiring
from tolfl.learners.registry import BUILT_IN, learner_of, located, what_of
from tolfl.net.addresses import free_ports, is_listening
from tolfl.net.client import command, credentials_for
from tolfl.net.enrolment import FLEET, Authority
from tolfl.net.enrolment import LAUNCHER as OPERATOR_NAME
from tolfl.net.node_config import ENDED, NodeConfig
from tolfl.net.prepare import check_networked
from tolfl.net.record_log import clock_since
from tolfl.net.storage import has_round, planned_deaths, read_round, round_path
from tolfl.net.wire import CommandRequest
from tolfl.runs.directory import RunDirectory, write_file
from tolfl.runs.outcome import data_for, fleet_of
from tolfl.runs.run_reader import LAUNCHER, RECORDS

_POLL_S = 0.05
_LEAVING_S = 5.0
#: How long devices wait for each other: on one machine they start as fast as its cores load their libraries.
_START_S, _START_S_PER_DEVICE = 60.0, 6.0
#: After so many times `silence_detection_s` without any progress too few devices are left for ever.
_WAITED_PERIODS = 10


@dataclass
class Process:
    """One device as the launcher sees it."""

    device: int
    folder: Path
    process: subprocess.Popen[bytes] | None = None
    is_frozen: bool = False
    ended: str = ""  #: why it ended by itself, as it wrote
    exit_code: int | None = None
    n_read: int = 0  #: bytes of its records that were read
    has_begun: bool = False  #: it has found the others, or waited long enough
    has_recorded_its_death: bool = False  #: it died as planned, and wrote so itself

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self.process is not None and self.exit_code is None

    @property
    def pid(self) -> int | None:
        """The process id, while there is a process."""
        return self.process.pid if self.process is not None and self.is_running else None


@dataclass
class FleetView:
    """What is known of the fleet at the moment, for whoever draws it."""

    rounds_done: int = 0
    rounds: int = 0
    loss: float | None = None
    stages: tuple[tuple[str, int], ...] = ()  #: name and number of rounds of each, where the learner has any
    heads: tuple[int, ...] = ()
    included: tuple[int, ...] = ()
    news: list[AnyRecord] = field(default_factory=list)  #: lines since the view was last shown
    processes: Sequence[Process] = ()


class Launcher:
    """Ten or so devices on this machine. Iterate to watch them; what it returns to is `collect`."""

    def __init__(
        self,
        spec: RunSpec,
        out: Path,
        data: FederatedDataset | None = None,
        resume: bool = False,
        is_insecure: bool = False,
    ) -> None:
        self.spec, self.out = check_networked(spec), out
        self.data = data or data_for(spec)
        learner = learner_of(fleet_of(spec, self.data))
        self._min_devices = learner.min_devices
        self.plan = failure_plan(spec, learner.all_stages())
        if resume:
            self.directory = RunDirectory.reopen(out, spec)
        else:
            self.directory = RunDirectory.create(out, spec)
        self.processes = [Process(device, out / "devices" / str(device)) for device in range(spec.devices)]
        self.view = FleetView(rounds=learner.rounds, processes=self.processes)
        self.view.heads = tuple(wiring(spec).heads(range(spec.devices)))
        self._returns = [failure for failure in self.plan.failures if failure.returns_at is not None]
        self._cuts = [(cut.round_index, f"cut {cut.sides}") for cut in self.plan.cuts]
        self._cuts += [(cut.heals_at, f"healed {cut.sides}") for cut in self.plan.cuts if cut.heals_at is not None]
        self.token = secrets.token_hex(16)  #: shows a device that a command comes from its launcher
        self._is_stopping = False
        self._killed: dict[int, tuple[float, int]] = {}  #: by this launcher: when, and how many rounds were done
        self._progressed_s = time.monotonic()
        self._past = Past()
        if not resume:
            self._write_files(is_insecure)
        else:
            self._forget_ends()

    # -- files --------------------------------------------------------------------------------------------------

    def _write_files(self, is_insecure: bool) -> None:
        """Write what each device needs: its samples, its configuration, its certificate, the settled specification."""
        authority = None if is_insecure else Authority.create(self.out / FLEET)
        if authority is not None:
            authority.issue(OPERATOR_NAME, None)
        settled = self.spec.train.settle(self.data.n_features, fleet_of(self.spec, self.data).usual_rows)
        # The usual step is that of the built-in autoencoder; a learner of one's own settles its step by itself.
        lr = settled.lr if what_of(self.spec) in BUILT_IN else self.spec.train.lr
        train = msgspec.structs.replace(self.spec.train, lr=lr, batch_size=settled.batch_size)
        spec = msgspec.structs.replace(self.spec, train=train, learn=self._settled_learn())
        write_file(self.out / "devices", "spec.toml", spec.to_toml().encode())
        addresses = {str(device): f"127.0.0.1:{port}" for device, port in enumerate(free_ports(self.spec.devices))}
        started, wait_s = time.time(), max(_START_S, _START_S_PER_DEVICE * self.spec.devices)
        for process in self.processes:
            config = NodeConfig(
                device=process.device,
                listen=addresses[str(process.device)],
                state=".",
                spec="../spec.toml",
                peers={device: address for device, address in addresses.items() if device != str(process.device)},
                samples="samples.npy",
                start_timeout_s=wait_s,
                start_quiet_s=wait_s,  # the launcher says who is not coming
                keep_models_every=self.spec.evaluate_every,
                token=self.token,
                started_unix=started,
                insecure=is_insecure,
                credentials="" if authority is None else f"../../{FLEET}/devices/device-{process.device}",
            )
            if authority is not None:
                authority.issue(f"device-{process.device}", process.device)
            write_file(process.folder, "node.toml", config.to_toml().encode(), mode=0o600)  # the token is in it
            try:
                np.save(process.folder / "samples.npy", self.data.slice_of(process.device))
                (process.folder / "samples.npy").chmod(0o600)
            except OSError as error:
                raise RunDirectoryError(self.out, f"cannot be written ({error.strerror}); make room") from None
        self._clock = clock_since(started)

    def _settled_learn(self) -> dict[str, Any]:
        """Return what devices learn: with columns, names, the form of tables, and where a learner's file is."""
        learn = dict(self.spec.learn)
        if "what" in learn:
            learn["what"] = located(str(learn["what"]))
        agreed = {"columns": list(self.data.feature_names), "names": list(self.data.names)}
        form = {} if self.data.schema is None else {"schema": self.data.schema.form}
        return {**{what: names for what, names in agreed.items() if names}, **form, **learn}

    def _forget_ends(self) -> None:
        config = NodeConfig.from_file(self.processes[0].folder / "node.toml")
        self._clock, self.token = clock_since(config.started_unix), config.token
        folders = [process.folder for process in self.processes]
        check_nobody_runs(self.out, folders)
        self._past = past_of(folders, self.plan)
        self.view.rounds_done = self._past.rounds_done
        self._returns = [failure for failure in self._returns if not self._is_due(failure)]
        self._cuts = [(at, what) for at, what in self._cuts if at > self._past.rounds_done]
        for process in self.processes:
            records = process.folder / RECORDS
            process.n_read = records.stat().st_size if records.exists() else 0

    @property
    def now_s(self) -> float:
        """Seconds since the run began."""
        return self._clock()

    # -- processes ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start every device; of a run that is resumed those that have not come to their end."""
        for process in self.processes:
            if not self._past.is_over and process.device not in self._past.gone:
                self._spawn(process)

    def _spawn(self, process: Process) -> None:
        absent = ",".join(map(str, sorted(self._past.gone)))
        command = [sys.executable, "-m", "tolfl.net", str(process.folder / "node.toml"), absent]
        with (process.folder / "log.txt").open("ab") as log:
            process.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                start_new_session=True,  # Ctrl-C is for the launcher, which lets the devices leave
            )
        process.exit_code, process.ended = None, ""
        process.is_frozen = process.has_begun = process.has_recorded_its_death = False

    def kill(self, device: int) -> None:
        """Kill a device, as a power cut would."""
        moment = self.now_s, self.view.rounds_done  # noticed later, perhaps after another device has taken over
        self._signal(device, signal.SIGKILL)
        self._killed[device] = moment

    def freeze(self, device: int) -> None:
        """Freeze a device: it holds its connections and sends nothing."""
        self._signal(device, signal.SIGSTOP)
        self.processes[device].is_frozen = True
        self.note(FailureHappened(time_s=self.now_s, device=device, round=self.view.rounds_done, what="frozen"))

    def thaw(self, device: int) -> None:
        """Let a frozen device go on."""
        self._signal(device, signal.SIGCONT)
        self.processes[device].is_frozen = False
        self.note(FailureHappened(time_s=self.now_s, device=device, round=self.view.rounds_done, what="thawed"))

    def revive(self, device: int) -> None:
        """Start a device again: it comes back in its next incarnation."""
        process = self.processes[device]
        if process.is_running:
            raise TolFLError(f"device {device} is running already")
        self.note(FailureHappened(time_s=self.now_s, device=device, round=self.view.rounds_done, what="came back"))
        self._spawn(process)

    @property
    def survivors(self) -> list[int]:
        """The devices that are there in the end."""
        ended = [process for process in self.processes if process.exit_code in ENDED]
        stayed = [process for process in ended if process.ended != "left" or not self._is_over()]
        return sorted({*(process.device for process in stayed), *self._past.ended})

    def address_of(self, device: int) -> str:
        """Return where a device listens."""
        return NodeConfig.from_file(self.processes[device].folder / "node.toml").listen

    def _signal(self, device: int, number: signal.Signals) -> None:
        pid = self.processes[device].pid
        if pid is None:
            raise TolFLError(f"device {device} is not running")
        os.kill(pid, number)

    def stop(self) -> None:
        """Let every device leave, then make sure that none is left."""
        self._is_stopping = True
        for process in self.processes:
            if process.process is not None and process.is_running:
                process.process.send_signal(signal.SIGCONT)
                process.process.terminate()
        deadline = time.monotonic() + _LEAVING_S
        for process in self.processes:
            if process.process is not None and process.is_running:
                try:
                    process.process.wait(max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    process.process.kill()
                    process.process.wait()
                process.exit_code = process.process.returncode

    # -- watching -----------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[FleetView]:
        """Watch until every device has ended; ten or so looks a second."""
        while True:
            self.look()
            yield self.view
            self.view.news = []
            if not any(process.is_running for process in self.processes):
                return
            self._bring_back()
            self._tell_of_cuts()
            if self._is_below_quorum() or self._are_latecomers():
                self.stop()
            time.sleep(_POLL_S)

    def look(self) -> None:
        """Read the new lines of every device, and see who has died."""
        for process in self.processes:
            # Looked at first: of a process that has ended, all lines are there.
            code = process.process.poll() if process.process is not None and process.is_running else None
            for record in self._new_lines(process):
                self._take_in(process, record)
            if code is not None:
                self._note_exit(process, code)

    def _note_exit(self, process: Process, code: int) -> None:
        process.exit_code = code
        is_death = code not in ENDED
        if is_death and not self._is_stopping:
            self._tell_of_absence(process.device)
        if is_death and not process.has_recorded_its_death and not self._is_stopping:
            how = f"killed by signal {-code}" if code < 0 else f"failed: {_last_line(process.folder / 'log.txt')}"
            time_s, n_done = self._killed.pop(process.device, (self.now_s, self.view.rounds_done))
            self.note(FailureHappened(time_s=time_s, device=process.device, round=n_done, what=f"died ({how})"))

    def _tell_of_absence(self, device: int) -> None:
        """Tell the others that a device has exited: nobody waits for it before the start or after the end."""
        request = CommandRequest(token=self.token, absent=(device,))
        for process in self.processes:
            if process.is_running and not process.is_frozen:
                with suppress(TolFLError):  # it may not listen yet, and then finds out by waiting
                    command(self.address_of(process.device), request, credentials_for(str(self.out)))

    def _new_lines(self, process: Process) -> Iterator[AnyRecord]:
        path = process.folder / RECORDS
        try:
            with path.open("rb") as file:
                file.seek(process.n_read)
                content = file.read()
        except FileNotFoundError:
            return
        whole = content[: content.rfind(b"\n") + 1]
        process.n_read += len(whole)
        yield from decode_records(whole.splitlines(), source=str(path))

    def _take_in(self, process: Process, record: AnyRecord) -> None:
        view = self.view
        match record:
            case RoundClosed():
                self._progressed_s = time.monotonic()
                n_done = (record.round or 0) + 1
                if n_done >= view.rounds_done:
                    view.rounds_done, view.loss = n_done, record.loss
                    view.heads, view.included = record.heads, record.included
            case FailureHappened() if record.device == process.device:
                process.has_recorded_its_death = True
            case TakenOver():
                view.heads = tuple(sorted({*view.heads, process.device} - {record.previous}))
            case RunStarted():
                process.has_begun, view.stages = True, record.stages
                view.rounds = sum(n_rounds for _, n_rounds in record.stages) or view.rounds
            case RunEnded():
                process.ended = record.reason
        view.news.append(record)

    def note(self, record: AnyRecord) -> None:
        """Write down what only the launcher knows, or whoever watches beside it, such as a score."""
        self.view.news.append(record)
        try:
            with (self.out / LAUNCHER).open("ab") as file:
                file.write(encode_records([record]))
        except OSError as error:
            raise RunDirectoryError(self.out, f"cannot be written ({error.strerror}); make room") from None

    # -- plans --------------------------------------------------------------------------------------------------

    def _bring_back(self) -> None:
        for failure in list(self._returns):
            if self._is_due(failure) and not self.processes[failure.device].is_running:
                self._returns.remove(failure)
                if not self._is_over():
                    self.revive(failure.device)

    def _tell_of_cuts(self) -> None:
        """Write down the cuts of the plan: devices make them themselves, and see missed heartbeats only."""
        for at, what in [planned for planned in self._cuts if planned[0] <= self.view.rounds_done]:
            self._cuts.remove((at, what))
            self.note(FailureHappened(time_s=self.now_s, round=at, what=what))

    def _is_due(self, failure: Failure) -> bool:
        return failure.returns_at is not None and failure.returns_at <= self.view.rounds_done

    def _is_over(self) -> bool:
        return any(process.ended == "over" for process in self.processes)

    def _are_latecomers(self) -> bool:
        """Return whether all that run came back when the run was over: they would wait for nobody, and train alone."""
        running = [process for process in self.processes if process.is_running]
        return self._is_over() and not any(process.has_begun for process in running) and not self._is_stopping

    def _is_below_quorum(self) -> bool:
        """Return whether too few devices are left to train, and nobody will come back."""
        wait_s = _WAITED_PERIODS * Timing.preset(self.spec.timing).silence_detection_s
        n_running = sum(process.is_running for process in self.processes)
        is_stuck = n_running < max(self.spec.min_devices, self._min_devices) and not self._is_stopping
        return is_stuck and time.monotonic() - self._progressed_s > wait_s


def _last_line(path: Path) -> str:
    """Return the last line of a device: its own message, if a library warned of something while it ended."""
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines() if path.exists() else []
    own = [line.removeprefix("tolfl: ") for line in lines[-3:] if line.startswith("tolfl: ")]
    return (own or lines or ["it printed nothing"])[-1]


@dataclass(frozen=True)
class Past:
    """What the folders of the devices record of a run."""

    rounds_done: int = 0
    ended: tuple[int, ...] = ()  #: who has come to an end, with the last model
    is_over: bool = False  #: there is nothing left to train
    gone: frozenset[int] = frozenset()  #: who must not be started: dead as planned, or out with a dead head


def past_of(folders: Sequence[Path], plan: FailurePlan) -> Past:
    """Read what devices left in their folders when a run was interrupted."""
    kept = {d: read_round(round_path(folder)) for d, folder in enumerate(folders) if has_round(folder)}
    rounds_done = max((record.version.round for record, _ in kept.values()), default=0)
    dead = {d for d, folder in enumerate(folders) if _is_planned_dead(d, folder, plan, rounds_done)}
    over = {d for d, (_, stored) in kept.items() if stored.stopped == "over"} - dead
    dropped = {d for d, (_, stored) in kept.items() if stored.stopped == "dropped"} - dead
    left_to_run = set(range(len(folders))) - dead - dropped
    return Past(rounds_done, tuple(sorted(over | dropped)), bool(over) or not left_to_run, frozenset(dead | dropped))


def _is_planned_dead(device: int, folder: Path, plan: FailurePlan, rounds_done: int) -> bool:
    n_deaths = planned_deaths(folder)
    if not n_deaths:
        return False
    back = plan.of_device(device)[n_deaths - 1].returns_at
    return back is None or back > rounds_done


def check_nobody_runs(out: Path, folders: Sequence[Path]) -> None:
    """Say so if devices of a run are still there: a second process could not take their places."""
    addresses = [NodeConfig.from_file(folder / "node.toml").listen for folder in folders]
    running = [str(device) for device, address in enumerate(addresses) if is_listening(address)]
    if running:
        who = ", ".join(running)
        raise RunDirectoryError(out, f"has devices that are still running ({who}); resume when they have ended")
