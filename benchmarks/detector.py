"""`python -m benchmarks.detector`: is the detector good, and is it fast? One table each.

Quality: AUROC of the Mahalanobis distance, trained by ten devices that keep their rows, with nobody lost and with one
killed after the scaling, against detectors that have all rows in one place: PCA, IsolationForest, PyOD's AutoEncoder
(skipped where PyOD is not installed). All get the same rows; splits are the declared ones, never chosen by a result.

Speed: rows scored per second, in turns, so that whatever else the machine does hits all of them.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec

import msgspec
import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest
from sklearn.preprocessing import MinMaxScaler

from tolfl.core.errors import TolFLError
from tolfl.core.metrics import auroc
from tolfl.core.spec import RunSpec
from tolfl.detect import DetectorSpec, fit_detector
from tolfl.detect.gathering import Gathered, gather

DATA = ("fashion-mnist", "wsn-ds", "comms-ml")
GOAL = 0.01
N_DEVICES = 10

Rows = NDArray[np.floating]
Score = Callable[[Rows], NDArray[np.floating]]


@dataclass
class Quality:
    """AUROCs of one data set, split by split."""

    ours: dict[str, list[float]] = field(default_factory=lambda: {"mahalanobis": [], "mahalanobis, one killed": []})
    rivals: dict[str, list[float]] = field(default_factory=dict)
    chosen: list[str] = field(default_factory=list)


def data_of(name: str, split: int, max_train: int | None, max_test: int | None) -> Gathered:
    """Return one declared split: another choice of classes, another draw, or another seed of the partition."""
    dataset = msgspec.structs.replace(RunSpec().dataset, max_train=max_train, max_test=max_test)
    spec = RunSpec(data=name, devices=N_DEVICES, splits=split + 1, repetitions=split + 1, dataset=dataset)
    if name == "wsn-ds":  # its attacks are its attacks: splits are draws of the test rows
        return gather(msgspec.structs.replace(spec, splits=1, repetitions=1, seed=split), N_DEVICES)
    return gather(spec.repetition(split), N_DEVICES)


def ours(data: Gathered, fail: str, seed: int, rounds: int | None) -> tuple[Score, str]:
    spec = DetectorSpec(fail=fail, seed=seed, rounds=rounds)
    detector = fit_detector(data.slices, spec, data.features)
    return detector.anomaly_score, detector.choice.name


def centralised(data: Gathered, seed: int, epochs: int) -> Iterator[tuple[str, Score]]:
    """Yield detectors that have all training rows in one place, scaled by their ranges."""
    rows = np.concatenate(list(data.slices.values()))
    scaler = MinMaxScaler().fit(rows)
    scaled = scaler.transform(rows)
    for share in (0.9, 0.99):
        pca = PCA(n_components=share, svd_solver="full").fit(scaled)
        yield f"PCA, {share:.0%} of the variance", _pca_score(pca, scaler)
    forest = IsolationForest(random_state=seed).fit(rows)
    yield "IsolationForest", lambda X: -forest.score_samples(X)
    if find_spec("pyod"):
        yield "PyOD AutoEncoder", _pyod(rows, seed, epochs)


def _pca_score(pca: PCA, scaler: MinMaxScaler) -> Score:
    def score(X: Rows) -> NDArray[np.floating]:
        scaled = scaler.transform(X)
        return np.square(scaled - pca.inverse_transform(pca.transform(scaled))).sum(axis=1)  # type: ignore[no-any-return]

    return score


def _pyod(rows: Rows, seed: int, epochs: int) -> Score:
    from pyod.models.auto_encoder import AutoEncoder  # noqa: PLC0415  (not everybody has it)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rival = AutoEncoder(epoch_num=epochs, random_state=seed, verbose=0)
        rival.fit(rows)
    return rival.decision_function  # type: ignore[no-any-return]


def quality_of(name: str, arguments: argparse.Namespace) -> Quality:
    found = Quality()
    for split in range(arguments.splits):
        data = data_of(name, split, arguments.max_train, arguments.max_test)
        assert data.test is not None
        rows, truth = data.test
        for label, fail in (("mahalanobis", ""), ("mahalanobis, one killed", "server@1")):
            score, chosen = ours(data, fail, split, arguments.rounds)
            found.ours[label].append(auroc(score(rows), truth))
            found.chosen.append(chosen)
        for label, score in centralised(data, split, arguments.epochs):
            found.rivals.setdefault(label, []).append(auroc(score(rows), truth))
        print(f"  {name}, split {split}: done", flush=True)
    return found


def quality_table(results: dict[str, Quality]) -> Iterator[str]:
    yield f"| data set | detector | AUROC, mean | range | against the best in one place (goal: -{GOAL}) |"
    yield "|---|---|---|---|---|"
    for name, found in results.items():
        means = {label: statistics.mean(values) for label, values in found.rivals.items()}
        best = max(means.values())
        for label, values in found.ours.items():
            gap = statistics.mean(values) - best
            verdict = "met" if gap >= -GOAL else "missed"
            chosen = "/".join(dict.fromkeys(found.chosen))
            yield f"| {name} | **{label}** ({chosen}) | {_mean(values)} | {gap:+.4f}, {verdict} |"
        for label, values in found.rivals.items():
            yield f"| {name} | {label}, in one place | {_mean(values)} | |"


def _mean(values: list[float]) -> str:
    return f"{statistics.mean(values):.4f} | {min(values):.4f}-{max(values):.4f}"


def speed_table(name: str, arguments: argparse.Namespace) -> Iterator[str]:
    """Yield rows scored per second of each detector, measured in turns."""
    data = data_of(name, 0, arguments.max_train, arguments.max_test)
    assert data.test is not None
    rows = np.resize(data.test[0], (arguments.speed_rows, data.features.n)).astype(np.float32)
    score, chosen = ours(data, "", 0, arguments.rounds or 5)
    autoencoder = fit_detector(data.slices, DetectorSpec(model="autoencoder", rounds=2), data.features)
    rivals = {f"tolfl {chosen}": score, "tolfl autoencoder": autoencoder.anomaly_score}
    rivals |= {label: own for label, own in centralised(data, 0, 1) if not label.startswith("PCA")}
    seconds: dict[str, list[float]] = {label: [] for label in rivals}
    for _ in range(arguments.repeats):
        for label, one in rivals.items():
            started = time.perf_counter()
            one(rows)
            seconds[label].append(time.perf_counter() - started)
    for label, spent in seconds.items():
        median = statistics.median(spent)
        spread = f"{len(rows) / max(spent):,.0f}-{len(rows) / min(spent):,.0f}"
        yield f"| {name}, {data.features.n} features | {label} | {len(rows) / median:,.0f} | {spread} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="*", default=list(DATA))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--max-train", type=int, default=20_000, help="training rows in all")
    parser.add_argument("--max-test", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, help="(default: the detector's own)")
    parser.add_argument("--epochs", type=int, default=20, help="of PyOD's AutoEncoder (its default is 10)")
    parser.add_argument("--speed-rows", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=["quality", "speed"])
    arguments = parser.parse_args()
    if not find_spec("pyod"):
        print("PyOD is not installed: its AutoEncoder is left out (pip install pyod)\n")
    try:
        if arguments.only != "speed":
            results = {name: quality_of(name, arguments) for name in arguments.data}
            print(f"\n{N_DEVICES} devices, {arguments.splits} declared splits, up to {arguments.max_train} rows\n")
            print("\n".join(quality_table(results)), flush=True)
        if arguments.only != "quality":
            print("\n| data | detector | rows per second, median | range |\n|---|---|---|---|", flush=True)
            for name in arguments.data:
                print("\n".join(speed_table(name, arguments)), flush=True)
    except TolFLError as error:
        raise SystemExit(f"benchmark: {error}") from None


if __name__ == "__main__":
    main()
