"""Own modules: one device after the other, as they train, against all devices of a group at once (`torch.func.vmap`).

python -m benchmarks.modules [--repeats 5] [--devices 10 100 1000] [--hidden 64 32]

One and the same work, 9,000 rows of 112 features, shared out over more and more devices; an autoencoder of linear
layers, one epoch in batches of 32, one torch thread. Both ways take turns, so that whatever else the machine does hits
both. The last column counts the devices, of unequal size, whose update has other bits at once than by themselves.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from tolfl.kernel.jobs import updates_from
from tolfl.models import ModuleModel, TrainJob, TrainSettings, Update
from tolfl.models.batches import GroupBatches
from tolfl.models.grouping import group_jobs
from tolfl.models.optimizers import optimizer_for
from tolfl.models.threads import one_torch_thread
from tolfl.models.workspace import Workspace

N_SAMPLES, N_FEATURES = 9000, 112
SETTINGS = TrainSettings(lr=0.001, batch_size=32)
DEVICES_AT_ONCE = 50


def autoencoder(hidden: Sequence[int]) -> nn.Module:
    """Return linear layers from the features over the hidden widths back to the features."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for width, next_width in pairwise([N_FEATURES, *hidden, N_FEATURES]):
        layers += [nn.Linear(width, next_width), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def jobs_for(n_devices: int, start: np.ndarray, is_uneven: bool = False) -> list[TrainJob]:
    """Return one job per device; uneven ones have from half to one and a half of the mean number of samples."""
    pool = np.random.default_rng(0).normal(size=(N_SAMPLES, N_FEATURES)).astype(np.float32)
    shares = np.linspace(0.5, 1.5, n_devices) if is_uneven else np.ones(n_devices)
    edges = np.floor(np.cumsum([0, *shares]) * N_SAMPLES / n_devices + 1e-6).astype(int).tolist()
    return [TrainJob(0, device, 0, start, pool, *rows) for device, rows in enumerate(pairwise(edges))]


def at_once(module: nn.Module, jobs: Sequence[TrainJob]) -> list[Update]:
    """Return the updates of all jobs, those of a group computed as one batch with padding."""
    updates: dict[int, Update] = {}
    for group in group_jobs(jobs, SETTINGS, DEVICES_AT_ONCE):
        updates.update(zip(group, _group_at_once(module, [jobs[index] for index in group]), strict=True))
    return [updates[index] for index in range(len(jobs))]


def _group_at_once(module: nn.Module, jobs: Sequence[TrainJob]) -> list[Update]:
    sizes = [(name, tensor.shape, tensor.numel()) for name, tensor in module.named_parameters()]

    def batch_loss(flat: Tensor, samples: Tensor, row_weights: Tensor) -> Tensor:
        parts = flat.split([size for *_, size in sizes])
        tensors = {name: part.view(shape) for (name, shape, _), part in zip(sizes, parts, strict=True)}
        output: Tensor = functional_call(module, tensors, (samples,))
        return ((output - samples).square().sum(1) * row_weights).sum()

    starts = np.stack([job.start for job in jobs])
    params = torch.from_numpy(starts.copy())
    losses = torch.zeros(len(jobs), dtype=torch.float64)
    slopes_and_losses, optimizer = vmap(grad_and_value(batch_loss)), optimizer_for(SETTINGS)
    for step in GroupBatches(jobs, SETTINGS).steps(Workspace()):
        active = params[: len(step.samples)]
        slopes, now = slopes_and_losses(active, step.samples, step.row_weights)
        losses[: len(active)] += step.loss_share * now.double()
        optimizer.step([active], [slopes])
    return updates_from(jobs, (torch.from_numpy(starts) - params).numpy(), losses.numpy())


def timed(train: Callable[[], object]) -> tuple[float, float]:
    """Return wall and processor seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    train()
    return time.perf_counter() - wall, time.process_time() - cpu


def row(hidden: Sequence[int], n_devices: int, repeats: int) -> str:
    """Return a row of the table: medians, and the least and largest ratio of one repetition."""
    module = autoencoder(hidden)
    model = ModuleModel(module)
    jobs = jobs_for(n_devices, model.initial(0))
    times = [  # the first time also makes room for what later ones use again
        (*timed(lambda: model.train(jobs, SETTINGS)), *timed(lambda: at_once(module, jobs))) for _ in range(repeats + 1)
    ]
    wall, cpu, wall_at_once, cpu_at_once = np.array(times[1:]).T
    ratios = [f"{np.median(r):.1f} ({r.min():.1f}-{r.max():.1f})" for r in (wall / wall_at_once, cpu / cpu_at_once)]
    uneven = jobs_for(n_devices, model.initial(0), is_uneven=True)
    pairs = zip(model.train(uneven, SETTINGS), at_once(module, uneven), strict=True)
    n_other = sum(not np.array_equal(one.delta, other.delta) for one, other in pairs)
    seconds = f"{np.median(wall):.3f} | {np.median(wall_at_once):.3f}"
    return f"| {n_devices} | {seconds} | {ratios[0]} | {ratios[1]} | {n_other} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--devices", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--hidden", type=int, nargs="*", default=[64, 32], help="widths between the features")
    asked = parser.parse_args()
    print(f"{os.cpu_count()} cores, {platform.machine()}, torch {torch.__version__}, hidden layers {asked.hidden}\n")
    print("| devices | one after the other, s | at once, s | ratio, wall | ratio, CPU | other bits, uneven devices |")
    print("|---|---|---|---|---|---|")
    with one_torch_thread():
        for n_devices in asked.devices:
            print(row(asked.hidden, n_devices, asked.repeats), flush=True)


if __name__ == "__main__":
    main()
