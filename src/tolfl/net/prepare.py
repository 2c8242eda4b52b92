"""Prepares a device from its configuration file: its data, its model, its rules."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

import msgspec
import numpy as np

from tolfl.core.errors import DataError, RunDirectoryError, SpecError
from tolfl.core.spec import RunSpec
from tolfl.datasets import check_name, load_raw
from tolfl.datasets.federated import Samples
from tolfl.datasets.own_table import agreed, agreed_form, own_rows, table_spec
from tolfl.learners import Fleet, Learner, State
from tolfl.learners.averaging import Averaging
from tolfl.learners.layouts import PLAIN, SCHEMES, failure_plan, layout, policy, wiring
from tolfl.learners.learner import digest_of, first_state
from tolfl.learners.registry import fingerprint, learner_of, located, scaled_learner_of
from tolfl.net.enrolment import REVOCATIONS, EnrolmentError
from tolfl.net.node import Assignment, Node
from tolfl.net.node_config import UNCONFIRMED, NodeConfig
from tolfl.net.tls import Credentials, is_loopback
from tolfl.net.trainer import Trainer
from tolfl.net.wire import Limits
from tolfl.protocol.device import Rules
from tolfl.runs.directory import write_file
from tolfl.runs.outcome import data_for, fleet_of
from tolfl.signals.wlan import DEVICE_FILE, as_bytes

#: Arrays of a device that are so large go back to the system as soon as they are freed (glibc's mallopt).
_LARGE_BYTES, _M_MMAP_THRESHOLD = 256 * 1024, -3
#: Schemes that need the rows of all devices in one place.
_ONE_PLACE = ("batch", "batch-small", *PLAIN)


def check_networked(spec: RunSpec) -> RunSpec:
    """Return the specification itself, or say why it cannot run on a real network."""
    spec.check()
    if spec.scheme in _ONE_PLACE:
        raise SpecError(
            f"scheme {spec.scheme!r} has all rows in one place and runs in the simulator only (tolfl simulate); "
            f"on a real network run one of: {', '.join(name for name in SCHEMES if name not in _ONE_PLACE)}"
        )
    if spec.repetitions > 1:
        raise SpecError(f"{spec.repetitions} repetitions; a real network runs one at a time (tolfl simulate: many)")
    return spec


def run_folder(state: Path, run: int) -> Path:
    """Return where a device keeps what belongs to one run of its fleet: the first one lies in the state folder itself.

    >>> run_folder(Path("state"), 1), run_folder(Path("state"), 2)
    (PosixPath('state'), PosixPath('state/run-2'))
    """
    return state if run == 1 else state / f"run-{run}"


def prepare(
    config: NodeConfig,
    is_own_network: bool = False,
    learn: Mapping[str, str] | None = None,
    kept: tuple[tuple[str, ...], Samples] | None = None,
) -> Node:
    """Return a device that is ready to run.

    `is_own_network`: nobody else can reach the network it is on. `learn`: in place of what `[learn]` of the
    specification says. `kept`: columns and rows to learn from in place of the device's own data.
    """
    _give_large_arrays_back()
    credentials = credentials_of(config, is_own_network)
    _remember_revocations(credentials, Path(config.state))
    spec = check_networked(_spec(config, learn))
    if config.device >= spec.devices:
        raise SpecError(f"device {config.device} in a fleet of {spec.devices}; ids go from 0 to {spec.devices - 1}")
    state = Path(config.state)  # of all runs
    config = msgspec.structs.replace(config, state=str(run_folder(Path(config.state), spec.run)))
    rows, fleet, source = _rows(config, spec, state) if kept is None else _kept(config, spec, *kept)
    fleet = replace(fleet, folder=Path(config.state))
    learner = scaled_learner_of(fleet) if config.data or kept is not None else learner_of(fleet)
    trainer = Trainer(spec, config.device, rows, learner)
    cap = spec.defence.max_samples
    n_bytes = learner.max_message_bytes
    limits = Limits(wiring(spec), learner.rounds, cap * spec.devices if cap else None, n_bytes // 16, n_bytes)
    if type(learner) is Averaging:  # all its rounds look alike: what does not is refused before it is read
        limits = Limits.of_state(limits.topology, limits.rounds, limits.max_work, trainer.first_state())
    min_devices = max(spec.min_devices, learner.min_devices)
    rules = msgspec.structs.replace(
        Rules.of(spec, learner), admits=trainer.admits, digest=_digest_of, min_devices=min_devices
    )
    name = fleet_name(fleet, learner)
    plan = failure_plan(spec, learner.all_stages())
    return Node(Assignment(config, spec, plan, rules, limits, name, len(rows), source), trainer, credentials)


def _give_large_arrays_back() -> None:
    """Keep the C library from holding on to freed memory: the more it was given back, the more it would keep."""
    with suppress(AttributeError, OSError):  # another C library has no such thing
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


async def run_to_the_end(node: Node) -> tuple[list[str], int]:
    """Run a device until its run is over; return what to say of it, and its exit status."""
    sentences = [f"device {node.id}: {await node.run()}"]
    if not node.device.is_unconfirmed:
        return sentences, 0
    unconfirmed = (
        f"device {node.id}: unconfirmed: half of the fleet or more was not there in the end, or has gone on without "
        "this device; compare the others before you use its model"
    )
    return [*sentences, unconfirmed], UNCONFIRMED


def _digest_of(state: object) -> str:
    return digest_of(cast("State", state))


def _spec(config: NodeConfig, learn: Mapping[str, str] | None) -> RunSpec:
    """Return the specification of a run; a learner's file that is not here is looked for beside it."""
    path = Path(config.spec)
    spec = RunSpec.from_file(path)
    if learn is not None:
        spec = msgspec.structs.replace(spec, learn={**spec.learn, **learn})
    what = spec.learn.get("what")
    return (
        msgspec.structs.replace(spec, learn={**spec.learn, "what": located(what, path.parent)})
        if isinstance(what, str)
        else spec
    )


