"""The Python API: what `import tolfl` offers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard, cast

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from tolfl.core.errors import SpecError
from tolfl.core.spec import ModelSpec, RunSpec
from tolfl.datasets import FederatedDataset
from tolfl.experiments.comparison import Comparison, comparison_of, comparison_sweep, parse_schemes
from tolfl.learners.autoencoder import Autoencoder
from tolfl.learners.training import Model
from tolfl.sim.simulation import Run, run

if TYPE_CHECKING:
    from torch import Tensor, nn


def simulate(
    spec: RunSpec | None = None,
    *,
    data: str | Sequence[ArrayLike] | FederatedDataset | None = None,
    test: tuple[ArrayLike, ArrayLike] | None = None,
    validation: ArrayLike | None = None,
    model: nn.Module | Model | ModelSpec | dict[str, object] | None = None,
    loss: Callable[[nn.Module, Tensor], Tensor] | None = None,
    out: str | Path | None = None,
    **options: object,
) -> Run:
    """Simulate one run and return it.

    Parameters
    ----------
    spec
        The specification; `options` (any field of `RunSpec`) override it.
    data
        The name of a data set, or one array of typical samples per device, shape `(n_samples, ...)` each.
    test
        Samples and labels (1 = anomalous) to score the model on, with arrays as data.
    validation
        Held-back typical samples, with arrays as data: to choose between models, where there are several.
    model
        Any `nn.Module`; by default the paper's autoencoder. A dictionary sets its sizes: `{"hidden": [64], "code": 8}`.
    loss
        With a module: one value per sample from the module and a batch; by default the squared reconstruction error,
        summed over a sample, or the module's own method `sample_losses(batch)`.
    out
        A folder for the run directory; by default nothing is written.

    Examples
    --------
    >>> import tolfl
    >>> run = tolfl.simulate(scheme="tol-fl", data="blobs", devices=6, clusters=3, rounds=4, fail="server@2")
    >>> run.summary["survivors"]
    [1, 2, 3, 4, 5]
    """
    chosen, slices, module = _requested(spec or RunSpec(), data, test, validation, model, loss, options)
    if chosen.repetitions != 1:
        raise SpecError("simulate gives one run; for repetitions call it once per seed, or use tolfl simulate")
    return run(chosen, slices, module, None if out is None else Path(out))[0]


def compare(  # noqa: PLR0913  (each by its name)
    schemes: str | Sequence[str] = "all",
    spec: RunSpec | None = None,
    *,
    data: str | Sequence[ArrayLike] | FederatedDataset | None = None,
    test: tuple[ArrayLike, ArrayLike] | None = None,
    validation: ArrayLike | None = None,
    model: nn.Module | Model | ModelSpec | dict[str, object] | None = None,
    loss: Callable[[nn.Module, Tensor], Tensor] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    **options: object,
) -> Comparison:
    """Run several schemes under one failure plan, on the same data with the same seeds, and return them side by side.

    Parameters
    ----------
    schemes
        `"all"`, or some of them: `["tol-fl", "fl", "ifca"]`.
    spec, data, test, validation, model, loss, options
        As in `simulate`; `repetitions` (by default 3) is how many seeds.
    out
        A folder for the comparison and every run in it; by default nothing is written.
    resume
        Go on with the comparison in `out`.

    Examples
    --------
    >>> import tolfl
    >>> small = {"data": "blobs", "devices": 4, "clusters": 2, "rounds": 4, "repetitions": 2}
    >>> found = tolfl.compare(["tol-fl", "fl"], fail="server@2", **small)
    >>> [row["label"] for row in found.rows][:4]
    ['tol-fl (elect)', 'tol-fl (drop)', 'fl (isolate)', 'fl (freeze)']
    >>> found["fl (freeze)"]["difference_to_reference"]["mean"] is None
    False
    """
    names = parse_schemes(schemes if isinstance(schemes, str) else ",".join(schemes))
    spec = spec or RunSpec(repetitions=3)  # enough seeds to see a spread
    chosen, slices, module = _requested(spec, data, test, validation, model, loss, options)
    if chosen.on_head_failure:
        raise SpecError("on_head_failure does not apply to comparisons: they show every policy that matters")
    sweep = comparison_sweep(chosen, names, slices, module, None if out is None else Path(out), resume)
    for _ in sweep:
        pass
    return comparison_of(chosen, sweep)


def _requested(
    spec: RunSpec,
    data: str | Sequence[ArrayLike] | FederatedDataset | None,
    test: tuple[ArrayLike, ArrayLike] | None,
    validation: ArrayLike | None,
    model: nn.Module | Model | ModelSpec | dict[str, object] | None,
    loss: Callable[[nn.Module, Tensor], Tensor] | None,
    options: dict[str, object],
) -> tuple[RunSpec, FederatedDataset | None, Model | None]:
    """Return the specification that all arguments lead to, and the data and the model that were given.

    An option overrides a field; a dictionary changes only what it names (`train={"lr": 0.01}`).
    """
    slices = _as_dataset(data, test, validation)
    if isinstance(data, str):
        options["data"] = data
    if slices is not None:
        options = {"devices": slices.n_devices, **options, "data": slices.name}
    module = _as_model(model, loss, options)
    fields = msgspec.to_builtins(spec)
    for key, option in options.items():
        value = option.item() if isinstance(option, np.generic) else msgspec.to_builtins(option)
        is_partial = isinstance(option, dict) and isinstance(fields.get(key), dict)
        fields[key] = {**fields[key], **option} if is_partial and isinstance(option, dict) else value
    return RunSpec.from_fields(fields), slices, module


def _as_dataset(
    data: str | Sequence[ArrayLike] | FederatedDataset | None,
    test: tuple[ArrayLike, ArrayLike] | None,
    validation: ArrayLike | None,
) -> FederatedDataset | None:
    """Return data given as arrays; None where a data set is named."""
    if data is None or isinstance(data, str | FederatedDataset):
        for name, value in (("test", test), ("validation", validation)):
            if value is not None:
                raise SpecError(f"{name} goes with arrays as data; other data sets bring their own")
        return data if isinstance(data, FederatedDataset) else None
    return FederatedDataset.from_arrays(data, test, validation=validation)


def _as_model(
    model: nn.Module | Model | ModelSpec | dict[str, object] | None,
    loss: Callable[[nn.Module, Tensor], Tensor] | None,
    options: dict[str, object],
) -> Model | None:
    """Return the model that was given; sizes of the autoencoder go into the options."""
    if _is_module(model):
        from tolfl.learners.torch_module import ModuleModel  # noqa: PLC0415  (torch is an extra)

        options["model"] = {"module": type(model).__qualname__}
        return ModuleModel(model, loss)
    if loss is not None:
        raise SpecError("loss goes with a module as model")
    if isinstance(model, dict | ModelSpec):
        options["model"] = model
        return None
    if model is not None and not hasattr(model, "sample_losses"):
        raise SpecError(f"model {model!r}: give an nn.Module (an object, not its class), or a dictionary of sizes")
    return cast("Model | None", model)


def _is_module(model: object) -> TypeGuard[nn.Module]:
    """Return whether it is a PyTorch module; without torch imported, it is none."""
    return "torch" in sys.modules and isinstance(model, sys.modules["torch"].nn.Module)


__all__ = ["Autoencoder", "Comparison", "FederatedDataset", "Run", "RunSpec", "compare", "simulate"]
