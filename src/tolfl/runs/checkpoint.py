"""Checkpoints: the losses and newest states of a simulation, so that resuming trains no round again.

The protocol is deterministic and cheap, so it is simulated again from the start.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np
import safetensors.numpy
from safetensors import SafetensorError, safe_open

from tolfl.core.errors import RunDirectoryError
from tolfl.learners.learner import Account, State

#: AUROC and loss of a closed round's model.
Evaluation: TypeAlias = tuple[float | None, float | None]


class _Known(msgspec.Struct):
    accounts: list[Account]
    evaluations: dict[int, Evaluation]


@dataclass(frozen=True)
class Checkpoint:
    """The first `len(accounts)` closed rounds of a run."""

    accounts: list[Account]
    evaluations: dict[int, Evaluation] = field(default_factory=dict)  #: by step
    states: dict[int, State] = field(default_factory=dict)  #: by step; those that devices still hold

    @property
    def n_steps(self) -> int:
        """How many rounds are known."""
        return len(self.accounts)

    def to_bytes(self) -> bytes:
        """Return the checkpoint as a safetensors file."""
        tensors = {f"{step}/{key}": np.ascontiguousarray(v) for step, s in self.states.items() for key, v in s.items()}
        known = msgspec.json.encode(_Known(self.accounts, self.evaluations)).decode()
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
        states: dict[int, State] = {}
        for name, tensor in tensors.items():
            step, key = name.split("/", 1)
            states.setdefault(int(step), {})[key] = tensor
        return cls(known.accounts, known.evaluations, states)
