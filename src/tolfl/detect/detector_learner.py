"""A detector as a learner: the stages of its model, then thresholds; then one file.

Everything in the file follows from the state after the last round, from what all devices know of the fleet and from
the specification: every device that has the state writes the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tolfl.core.contribution import Contribution
from tolfl.core.device_set import DeviceSet
from tolfl.core.errors import SpecError, did_you_mean
from tolfl.core.spec import RunSpec
from tolfl.detect.cells import Cells
from tolfl.detect.cells_learner import cell_stages
from tolfl.detect.detector import Detector, DeviceLoss, DeviceShare, Training
from tolfl.detect.detector_spec import OF_CELLS, DetectorSpec
from tolfl.detect.detector_stage import ModelStage, flat
from tolfl.detect.features import Features
from tolfl.detect.reconstruction import Reconstruction
from tolfl.detect.reconstruction_learner import AutoencoderTraining, StatisticsRound
from tolfl.detect.scaling_rounds import Scaling
from tolfl.detect.threshold_learner import NoveltyRounds, ThresholdRounds
from tolfl.learners.learner import Closing, Fleet, Learner, Scorer, Stages, State
from tolfl.learners.registry import OF_FLEETS
from tolfl.tables import Schema

#: Keys of `[learn]`; the rest of a detector's specification is that of the run.
LEARN_KEYS = (
    "model", "cells", "trim", "n_components", "hidden", "code", "dropout", "lr", "scaling", "held_back",
    "false_alarm_rate", "alarms_per_day", "windows_per_day",
)  # fmt: skip

#: Products of more features than this are too much to send: 2,000 features are 16 MB.
MAX_FEATURES = 2000
FEWEST_ROWS = 10  #: of all devices together
DETECTOR_FILE = "detector.tolfl"


@dataclass(frozen=True, eq=False)
class DetectorResult:
    """The result of a fleet's training: a detector."""

    detector: Detector
    users: DeviceSet | None = None  #: all devices

    def anomaly_score(self, rows: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return one score per row: the higher, the more anomalous."""
        return self.detector.anomaly_score(flat(rows))

    def files(self) -> dict[str, bytes]:
        """Return the one file that a detector is."""
        return {DETECTOR_FILE: self.detector.to_bytes()}


class DetectorStages(Stages):
    """The stages of a detector. The state also has the rounds of each device: how many, and the last one."""

    def __init__(self, fleet: Fleet, spec: DetectorSpec, prior: Detector | None = None) -> None:
        self.fleet, self.spec, self.prior = fleet, spec, prior
        if spec.model != "autoencoder" and fleet.n_features > MAX_FEATURES:
            raise SpecError(
                f"{spec.model} would send the products of {fleet.n_features} features; use at most {MAX_FEATURES} "
                "features, or the model autoencoder"
            )
        stages: dict[str, Learner]
        if spec.model in OF_CELLS:
            stages = cell_stages(fleet, spec, prior is not None)
        elif spec.model == "pca":
            stages = {"scaling": Scaling(fleet, spec), "statistics": StatisticsRound(fleet, spec)}
        else:
            stages = {"scaling": Scaling(fleet, spec), "autoencoder": AutoencoderTraining(fleet, spec)}
        *_, self._last = (stage for stage in stages.values() if isinstance(stage, ModelStage))
        found = stages.get("novelty")
        self._novelty = found if isinstance(found, NoveltyRounds) else None
        self._thresholds = ThresholdRounds(fleet, spec, self._last)
        super().__init__({**stages, "thresholds": self._thresholds})

    def start(self, state: State) -> State:
        """Return what the first stage starts from, and that nobody has contributed yet."""
        n_devices = self.fleet.n_devices
        nobody = {"provenance/rounds": np.zeros(n_devices, np.int64), "provenance/last": np.full(n_devices, -1)}
        return super().start({**state, **nobody, **({} if self.prior is None else prior_state(self.prior))})

    def apply(self, state: State, total: Contribution, closing: Closing) -> State:
        """Return the state after a round, with who was in it."""
        present = list(total.included)
        if present:
            n_rounds, last = state["provenance/rounds"].copy(), state["provenance/last"].copy()
            n_rounds[present] += 1
            last[present] = closing.round
            state = {**state, "provenance/rounds": n_rounds, "provenance/last": last}
        return super().apply(state, total, closing)

    def nbytes(self, round_index: int) -> tuple[int, int]:
        """Return the bytes of a contribution and of a closed round, which says who was in it."""
        up, down = super().nbytes(round_index)
        return up, down + 16 * self.fleet.n_devices

    def results(self, state: State) -> dict[str, Scorer]:
        """Return the detector, once there are thresholds."""
        found = self.detector(state)
        return {} if found is None else {"detector": DetectorResult(found)}

    def detector(self, state: State) -> Detector | None:
        """Return the detector that a state holds; None: there are no thresholds yet."""
        fleet, prior = self.fleet, self.prior
        model, thresholds = self._last.model(state), self._thresholds.thresholds(state, self._names)
        if model is None or thresholds is None:
            return None
        novelty = None if prior is None else prior.novelty
        if self._novelty is not None:
            novelty = self._novelty.novelty(state, self._names)
        return Detector(
            self.spec,
            Features.named(fleet.columns or [f"x{place}" for place in range(fleet.n_features)]),
            model,
            thresholds,
            (*(() if prior is None else prior.trainings), self._training_of(state, model)),
            schema=None if fleet.form is None else Schema.of_fleet(fleet.columns, fleet.form),
            novelty=novelty,
        )

    def _training_of(self, state: State, model: Cells | Reconstruction) -> Training:
        if self.prior is None:
            n_samples = int(state[self._last.counts][0])
        else:
            n_samples = self.prior.trainings[-1].n_samples + int(state["sizes"][::2].sum())
        sizes = [(int(trained), int(held_back)) for trained, held_back in state["sizes"].reshape(-1, 2)]
        rounds, last = (state[f"provenance/{what}"].tolist() for what in ("rounds", "last"))
        last_round = max(last)
        return Training(
            scheme=self.spec.scheme,
            model=model.name,
            rounds=last_round + 1,
            n_samples=n_samples,
            devices=tuple(
                DeviceShare(name, *size, n_rounds, seen == last_round)
                for name, size, n_rounds, seen in zip(self._names, sizes, rounds, last, strict=True)
            ),
            events=losses(self._names, last, last_round, self.stage),
            ended="over" if last_round + 1 == self.rounds else f"in {self.stage(last_round)[0]}",
            notes=self._last.notes(state),
        )

    @property
    def _names(self) -> tuple[str, ...]:
        return self.fleet.names or tuple(map(str, range(self.fleet.n_devices)))


def prior_state(detector: Detector) -> State:
    """Return what further training goes on from: scaling and cells, their counts, sums and scatter, and the scores."""
    model, fleet = detector.model, detector.thresholds.fleet
    assert isinstance(model, Cells)
    arrays = model.arrays()
    kept = {key: array for key, array in arrays.items() if key.startswith(("scaling/", "words/", "cells/"))}
    n_at_least = np.array([*fleet.n_at_least, 0])
    return {
        **kept,
        "prior/counts": arrays["cells/counts"],
        "prior/centres": arrays["cells/centres"],
        "prior/scatter": arrays["scatter"],
        "prior/scatter-n": arrays["scatter/n"],
        "prior/bins": np.array(fleet.levels, dtype=np.int64),
        "prior/bin-counts": n_at_least[:-1] - n_at_least[1:],
    }


def detector_learner(fleet: Fleet) -> DetectorStages:
    """Return the learner of a detector, with the settings that `[learn]` gives.

    >>> run = RunSpec(devices=4, learn={"what": "detector", "model": "pca", "n_components": 2})
    >>> learner = detector_learner(Fleet(run, (6,)))
    >>> learner.rounds, [learner.stage(place)[0] for place in range(3)]
    (4, ['scaling', 'statistics', 'thresholds'])
    """
    return DetectorStages(fleet, spec_for_run(fleet.spec))


#: Raw rows: what scales them is the first stage.
detector_learner.takes_raw_rows = True  # type: ignore[attr-defined]
detector_learner.fewest_rows = FEWEST_ROWS  # type: ignore[attr-defined]


def spec_for_run(run: RunSpec) -> DetectorSpec:
    """Return a detector's specification: settings from `[learn]`, the rest from the run, without its failure plan."""
    settings = {key: value for key, value in run.learn.items() if key not in OF_FLEETS}
    for key in settings:
        if key not in LEARN_KEYS:
            near = did_you_mean(key, LEARN_KEYS)
            raise SpecError(f"learn: a detector has no setting {key!r}; it has {', '.join(LEARN_KEYS)}{near}")
    of_run = {
        "scheme": run.scheme, "clusters": run.clusters, "rounds": run.rounds,
        "on_head_failure": run.on_head_failure, "seed": run.seed,
    }  # fmt: skip
    return DetectorSpec.from_fields({**of_run, **settings}, "learn: ")


def losses(
    names: Sequence[str], last: Sequence[int], last_round: int, stage: Callable[[int], tuple[str, int, int]]
) -> tuple[DeviceLoss, ...]:
    """Return the devices that were lost, and the round of their last contribution; earliest first.

    >>> losses(["a", "b", "c"], [2, 1, -1], 2, lambda round_index: ("scaling", round_index, 3))[1].what
    'lost; last heard of in scaling 1'
    """
    events = []
    for seen, name in sorted((seen, place) for place, seen in enumerate(last)):
        if seen < 0:
            events.append(DeviceLoss(0, names[name], "never heard of"))
        elif seen < last_round:
            of_stage, inner, _ = stage(seen)
            events.append(DeviceLoss(seen + 1, names[name], f"lost; last heard of in {of_stage} {inner}"))
    return tuple(events)
