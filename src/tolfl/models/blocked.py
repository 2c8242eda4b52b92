"""The fast engine: a group of autoencoders trained as one stack of matrices, with the gradient written by hand.

Small models are limited by the overhead of calls, not by arithmetic. So all devices of a group take each step
together (one batched matrix product per layer), and the gradient of a layer goes straight into its weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from tolfl.kernel.jobs import Floats, TrainJob, Update, updates_from
from tolfl.models.batches import BatchStep, GroupBatches
from tolfl.models.dropout import DropoutMasks
from tolfl.models.network import Layer, Network
from tolfl.models.optimizers import optimizer_for
from tolfl.models.settings import TrainSettings
from tolfl.models.workspace import Workspace


class LayerBlocks:
    """The same tensor of every device side by side: weights `(n_devices, n_out, n_in)`, biases `(n_devices, 1, n_out)`.

    One contiguous block per layer, not one row per device: only into contiguous memory does a batched product
    write in one call (a quarter of the time of the weight update).
    """

    def __init__(self, layers: Sequence[Layer], n_devices: int, memory: Tensor) -> None:
        self._n_params = layers[-1].last
        self._edges = [edge for layer in layers for edge in (layer.first, layer.bias_first)] + [self._n_params]
        parts = [memory[n_devices * first : n_devices * last] for first, last in pairwise(self._edges)]
        self._flat = [part.view(n_devices, -1).numpy() for part in parts]
        self.weights = [
            part.view(n_devices, layer.n_out, layer.n_in) for layer, part in zip(layers, parts[::2], strict=True)
        ]
        self.biases = [part.view(n_devices, 1, -1) for part in parts[1::2]]

    @classmethod
    def repeated(cls, layers: Sequence[Layer], n_devices: int, start: Floats) -> LayerBlocks:
        """Return one model seen as the equal models of all devices, to read from: it stays in the fastest cache."""
        blocks = cls(layers, 1, torch.tensor(start))
        blocks.weights = [weight.expand(n_devices, -1, -1) for weight in blocks.weights]
        blocks.biases = [bias.expand(n_devices, -1, -1) for bias in blocks.biases]
        return blocks

    def front(self, n_active: int) -> list[Tensor]:
        """Return all blocks, cut to the devices that are still training."""
        return [block[:n_active] for block in (*self.weights, *self.biases)]

    def load(self, starts: Floats) -> None:
        """Copy flat parameters in, shape `(n_devices, n_params)` or `(1, n_params)`."""
        for (first, last), block in zip(pairwise(self._edges), self._flat, strict=True):
            np.copyto(block, starts[:, first:last])

    def subtract_from(self, starts: Floats) -> None:
        """Turn the values into `starts` minus the values, in place."""
        for (first, last), block in zip(pairwise(self._edges), self._flat, strict=True):
            np.subtract(starts[:, first:last], block, out=block)

    def to_rows(self, minuend: Floats | None = None) -> Floats:
        """Return one flat row per device: the values or, if given, `minuend` minus the values."""
        rows = np.empty((len(self._flat[0]), self._n_params), self._flat[0].dtype)
        for (first, last), block in zip(pairwise(self._edges), self._flat, strict=True):
            if minuend is None:
                rows[:, first:last] = block
            else:
                np.subtract(minuend[:, first:last], block, out=rows[:, first:last])
        return rows


class GroupTrainer:
    """Trains one group of devices; the jobs must come in the order of `group_jobs`."""

    def __init__(
        self, network: Network, jobs: Sequence[TrainJob], settings: TrainSettings, workspace: Workspace
    ) -> None:
        self._layers = network.layers
        self._jobs, self._settings, self._workspace = jobs, settings, workspace
        self._dtype = torch.from_numpy(np.empty(0, jobs[0].start.dtype)).dtype
        self._batches = GroupBatches(jobs, settings)
        n_units = sum(layer.n_out for layer in self._layers if layer.units)
        self._masks = DropoutMasks(jobs, n_units, network.dropout) if n_units else None

    def train(self) -> list[Update]:
        """Return one update per job."""
        same_start = all(job.start is self._jobs[0].start for job in self._jobs)
        starts = self._jobs[0].start[None] if same_start else np.stack([job.start for job in self._jobs])
        descend = self._descend_fused if self._settings.optimizer == "sgd" else self._descend_by_optimizer
        # Divergence is reported as an error that names the device, not as a warning about arithmetic.
        with np.errstate(invalid="ignore", over="ignore"):
            deltas, losses = descend(starts)
        return updates_from(self._jobs, deltas, losses)

    def _descend_fused(self, starts: Floats) -> tuple[Floats, Floats]:
        """Return deltas and losses of plain SGD, which needs no gradient beside the weights.

        The first step reads the start and writes what it subtracts. If it is the only step, that is the delta, and
        the devices' own weights never exist; with thousands of small devices, most of the time was their traffic.
        """
        losses = np.zeros(len(self._jobs))
        blocks = self._new_blocks("weights")
        lr = self._settings.lr
        for step in self._batches.steps(self._workspace, is_padded=True):
            n_active = len(step.samples)
            if step.index == 0:
                first = self._start_blocks(starts)
                losses += self._gradient(step, first, blocks, beta=0, alpha=lr)
            else:
                if step.index == 1:
                    blocks.subtract_from(starts)
                losses[:n_active] += self._gradient(step, blocks, blocks, beta=1, alpha=-lr)
        return blocks.to_rows(starts if self._batches.n_steps > 1 else None), losses

    def _descend_by_optimizer(self, starts: Floats) -> tuple[Floats, Floats]:
        """Return deltas and losses with an optimiser that has state."""
        losses = np.zeros(len(self._jobs))
        blocks, gradients = self._new_blocks("weights"), self._new_blocks("gradients")
        blocks.load(starts)
        optimizer = optimizer_for(self._settings)
        for step in self._batches.steps(self._workspace, is_padded=True):
            n_active = len(step.samples)
            losses[:n_active] += self._gradient(step, blocks, gradients, beta=0, alpha=1)
            optimizer.step(blocks.front(n_active), gradients.front(n_active))
        return blocks.to_rows(starts), losses

    def _new_blocks(self, name: str) -> LayerBlocks:
        n_devices = len(self._jobs)
        memory = self._workspace.tensor(name, (n_devices * self._layers[-1].last,), self._dtype)
        return LayerBlocks(self._layers, n_devices, memory)

    def _start_blocks(self, starts: Floats) -> LayerBlocks:
        if len(starts) == 1:
            return LayerBlocks.repeated(self._layers, len(self._jobs), starts[0])
        blocks = self._new_blocks("starts")
        blocks.load(starts)
        return blocks

    def _gradient(self, step: BatchStep, read: LayerBlocks, write: LayerBlocks, *, beta: float, alpha: float) -> Floats:
        """Set `write = beta * write + alpha * gradient` at the weights `read`; return each device's mean loss share."""
        activations = self._forward(step, read)
        mean_losses = self._backward(step, activations, read, write, beta, alpha)
        shares: Floats = step.loss_share.numpy()
        return mean_losses * shares

    def _forward(self, step: BatchStep, read: LayerBlocks) -> list[Tensor]:
        """Return the input of each layer and, last, the reconstruction."""
        n_active, n_rows = step.samples.shape[:2]
        mask = self._masks.draw(step.index, n_active, n_rows, self._dtype, self._workspace) if self._masks else None
        activations = [step.samples]
        for index, layer in enumerate(self._layers):
            weight, bias = read.weights[index][:n_active], read.biases[index][:n_active]
            out = self._workspace.tensor(f"activation {index}", (n_active, n_rows, layer.n_out), self._dtype)
            torch.baddbmm(bias, activations[-1], weight.transpose(1, 2), alpha=layer.input_gain, out=out)
            if layer.has_relu:
                out.relu_()
            if mask is not None and layer.units is not None:
                out.mul_(mask[:, :, layer.units])
            activations.append(out)
        return activations

    def _backward(
        self,
        step: BatchStep,
        activations: list[Tensor],
        read: LayerBlocks,
        write: LayerBlocks,
        beta: float,
        alpha: float,
    ) -> Floats:
        """Write all gradients and return each device's mean loss, shape `(n_active,)`."""
        n_active, n_rows = step.samples.shape[:2]
        error = activations[-1].sub_(step.samples)
        gradient = error * (2 * step.row_weights)[:, :, None]
        doubled_losses = torch.bmm(gradient.view(n_active, 1, -1), error.view(n_active, -1, 1))
        ones = torch.ones((n_active, 1, n_rows), dtype=self._dtype)
        for index in reversed(range(len(self._layers))):
            layer, inputs = self._layers[index], activations[index]
            if index > 0:
                # Before the weights change: a fused update would otherwise leak into the layer below.
                below = self._workspace.tensor(f"gradient {index}", (n_active, n_rows, layer.n_in), self._dtype)
                below.baddbmm_(gradient, read.weights[index][:n_active], beta=0, alpha=layer.input_gain)
            target = write.weights[index][:n_active]
            target.baddbmm_(gradient.transpose(1, 2), inputs, beta=beta, alpha=alpha * layer.input_gain)
            write.biases[index][:n_active].baddbmm_(ones, gradient, beta=beta, alpha=alpha)
            if index > 0:
                # An activation is zero where ReLU cut or dropout dropped, so one look at it serves both.
                is_cut = self._layers[index - 1].has_relu
                gradient = torch.ops.aten.threshold_backward(below, inputs, 0) if is_cut else below
        return doubled_losses.flatten().double().numpy() / 2
