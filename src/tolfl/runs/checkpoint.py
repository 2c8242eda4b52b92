"""Checkpoints: what a simulation cannot play again for free, which is the training.

The protocol is deterministic, so it is played from the start; the losses so far and the newest models come from here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import safetensors.numpy
from safetensors import SafetensorError, safe_open

from tolfl.core.contribution import Vector
from tolfl.core.errors import RunDirectoryError


class Note(msgspec.Struct, frozen=True):
    """What a round's record says beyond its loss, for schemes with several models."""

    groups: dict[str, tuple[int, ...]] = {}  #: who trained which model
    left_out: dict[int, str] = {}  #: whose contribution is in no model, and why


NO_NOTE = Note()


class _Known(msgspec.Struct):
    losses: list[float | None]
    evaluations: dict[int, float | None]
    notes: dict[int, Note] = {}


@dataclass(frozen=True)
class Checkpoint:
    """The first `len(losses)` closed rounds of a run."""

    losses: list[float | None]
    evaluations: dict[int, float | None] = field(default_factory=dict)  #: by step
    models: dict[int, dict[str, Vector]] = field(default_factory=dict)  #: by step; those that devices still hold
    notes: dict[int, Note] = field(default_factory=dict)  #: by step, where there is anything to note

    @property
    def n_steps(self) -> int:
        """How many rounds are known."""
        return len(self.losses)

    def to_bytes(self) -> bytes:
        """Return the checkpoint as a safetensors file."""
        tensors = {f"{step}/{key}": np.ascontiguousarray(v) for step, m in self.models.items() for key, v in m.items()}
        known = msgspec.json.encode(_Known(self.losses, self.evaluations, self.notes)).decode()
        return safetensors.numpy.save(tensors, metadata={"known": known})

    @classmethod
    def read(cls, path: Path) -> Checkpoint:
        """Read a checkpoint file."""
        try:
            with safe_open(path, framework="numpy") as file:
                known = msgspec.json.decode(file.metadata()["known"], type=_Known)
                names = list(file.keys())
                tensors = {name: file.get_tensor(name) for name in names}
        except (OSError, SafetensorError, KeyError, TypeError, msgspec.DecodeError) as error:
            raise RunDirectoryError(
                path, f"is no checkpoint that can be read ({error}); delete it to start anew"
            ) from None
        models: dict[int, dict[str, Vector]] = {}
        for name, tensor in tensors.items():
            step, key = name.split("/", 1)
            models.setdefault(int(step), {})[key] = tensor
        return cls(known.losses, known.evaluations, models, known.notes)
