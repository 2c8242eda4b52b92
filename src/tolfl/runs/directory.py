"""Run directories: `spec.toml`, `records.jsonl`, models, `summary.json`, and a checkpoint while the run goes on."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from tolfl.core.errors import RunDirectoryError
from tolfl.core.records import AnyRecord, encode_records
from tolfl.core.spec import RunSpec
from tolfl.learners import Scorer, State
from tolfl.learners.learner import encode_state
from tolfl.runs.checkpoint import Checkpoint


class RunDirectory:
    """One run on disk. Files appear whole or not at all; a failed write says what to do and loses nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._has_begun = False  #: whether this process has written records

    @classmethod
    def create(cls, path: Path, spec: RunSpec) -> RunDirectory:
        """Start a run in a new or empty folder."""
        if path.exists() and not path.is_dir():
            raise RunDirectoryError(path, "is a file; name a folder")
        if path.is_dir() and any(path.iterdir()):
            raise RunDirectoryError(path, "is not empty; choose another --out, or continue the run in it with --resume")
        directory = cls(path)
        directory._write("spec.toml", spec.to_toml().encode())
        if spec.repetitions == 1:  # the folder above repetitions has no records of its own
            directory._write("records.jsonl", b"")
        return directory

    @classmethod
    def reopen(cls, path: Path, spec: RunSpec) -> RunDirectory:
        """Go back to a run that was started with the same specification."""
        if not (path / "spec.toml").is_file():
            raise RunDirectoryError(path, "holds no run to resume; leave out --resume to start one")
        if RunSpec.from_file(path / "spec.toml") != spec:
            raise RunDirectoryError(path, "was started with another specification; resume it without further options")
        return cls(path)

    def append(self, records: Iterable[AnyRecord]) -> None:
        """Add lines to the record file; a resumed run writes its records anew, but not before it has any."""
        lines = encode_records(records)
        if lines:
            try:
                with (self.path / "records.jsonl").open("ab" if self._has_begun else "wb") as file:
                    file.write(lines)
                self._has_begun = True
            except OSError as error:
                raise _failed(self.path, error) from None

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint in place of the last one."""
        self._write("checkpoint.safetensors", checkpoint.to_bytes())

    def checkpoint(self) -> Checkpoint | None:
        """Return the checkpoint, if there is one."""
        path = self.path / "checkpoint.safetensors"
        return Checkpoint.read(path) if path.is_file() else None

    def finish(self, results: Mapping[str, Scorer], summary: Mapping[str, object], state: State | None = None) -> None:
        """Write what was learned and the summary; delete the checkpoint. `state`: of a learner without results."""
        if not results and state is not None:
            self._write("state.safetensors", encode_state(state))
        for name, result in results.items():
            for file, content in result.files().items():
                self._write(file if len(results) == 1 else f"models/{name}{Path(file).suffix}", content)
        self._write("summary.json", msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n")
        (self.path / "checkpoint.safetensors").unlink(missing_ok=True)

    def _write(self, name: str, content: bytes) -> None:
        write_file(self.path, name, content)


def write_file(folder: Path, name: str, content: bytes, mode: int = 0o666) -> None:
    """Write a file below a folder that is there whole or not at all; `mode`: who may read it."""
    target = folder / name
    if target.exists() and not target.is_file():  # a folder, or /dev/null, which a new file would replace
        raise RunDirectoryError(target, "is there and is no file; choose another --out")
    try:
        replace_file(target, content, mode)
    except OSError as error:
        raise _failed(folder, error) from None


def replace_file(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Put a file in place of another, so that there is one or the other, also after a power cut; `mode`: who may read.

    An `OSError` leaves the old one.
    """
    scratch = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:  # noqa: PTH123
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
        _sync_folder(path.parent)
    except OSError:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk: until then a power cut brings the old file back."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _failed(folder: Path, error: OSError) -> RunDirectoryError:
    return RunDirectoryError(
        folder, f"cannot be written ({error.strerror}); make room or choose another --out, then use --resume"
    )


def models_sha256(results: Mapping[str, Scorer]) -> str | None:
    """Return one hash over all results, in order: runs with equal models have equal hashes."""
    if not results:
        return None
    digest = hashlib.sha256()
    for result in results.values():
        for content in result.files().values():
            digest.update(content)
    return digest.hexdigest()
