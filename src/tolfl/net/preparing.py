"""From a configuration file to a device that is ready to run: its data, its model, its rules."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import numpy as np

from tolfl.core.errors import DataError, RunDirectoryError, SpecError
from tolfl.core.spec import RunSpec
from tolfl.datasets import FederatedDataset, load
from tolfl.learners.layouts import failure_plan, layout, policy, wiring
from tolfl.learners.registry import learner_of
from tolfl.net.authority import REVOCATIONS, EnrolmentError
from tolfl.net.config import NodeConfig
from tolfl.net.credentials import TLS, Credentials, NoCredentials, is_loopback
from tolfl.net.node import Node
from tolfl.net.setting import Setting
from tolfl.net.trainer import Trainer
from tolfl.net.wire import Limits
from tolfl.protocol.device import Rules
from tolfl.runs.outcome import fleet_of

#: Schemes whose devices need nothing but their own samples and what is sent to them.
NETWORKED = ("tol-fl", "fl", "sbt")


def check_networked(spec: RunSpec) -> RunSpec:
    """Return the specification itself, or say why it cannot run on a real network."""
    spec.check()
    if spec.scheme not in NETWORKED:
        raise SpecError(
            f"scheme {spec.scheme!r} runs in the simulator only (tolfl simulate); "
            f"on a real network run one of: {', '.join(NETWORKED)}"
        )
    if spec.repetitions > 1:
        raise SpecError(f"{spec.repetitions} repetitions; a real network runs one at a time (tolfl simulate: many)")
    return spec


def prepare(config: NodeConfig, is_own_network: bool = False) -> Node:
    """Return a device that is ready to run; `is_own_network`: nobody else can reach the network it is on."""
    credentials = credentials_of(config, is_own_network)
    _remember_revocations(credentials, Path(config.state))
    spec = check_networked(RunSpec.from_file(Path(config.spec)))
    if config.device >= spec.devices:
        raise SpecError(f"device {config.device} in a fleet of {spec.devices}; ids go from 0 to {spec.devices - 1}")
    data = _data(config, spec)
    index = 0 if config.samples or config.data else config.device
    samples = data.slice_of(index)
    learner = learner_of(fleet_of(spec, data))
    trainer = Trainer(spec, config.device, samples, learner)
    topology = wiring(spec)
    start, cap = trainer.first_state(), spec.defence.max_samples
    limits = Limits(topology, learner.rounds, cap * spec.devices if cap else None)
    rules = Rules.of(spec, learner)
    name = fleet_name(spec, sum(map(len, start.values())))
    setting = Setting(
        config, spec, failure_plan(spec, learner.all_stages()), rules, limits, name, len(samples), data.name
    )
    return Node(setting, trainer, credentials)


def credentials_of(config: NodeConfig, is_own_network: bool = False) -> Credentials:
    """Return what a device shows and wants to see; plain text is refused wherever strangers could listen."""
    if config.credentials:
        tls = TLS(Path(config.credentials))
        if tls.identity is None or tls.identity.device != config.device:
            raise SpecError(f"credentials {config.credentials} are not those of device {config.device}")
        return tls
    if not config.insecure:
        raise SpecError(
            f"device {config.device} has no credentials; name their folder (tolfl enroll makes it), "
            "or set insecure = true on loopback"
        )
    if is_own_network:
        return NoCredentials()
    for address in (config.listen, *filter(None, [config.advertise])):
        if not is_loopback(address):
            raise SpecError(f"insecure = true and address {address}: plain text is for loopback (127.0.0.1) only")
    return NoCredentials()


def _remember_revocations(credentials: Credentials, state: Path) -> None:
    """Take over the list that an earlier life has kept."""
    if (state / REVOCATIONS).exists():
        try:
            credentials.learn((state / REVOCATIONS).read_bytes())
        except (OSError, EnrolmentError) as error:
            raise RunDirectoryError(state, f"{REVOCATIONS}: {error}; choose another folder") from None


def _data(config: NodeConfig, spec: RunSpec) -> FederatedDataset:
    if config.data:
        # All rows are typical and this device's own; it scales them by what it knows, which is these.
        own = msgspec.structs.replace(spec.dataset, partition="iid", test_share=0.0, validation_share=0.0)
        alone = msgspec.structs.replace(spec, data=config.data, devices=1, clusters=1, topology="", dataset=own)
        return load(alone)
    if not config.samples:
        return load(spec)
    try:
        samples = np.load(config.samples, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(f"the samples of device {config.device}, {config.samples}, cannot be read ({error})") from None
    return FederatedDataset.from_arrays([samples], name=spec.data)


def fleet_name(spec: RunSpec, n_params: int) -> str:
    """Return a name that devices share if and only if they can train together."""
    what = (spec.scheme, spec.devices, layout(spec).clusters, spec.rounds, spec.seed, policy(spec), n_params)
    rest = (spec.min_devices, spec.min_samples, msgspec.to_builtins(spec.train), msgspec.to_builtins(spec.model))
    agreed = (what, rest, msgspec.to_builtins(spec.defence))
    return hashlib.sha256(msgspec.json.encode(agreed)).hexdigest()[:16]
