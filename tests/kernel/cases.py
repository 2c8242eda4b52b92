"""Trainings made from whole numbers, the same bits on every processor, and digests of where they lead."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tolfl.core.spec import TrainSettings
from tolfl.kernel import Kernel, Network, TrainJob
from tolfl.kernel.jobs import Floats


@dataclass(frozen=True)
class Case:
    """Some devices that train one model for some rounds."""

    name: str
    network: Network
    settings: TrainSettings
    sizes: tuple[int, ...]  #: rows of each device
    scale: float = 1.0
    rounds: int = 50


def _network(n_features: int, hidden: list[int], code: int, dropout: float, has_code_relu: bool) -> Network:
    return Network.autoencoder(n_features, hidden, code, dropout, has_code_relu)


CASES = {
    case.name: case
    for case in [
        Case("paper, sgd", _network(112, [128, 64], 32, 0.2, False), TrainSettings(0.02), (7, 24, 64), rounds=5),
        Case(
            "odd widths, momentum",
            _network(37, [29, 13], 5, 0.2, True),
            TrainSettings(0.004, 2, 7, "momentum"),
            (1, 40, 7, 22),
        ),
        Case("adam", _network(50, [23], 9, 0.5, False), TrainSettings(0.003, 3, 16, "adam"), (40, 3, 16, 33)),
        Case("full batch, no dropout", _network(17, [33], 6, 0, True), TrainSettings(0.01, 2, 0), (40, 1, 17, 9)),
        Case(
            "denormal numbers, sgd",
            _network(33, [20], 8, 0.2, False),
            TrainSettings(0.02, 1, 16),
            (30, 5, 17),
            scale=2.0**-70,
        ),
        Case(
            "denormal numbers, adam",
            _network(33, [20], 8, 0.2, False),
            TrainSettings(2.0**-80, 2, 8, "adam"),
            (30, 5),
            scale=2.0**-70,
        ),
        Case("784 features", _network(784, [128, 64], 32, 0.2, False), TrainSettings(0.002), (20, 33), rounds=5),
        Case("widths of one", _network(1, [1], 1, 0.2, False), TrainSettings(0.05, 2, 4), (9, 1)),
    ]
}

#: Digests after the first, the fifth and the last round; the same for every kernel, compiler and processor.
DIGESTS = {
    "paper, sgd": {1: "3124e7a14ac5bc97", 5: "fdaed6c04daf29fd"},
    "odd widths, momentum": {1: "cf9efe17ed896404", 5: "696dfa1471c2455a", 50: "ea0417666be47903"},
    "adam": {1: "8e6f05e435bdd333", 5: "9e4a0ec99aaa562f", 50: "925bc3b12139d9c1"},
    "full batch, no dropout": {1: "3fa030620b367445", 5: "9b2630064a8efad6", 50: "492c3f7b685a8f7c"},
    "denormal numbers, sgd": {1: "a23da23c7aacef65", 5: "8343a06418370281", 50: "3ffcc60f956f8189"},
    "denormal numbers, adam": {1: "dd8376a976d52754", 5: "c7d3fb51cf19d3d0", 50: "71035b0f2dbb7f8b"},
    "784 features": {1: "af9cc7934ac56a58", 5: "37521c1595911d04"},
    "widths of one": {1: "b5ed9180766c114d", 5: "8f9c546280444ee5", 50: "7aacda5414f49de6"},
}


def numbers(n: int, stream: int) -> Floats:
    """Return numbers between 0 and 1 that are exact in float32, without any library's generator."""
    words = (np.arange(1, n + 1, dtype=np.uint64) + np.uint64(stream * 2**32)) * np.uint64(0x9E3779B97F4A7C15)
    words ^= words >> np.uint64(29)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    return (words >> np.uint64(40)).astype(np.float32) / np.float32(2**24)


def start_of(case: Case) -> Floats:
    """Return weights of the usual size."""
    layers = []
    for place, layer in enumerate(case.network.layers):
        n = (layer.n_in + 1) * layer.n_out
        of_layer = (2 * numbers(n, 7 + place) - 1) / np.sqrt(np.float32(layer.n_in))
        of_layer[layer.n_in * layer.n_out :] *= np.float32(case.scale)
        layers.append(of_layer)
    return np.concatenate(layers)


def jobs_of(case: Case, start: Floats, round_index: int) -> list[TrainJob]:
    """Return the jobs of a round; the devices have ids apart from their places."""
    n_rows, width = sum(case.sizes), case.network.n_features
    pool = numbers(n_rows * width, 3).reshape(n_rows, width)
    pool = (pool + numbers(width, 4) * numbers(n_rows, 5)[:, None]) * np.float32(case.scale)
    edges = np.cumsum([0, *case.sizes]).tolist()
    return [
        TrainJob(0, 3 + 2 * place, round_index, start, pool, edges[place], edges[place + 1])
        for place in range(len(case.sizes))
    ]


def weights_of(jobs: list[TrainJob]) -> Floats:
    """Return the weight of each job: its rows."""
    return np.array([job.n_samples for job in jobs], np.float32)


def play(kernel: Kernel, case: Case, rounds: int) -> Iterator[tuple[Floats, ...]]:
    """Yield what each round computes: deltas, losses, the sum, the model, its errors and outputs."""
    model = start_of(case)
    for round_index in range(rounds):
        jobs = jobs_of(case, model, round_index)
        deltas, losses = kernel.train(case.network, case.settings, jobs)
        total = np.full_like(model, -0.0)
        again = kernel.add(case.network, case.settings, jobs, weights_of(jobs), total)
        np.testing.assert_array_equal(losses, again)
        model = model - total / np.float32(sum(case.sizes))
        errors, outputs = kernel.score(case.network, model, jobs[0].pool)
        yield deltas, losses, total, model, errors, outputs


def digests(kernel: Kernel, case: Case, rounds: int) -> dict[int, str]:
    """Return a digest of everything computed so far, after the first, the fifth and the last round of the case."""
    digest, found = hashlib.sha256(), {}
    for done, arrays in enumerate(play(kernel, case, rounds), start=1):
        for array in arrays:
            assert np.isfinite(array).all()
            digest.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
        if done in {1, 5, case.rounds}:
            found[done] = digest.hexdigest()[:16]
    return found


def bits(array: NDArray[np.floating]) -> NDArray[np.unsignedinteger]:
    """Return the bits of numbers: zero and minus zero differ."""
    return array.view(np.uint32 if array.dtype == np.float32 else np.uint64)