def credentials_of(config: NodeConfig, is_own_network: bool = False) -> Credentials:
    """Return the credentials of a device; plain text is refused where an unauthenticated peer could listen."""
    if config.credentials:
        tls = Credentials(Path(config.credentials))
        if tls.identity is None or tls.identity.device != config.device:
            raise SpecError(f"credentials {config.credentials} are not those of device {config.device}")
        return tls
    if not config.insecure:
        raise SpecError(
            f"device {config.device} has no credentials; name their folder (tolfl enroll makes it), "
            "or set insecure = true on loopback"
        )
    if is_own_network:
        return Credentials()
    for address in (config.listen, *filter(None, [config.advertise])):
        if not is_loopback(address):
            raise SpecError(f"insecure = true and address {address}: plain text is for loopback (127.0.0.1) only")
    return Credentials()


def _remember_revocations(credentials: Credentials, state: Path) -> None:
    """Take over the list that an earlier incarnation has kept."""
    if (state / REVOCATIONS).exists():
        try:
            credentials.learn((state / REVOCATIONS).read_bytes())
        except (OSError, EnrolmentError) as error:
            raise RunDirectoryError(state, f"{REVOCATIONS}: {error}; choose another folder") from None


def _rows(config: NodeConfig, spec: RunSpec, state: Path) -> tuple[Samples, Fleet, str]:
    """Return this device's rows, what it knows of the fleet, and the name of the data."""
    if config.data:
        rows, name = _own_table(config, spec, state)
        return rows, _fleet(spec, rows), name
    if not config.samples:
        data = data_for(spec)
        return data.slice_of(config.device), fleet_of(spec, data), data.name
    try:
        rows = np.load(config.samples, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(f"the samples of device {config.device}, {config.samples}, cannot be read ({error})") from None
    return rows, _fleet(spec, rows), spec.data


def _fleet(spec: RunSpec, rows: Samples) -> Fleet:
    """Return what a device that has its own rows alone knows of the fleet."""
    return Fleet(spec, rows.shape[1:], agreed(spec, "columns"), agreed(spec, "names"), form=agreed_form(spec))


def _own_table(config: NodeConfig, spec: RunSpec, state: Path) -> tuple[Samples, str]:
    own = table_spec(spec, config.data)
    check_name(own)
    raw = load_raw(own, is_remembered=False)
    if raw.networks is not None and config.watch is not None:
        write_file(state, DEVICE_FILE, as_bytes(raw.networks))
    columns = agreed(spec, "columns")
    if not columns and raw.feature_names:
        raise SpecError(
            f"device {config.device} has a table of its own, and the specification does not say which columns the "
            f"fleet has; write them into it: tolfl data describe {config.data} --columns"
        )
    return own_rows(raw, own, columns), raw.name


def _kept(config: NodeConfig, spec: RunSpec, columns: tuple[str, ...], rows: Samples) -> tuple[Samples, Fleet, str]:
    """Return the rows that a device has kept while it watched."""
    if columns != agreed(spec, "columns"):
        raise SpecError(
            f"device {config.device} has kept rows of other columns than the specification names; write the columns "
            "of the run before into it, or set keep_rows = 0 under [watch] to learn from data"
        )
    return rows, _fleet(spec, rows), "rows that raised no alarm"


def fleet_name(fleet: Fleet, learner: Learner) -> str:
    """Return a name that devices share if and only if they can learn together.

    What they learn is part of it, down to the file of a learner of one's own and the state that it starts from: devices
    that differ in any of these would add up what does not belong together.
    """
    spec = fleet.spec
    who: tuple[object, ...] = (spec.scheme, spec.devices, layout(spec).clusters, spec.seed, policy(spec))
    who += (spec.run,) if spec.run > 1 else ()
    what = (fingerprint(spec), learner.rounds, fleet.sample_shape, digest_of(first_state(learner)))
    rest = (spec.min_devices, spec.min_samples, msgspec.to_builtins(spec.train), msgspec.to_builtins(spec.model))
    settled = spec.train.settle(fleet.n_features, fleet.usual_rows)
    agreed = (who, what, rest, msgspec.to_builtins(settled), msgspec.to_builtins(spec.defence))
    return hashlib.sha256(msgspec.json.encode(agreed)).hexdigest()[:16]
