"""Recordings of what the kernel computed, for `replay.c` to compute again on another processor or under a sanitizer."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tests.kernel.cases import bits
from tolfl.core.spec import TrainSettings
from tolfl.kernel import Kernel, Network, TrainJob
from tolfl.kernel.compiled import layers_of, settings_of, table_of
from tolfl.kernel.jobs import Floats


@dataclass
class RecordingKernel:
    """A kernel that writes down what it is asked to train."""

    kernel: Kernel
    calls: list[tuple[Network, TrainSettings, list[TrainJob]]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.kernel.name

    def train(self, network: Network, settings: TrainSettings, jobs: Sequence[TrainJob]) -> tuple[Floats, Floats]:
        self.calls.append((network, settings, list(jobs)))
        return self.kernel.train(network, settings, jobs)

    def add(
        self, network: Network, settings: TrainSettings, jobs: Sequence[TrainJob], weights: Floats, total: Floats
    ) -> Floats:
        self.calls.append((network, settings, list(jobs)))
        return self.kernel.add(network, settings, jobs, weights, total)

    def score(self, network: Network, params: Floats, rows: Floats) -> tuple[Floats, Floats]:
        return self.kernel.score(network, params, rows)

    def recording(self) -> bytes:
        """Return all calls as `replay.c` reads them: counts, layers, settings, jobs, start, rows, an empty sum."""
        parts = [struct.pack("<q", len(self.calls))]
        for network, settings, jobs in self.calls:
            assert all(job.start is jobs[0].start for job in jobs)
            rows = np.concatenate([job.pool[job.first : job.last] for job in jobs])
            table, _ = table_of(jobs)
            table["weight"] = [job.n_samples for job in jobs]
            parts += [
                struct.pack("<4q", len(network.layers), len(jobs), network.n_params, len(rows)),
                bytes(layers_of(network)[0]),
                ctypes.string_at(
                    ctypes.byref(settings_of(network, settings)), ctypes.sizeof(settings_of(network, settings))
                ),
                table.tobytes(),
                np.ascontiguousarray(jobs[0].start, np.float32).tobytes(),
                np.ascontiguousarray(rows, np.float32).tobytes(),
                np.full(network.n_params, -0.0, np.float32).tobytes(),
            ]
        return b"".join(parts)

    def expected(self) -> bytes:
        """Return what the recorded calls give here."""
        parts = []
        for network, settings, jobs in self.calls:
            deltas, losses = self.kernel.train(network, settings, jobs)
            total = np.full(network.n_params, -0.0, np.float32)
            self.kernel.add(network, settings, jobs, np.array([job.n_samples for job in jobs], np.float32), total)
            rows = np.concatenate([job.pool[job.first : job.last] for job in jobs])
            errors, outputs = self.kernel.score(network, jobs[0].start, rows)
            parts += [bits(array).tobytes() for array in (deltas, losses, total, errors, outputs)]
        return b"".join(parts)
