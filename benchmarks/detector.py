"""`python -m benchmarks.detector`: is the default detector good, are its false alarms as promised, is it fast to fit?

Quality: AUROC of cells on eleven sets that are made from three data sets, each with 1,000 training rows on 8 devices,
of which device 0 is lost with all its rows before the first round; rivals have all rows in one place. Clean: typical
rows only, split over devices by k-means, so that the lost one had what nobody else has. Contaminated: rows as they
come, a share of them anomalous, over devices at random.

False alarms: a budget of 1 %, over ten seeds, on typical rows that nobody trained on: of the devices that took part, as
often as the budget is said to be guaranteed.

Speed: CPU seconds to fit 100,000 rows, against scikit-learn's IsolationForest to fit and score the same ones.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

from tolfl.core.errors import TolFLError
from tolfl.core.metrics import auroc
from tolfl.core.spec import RunSpec
from tolfl.datasets import FederatedDataset
from tolfl.datasets.catalog import load_raw
from tolfl.detect import DetectorSpec, fit_detector
from tolfl.detect.detector import Detector

N_DEVICES, N_TRAIN = 8, 1000

Rows = NDArray[np.floating]
Flags = NDArray[np.bool_]
Score = Callable[[Rows], NDArray[np.floating]]


@dataclass(frozen=True)
class LabelledSet:
    """Rows, and which of them are anomalous."""

    name: str
    rows: Rows
    is_anomalous: Flags


def labelled_sets(names: list[str]) -> Iterator[LabelledSet]:
    """Yield the eleven sets, drawn once with seed 0."""
    if "comms-ml" in names:
        yield from _comms_ml()
    if "wsn-ds" in names:
        yield from _wsn_ds()
    if "fashion-mnist" in names:
        yield from _fashion_mnist()


def _drawn(
    name: str, rows: Rows | NDArray[np.uint8], typical: Flags, anomalous: Flags, sizes: tuple[int, int]
) -> LabelledSet:
    rng = np.random.default_rng(0)
    chosen = [
        rng.permutation(np.flatnonzero(one))[:size] for one, size in zip((typical, anomalous), sizes, strict=True)
    ]
    return LabelledSet(
        name, rows[np.concatenate(chosen)].astype(np.float64), np.repeat([False, True], [*map(len, chosen)])
    )


def _comms_ml() -> Iterator[LabelledSet]:
    raw = load_raw(RunSpec(data="comms-ml"))
    typical = np.isin(raw.labels, ["region-1", "region-2", "region-3"])
    for kind in ("bluetooth", "rate", "region-4"):
        yield _drawn(f"comms-ml {kind}", raw.samples, typical, raw.labels == kind, (9000, 800))


def _wsn_ds() -> Iterator[LabelledSet]:
    raw = load_raw(RunSpec(data="wsn-ds"))
    for kind in ("Blackhole", "Flooding", "Grayhole", "TDMA"):
        yield _drawn(f"wsn-ds {kind}", raw.samples, raw.labels == "Normal", raw.labels == kind, (15_000, 800))


def _fashion_mnist() -> Iterator[LabelledSet]:
    raw = load_raw(RunSpec(data="fashion-mnist"))
    pixels = raw.samples.reshape(len(raw.samples), -1)
    for classes in (["0"], ["6"], ["8"], list("01234")):
        typical = np.isin(raw.labels, classes)
        name = "0-4" if len(classes) > 1 else classes[0]
        yield _drawn(f"fashion-mnist {name}", pixels, typical, ~typical, (5000, 500))


# -- quality --------------------------------------------------------------------------------------------------------


def training_rows(data: LabelledSet, is_clean: bool, seed: int) -> tuple[NDArray[np.int64], Flags]:
    """Return which rows train, and which test."""
    rng = np.random.default_rng([seed, 1])
    able = np.flatnonzero(~data.is_anomalous) if is_clean else np.arange(len(data.rows))
    train = rng.permutation(able)[:N_TRAIN]
    tests = np.ones(len(data.rows), bool)
    tests[train] = False
    return train, tests


def slices_of(rows: Rows, is_clean: bool, seed: int) -> dict[str, Rows]:
    """Return the rows of each device: by k-means of the standardised rows, or at random."""
    if is_clean:
        scaled = StandardScaler().fit_transform(rows)
        whose = KMeans(N_DEVICES, n_init=1, random_state=seed).fit_predict(scaled)
    else:
        whose = np.random.default_rng([seed, 2]).permutation(np.arange(len(rows)) % N_DEVICES)
    return {str(device): rows[whose == device] for device in range(N_DEVICES)}


def ours(model: str) -> Callable[[dict[str, Rows], int], Score]:
    """Return how a detector is fitted by devices of which the first is lost."""

    def fitted(slices: dict[str, Rows], seed: int) -> Score:
        return fit_detector(slices, DetectorSpec(model=model, fail="device:0@0", seed=seed)).anomaly_score  # type: ignore[arg-type]

    return fitted


def knn(slices: dict[str, Rows], seed: int) -> Score:  # noqa: ARG001
    rows = np.concatenate(list(slices.values()))
    scaler = StandardScaler().fit(rows)
    neighbours = NearestNeighbors(n_neighbors=5).fit(scaler.transform(rows))
    return lambda X: neighbours.kneighbors(scaler.transform(X))[0][:, -1]


def forest(slices: dict[str, Rows], seed: int) -> Score:
    fitted = IsolationForest(random_state=seed).fit(np.concatenate(list(slices.values())))
    return lambda X: -fitted.score_samples(X)


RIVALS = {"cells": ours("cells"), "mahalanobis": ours("mahalanobis"), "KNN": knn, "IsolationForest": forest}


def quality_table(arguments: argparse.Namespace) -> Iterator[str]:
    """Yield AUROCs: clean / contaminated, means over seeds."""
    yield "| set | " + " | ".join(RIVALS) + " |"
    yield "|---" * (len(RIVALS) + 1) + "|"
    found: dict[tuple[str, bool], list[float]] = {}
    for data in labelled_sets(arguments.data):
        cells = []
        for name, rival in RIVALS.items():
            means = []
            for is_clean in (True, False):
                values = [_auroc(rival, data, is_clean, seed) for seed in range(arguments.seeds)]
                means.append(statistics.mean(values))
                found.setdefault((name, is_clean), []).append(means[-1])
            cells.append(" / ".join(f"{mean:.3f}" for mean in means))
        yield f"| {data.name} | " + " | ".join(cells) + " |"
    means_of = {name: [statistics.mean(found[name, is_clean]) for is_clean in (True, False)] for name in RIVALS}
    yield "| **mean** | " + " | ".join(" / ".join(f"{mean:.3f}" for mean in pair) for pair in means_of.values()) + " |"


def _auroc(rival: Callable[[dict[str, Rows], int], Score], data: LabelledSet, is_clean: bool, seed: int) -> float:
    train, tests = training_rows(data, is_clean, seed)
    score = rival(slices_of(data.rows[train], is_clean, seed), seed)
    return auroc(np.asarray(score(data.rows[tests]), np.float64), data.is_anomalous[tests])


# -- false alarms ---------------------------------------------------------------------------------------------------


def alarm_table(arguments: argparse.Namespace) -> Iterator[str]:
    """Yield the share of typical rows that raise an alarm with a budget of 1 %, by whose rows they are."""
    yield "| set | live devices | the lost device | the lost one, 20 own rows | guaranteed in | expected |"
    yield "|---|---|---|---|---|---|"
    rates: list[float] = []
    for data in labelled_sets(arguments.data):
        live, lost, adapted, promised, expected = zip(
            *(_alarms(data, seed) for seed in range(arguments.alarm_seeds)), strict=True
        )
        rates.append(statistics.mean(live))
        yield (
            f"| {data.name} | {statistics.mean(live):.2%} | {np.nanmean(lost):.1%} | {np.nanmean(adapted):.1%} | "
            f"{sum(promised)} of {len(promised)} | {statistics.mean(expected):.2%} |"
        )
    yield f"| **mean** | {statistics.mean(rates):.2%} | | | | |"


def _alarms(data: LabelledSet, seed: int) -> tuple[float, float, float, bool, float]:
    """Return rates on rows of live devices, of the lost one, of that with own cells; and what was promised."""
    typical = np.random.default_rng([seed, 3]).permutation(data.rows[~data.is_anomalous])[: 5 * N_TRAIN]
    slices = slices_of(typical, True, seed)
    known = {name: own[: len(own) // 4] for name, own in slices.items()}
    detector = fit_detector(known, DetectorSpec(fail="device:0@0", seed=seed))
    new = {name: own[len(own) // 4 :] for name, own in slices.items()}
    alarms = np.concatenate([detector.verdicts(own) for name, own in new.items() if name != "0"])
    lost = float(detector.verdicts(new["0"]).mean())
    adapted = _with_own_cells(detector, new["0"])
    fleet = detector.thresholds.fleet
    return float(alarms.mean()), lost, adapted, fleet.is_guaranteed, fleet.expected_rate


def _with_own_cells(detector: Detector, rows: Rows) -> float:
    if len(rows) < 40:
        return float("nan")
    adapted = detector.with_own_cells({"0": rows[:20]})
    return float(adapted.verdicts(rows[20:], ["0"] * (len(rows) - 20)).mean())


# -- speed ----------------------------------------------------------------------------------------------------------


def speed_table(arguments: argparse.Namespace) -> Iterator[str]:
    """Yield CPU seconds to fit, in turns with IsolationForest."""
    yield "| rows x features | cells, s of CPU | IsolationForest, s | ratio |"
    yield "|---|---|---|---|"
    for n_features in (15, 112, 784):
        rng = np.random.default_rng(0)
        mixed = rng.normal(size=(min(20, n_features), n_features)).astype(np.float32)
        rows = rng.normal(size=(arguments.speed_rows, len(mixed))).astype(np.float32) @ mixed
        rows += 0.3 * rng.normal(size=rows.shape).astype(np.float32)
        # As `tolfl fit` reads it; ten arrays in a dictionary would be copied into one first.
        bounds = tuple(np.linspace(0, len(rows), 11).astype(int).tolist())
        names = tuple(f"x{place}" for place in range(n_features))
        data = FederatedDataset("rows", rows, bounds, feature_names=names, names=tuple(map(str, range(10))))
        taken: dict[str, list[float]] = {"cells": [], "forest": []}
        for _ in range(arguments.repeats):
            taken["cells"].append(_cpu(partial(fit_detector, data, DetectorSpec())))
            taken["forest"].append(_cpu(partial(_forest_scores, rows)))
        cells, trees = (statistics.median(one) for one in taken.values())
        yield f"| {len(rows):,} x {n_features} | {cells:.2f} | {trees:.2f} | {cells / trees:.2f} |"


def _forest_scores(rows: Rows) -> NDArray[np.floating]:
    scores: NDArray[np.floating] = IsolationForest(random_state=0).fit(rows).score_samples(rows)
    return scores


def _cpu(call: Callable[[], object]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="*", default=["comms-ml", "wsn-ds", "fashion-mnist"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--alarm-seeds", type=int, default=10)
    parser.add_argument("--speed-rows", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=["quality", "alarms", "speed"])
    arguments = parser.parse_args()
    tables = {"quality": quality_table, "alarms": alarm_table, "speed": speed_table}
    try:
        for name, table in tables.items():
            if arguments.only in {None, name}:
                for line in table(arguments):
                    print(line, flush=True)
                print(flush=True)
    except TolFLError as error:
        raise SystemExit(f"benchmark: {error}") from None


if __name__ == "__main__":
    main()
