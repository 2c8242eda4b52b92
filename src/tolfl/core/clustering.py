"""Hyper-parameters of the schemes that train several models; each with where its default comes from."""

from __future__ import annotations

from typing import Literal

import msgspec

from tolfl.core.errors import SpecError

Weight = Literal["samples", "equal"]


class FedGroupSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """FedGroup; defaults of the authors' code (FlexCFL) unless said otherwise."""

    pretrain_scale: int = 20  #: at most so many devices per group form the groups; the others join later
    pretrain_iterations: int = 50  #: mini-batches of pre-training, rounded up to whole epochs
    measure: Literal["edc", "madc"] = "edc"  #: cosine features and k-means, or mean differences of cosines
    kmeans_iterations: int = 20
    inter_group_lr: float = 0.0  #: of the step between groups; the authors use 0, 0.01 and 0.1; 0: none
    weight: Weight = "samples"  #: of a member's model in its group


class IFCASpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """IFCA; the authors warm up for 20 rounds on FEMNIST, 5 are enough for the autoencoder."""

    init: Literal["warm", "random"] = "warm"  #: a random balanced partition first, or independent random models
    warm_rounds: int = 5  #: of federated averaging inside each part
    restarts: int = 3  #: first partitions that are tried; the one with the least training loss goes on
    trial_rounds: int = 10  #: rounds after which the restarts are compared
    weight: Weight = "samples"  #: the authors' mean is unweighted; their devices have equally many samples


class FeSEMSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """FeSEM, the multi-centre method; its code starts from random centres, which all devices may be far from."""

    init: Literal["k-means++", "random"] = "k-means++"
    pretrain_epochs: int = 5  #: of each device before the centres are found
    layers: tuple[str, ...] = ()  #: parameters that distances are measured on, by the start of their names; (): all
    weight: Weight = "equal"  #: the paper's M-step is the plain mean


def check_clustering(fedgroup: FedGroupSpec, ifca: IFCASpec, fesem: FeSEMSpec) -> None:
    """Say in one sentence what is wrong with a number."""
    numbers = {
        "fedgroup pretrain_scale": fedgroup.pretrain_scale,
        "fedgroup pretrain_iterations": fedgroup.pretrain_iterations,
        "fedgroup kmeans_iterations": fedgroup.kmeans_iterations,
        "ifca restarts": ifca.restarts,
        "ifca trial_rounds": ifca.trial_rounds,
        "fesem pretrain_epochs": fesem.pretrain_epochs,
    }
    for name, number in numbers.items():
        if number < 1:
            raise SpecError(f"{name} {number}; use at least 1")
    if ifca.warm_rounds < 0:
        raise SpecError(f"ifca warm_rounds {ifca.warm_rounds}; use at least 0")
    if not 0 <= fedgroup.inter_group_lr < float("inf"):
        raise SpecError(f"fedgroup inter_group_lr {fedgroup.inter_group_lr:g}; use at least 0")
