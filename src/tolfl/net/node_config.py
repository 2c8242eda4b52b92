"""The configuration of one device, `device.toml`: a small file beside the specification of the run."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tolfl.core.errors import SpecError
from tolfl.net.addresses import is_unspecified, split_address

#: Exit status of a device that has ended and cannot know whether the others have ended with the same model.
UNCONFIRMED = 3
#: Exit statuses of devices that have come to an end; whether all have the same model is seen from their versions.
ENDED = (0, UNCONFIRMED)


class WatchConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a device watches once its fleet has a detector, and where alarms go; `[watch]` of its file."""

    source: str = ""  #: a capture, a recording or a table
    interface: str = ""  #: or the name of an interface of this machine: wlan0
    follow: bool = False  #: the source is a capture that is still being written
    json: str = ""  #: a file for alarms as JSON lines
    syslog: str = ""  #: udp://HOST:514, tcp://HOST:601 or unix:///dev/log
    mqtt: str = ""  #: mqtt://USER:PASSWORD@HOST:1883, or mqtts://
    webhook: str = ""  #: https://HOST/PATH
    max_events: int = 10_000  #: size of the queue of events that have not been taken
    keep_rows: int = 86_400  #: how many of the latest rows without an alarm `run = 2` learns from; 0: none

    def check(self, path: Path) -> None:
        """Say what is wrong."""
        if bool(self.source) == bool(self.interface):
            raise SpecError(f"device configuration {path}: [watch] needs one of source and interface")
        if self.source == "-":
            raise SpecError(f"device configuration {path}: [watch] source '-'; a device has no standard input: a file")
        if self.max_events < 1 or self.keep_rows < 0:
            raise SpecError(f"device configuration {path}: [watch] max_events is at least 1, keep_rows at least 0")


class NodeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One device. Paths are relative to the file."""

    device: int  #: its id, from 0
    listen: str  #: host:port; port 0 takes any that is free
    state: str  #: the folder for what it must remember: its incarnation, its newest round, its records
    spec: str = "spec.toml"  #: the specification of the run, the same for all devices
    advertise: str = ""  #: host:port under which others reach it; empty: as it listens; needed with `0.0.0.0`
    peers: dict[str, str] = {}  #: id = host:port of devices that are known beforehand; no message replaces these
    seeds: tuple[str, ...] = ()  #: host:port of devices that know others; each is tried until one of the fleet answers
    discover: bool = False  #: find the others on the local network by multicast DNS
    #: its own rows: a table or folder, of which `learn.columns` are taken; empty: its slice of the spec's data
    data: str = ""
    samples: str = ""  #: or a .npy file with its samples, scaled already
    start_timeout_s: float = 30.0  #: start without those who cannot be reached by then
    start_quiet_s: float = 10.0  #: start sooner, once `min_devices` are there and nobody new has come for so long
    #: ids of devices that are gone for good: the start does not wait for them (also `--absent 3,4`)
    absent: tuple[int, ...] = ()
    keep_models_every: int = 0  #: keep the model of every so many rounds in the state folder
    keep_updates: bool = False  #: keep every contribution of this device in the state folder, for whoever checks a run
    linger_s: float = (
        10.0  #: serve the last model after the end, at most so long, while devices of the fleet are missing
    )
    token: str = ""  #: what a launcher must show to give commands; empty: nobody can; set by `tolfl up`
    metrics: str = ""  #: host:port for Prometheus; empty: none
    #: when the run began, for the times in records; 0: when this device first started; set by `tolfl up`
    started_unix: float = 0.0
    credentials: str = ""  #: the folder with this device's key and certificates (tolfl enroll)
    insecure: bool = False  #: plain text instead; only on loopback
    watch: WatchConfig | None = None  #: what it watches once there is a detector; None: nothing

    @classmethod
    def from_file(cls, path: Path) -> NodeConfig:
        """Read a TOML file; what is wrong is said in one sentence."""
        try:
            config = msgspec.toml.decode(path.read_bytes(), type=cls)
        except OSError as error:
            raise SpecError(f"device configuration {path}: cannot be read ({error.strerror})") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SpecError(f"device configuration {path}: {error}") from None
        folder = path.parent
        places = ("state", "spec", "samples", "data", "credentials")
        found = {name: str(folder / getattr(config, name)) for name in places if getattr(config, name)}
        watch = config.watch
        if watch is not None:
            own = {name: str(folder / getattr(watch, name)) for name in ("source", "json") if getattr(watch, name)}
            watch.check(path)
            watch = msgspec.structs.replace(watch, **own)
        return msgspec.structs.replace(config, **found, watch=watch).check(path)

    def check(self, path: Path) -> NodeConfig:
        """Return itself, or say what is wrong."""
        for address in (self.listen, *self.peers.values(), *self.seeds, *filter(None, [self.advertise, self.metrics])):
            split_address(address)
        for device in self.peers:
            if not device.isdecimal():
                raise SpecError(f"device configuration {path}: peers: {device!r} is not a device id")
        if is_unspecified(self.listen) and not self.advertise:
            raise SpecError(
                f"device configuration {path}: listen {self.listen} is every interface of this machine, which nobody "
                "can dial; say where others reach it, as in advertise = '10.0.0.3:7000'"
            )
        if self.data and self.samples:
            raise SpecError(f"device configuration {path}: data and samples; name one of them")
        if self.device < 0:
            raise SpecError(f"device configuration {path}: device {self.device}; ids count from 0")
        return self

    def without(self, absent: str) -> NodeConfig:
        """Return the configuration with devices that nobody shall wait for, as in `3,4`."""
        named = [part.strip() for part in absent.split(",") if part.strip()]
        wrong = [part for part in named if not part.isdecimal()]
        if wrong:
            raise SpecError(f"--absent {absent!r}: {wrong[0]!r} is not a device id; write ids as in 3,4")
        return msgspec.structs.replace(self, absent=(*self.absent, *map(int, named)))

    def to_toml(self) -> str:
        """Return the configuration as TOML."""
        fields = msgspec.to_builtins(self)
        return msgspec.toml.encode({name: value for name, value in fields.items() if value is not None}).decode()
