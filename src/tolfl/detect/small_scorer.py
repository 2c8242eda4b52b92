#!/usr/bin/env python3
"""Score rows with an exported detector. Needs numpy and onnxruntime, and nothing else: one file for a small device.

python score_onnx.py model.onnx readings.csv            # or JSON lines
sensor | python score_onnx.py model.onnx - --alert-only --device-column site
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np


class SmallScorer:
    """An exported detector. Higher scores are more anomalous; above the threshold a row is an alarm."""

    def __init__(self, path: str | Path) -> None:
        onnxruntime = import_module("onnxruntime")  # here, so that --help needs nothing
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its errors have no base of their own
            raise ValueError(f"{path} cannot be read by onnxruntime ({error})") from None
        stored = self._session.get_modelmeta().custom_metadata_map.get("tolfl")
        if stored is None:
            raise ValueError(f"{path} is no detector that tolfl exported")
        self.about: dict[str, Any] = json.loads(stored)
        self.features: list[str] = self.about["features"]
        self.threshold: float = self.about["fleet"]["value"]

    def scores(self, rows: Any) -> Any:
        """Return one score per row, rows as `(n_rows, n_features)`."""
        samples = np.asarray(rows, dtype=np.float64).reshape(-1, len(self.features))
        return self._session.run(["score"], {"samples": samples})[0]

    def p_values(self, scores: Any, device: str | None = None) -> Any:
        """Return how likely a typical row is to score so high, by the limit of its device."""
        limit, values = self.limit_of(device), np.asarray(scores, dtype=np.float32)
        lowest, highest = (int(np.float32(edge).view(np.uint32)) >> 16 for edge in (2.0**-32, 2.0**64))
        bins = np.clip(np.maximum(values, np.float32(0)).view(np.uint32).astype(np.int64) >> 16, lowest, highest)
        if limit["is_extrapolated"]:
            bottoms = (bins << 16).astype(np.uint32).view(np.float32).astype(np.float64)
            steps = np.log(bottoms / limit["median"]) / limit["tail"]
            p = np.clip(0.5 * np.exp(-np.clip(steps, -1.0, 700.0)), 0.0, 1.0)
        else:
            place = np.searchsorted(np.array(limit["levels"]), bins - lowest, side="left")
            p = (1.0 + np.array([*limit["n_at_least"], 0])[place]) / (limit["n_scores"] - limit["n_odd"] + 1.0)
        budget, is_alarm = limit["budget"], values > np.float32(limit["value"])
        return np.where(is_alarm, np.minimum(p, budget), np.maximum(p, np.nextafter(budget, 1.0)))

    def limit_of(self, device: str | None) -> dict[str, Any]:
        """Return a device's own limit, the fleet's where it has none."""
        own: dict[str, Any] = self.about["devices"].get(device, self.about["fleet"])
        return own

    def threshold_of(self, device: str | None) -> float:
        """Return a device's own threshold, the fleet's where it has none."""
        return float(self.limit_of(device)["value"])

    def judge(self, row: dict[str, Any], device: str | None = None) -> dict[str, Any]:
        """Return score, p-value and verdict of one row, given by the names of its features."""
        values = [self._value(row, name) for name in self.features]
        score = float(self.scores([values])[0])
        verdict = "alarm" if score > self.threshold_of(device) else "typical"
        return {"score": score, "p_value": float(self.p_values([score], device)[0]), "verdict": verdict}

    @staticmethod
    def _value(row: dict[str, Any], name: str) -> float:
        if name not in row and "=" in name:  # one value of a column of words
            column, _, word = name.partition("=")
            if row.get(column):
                return float(str(row[column]).strip() == word)
        text = row.get(name)
        if text is None or text == "":
            raise ValueError(f"{name!r} is missing")
        value = float(text)
        if not np.isfinite(value):
            raise ValueError(f"{name!r} is {text}")
        return value


def rows_of(stream: IO[str]) -> Iterator[dict[str, Any] | str]:
    """Yield rows of CSV (with a header) or JSON lines by the names of their columns; of a bad line, what is wrong."""
    lines = (line for line in stream if line.strip())
    first = next(lines, None)
    if first is None:
        return
    if first.lstrip().startswith("{"):
        for line in chain([first], lines):
            try:
                yield {plain(name): value for name, value in json.loads(line).items()}
            except (ValueError, AttributeError):
                yield "no JSON object"
        return
    separator = max((",", ";", "\t"), key=first.count)
    names = [plain(name) for name in next(csv.reader([first.lstrip("\ufeff")], delimiter=separator))]
    for values in csv.reader(lines, delimiter=separator):
        if len(values) == len(names):
            yield dict(zip(names, values, strict=True))
        else:
            yield f"{len(values)} values, the header has {len(names)}"


def plain(name: str) -> str:
    """Return a column's name without blanks around it and without a unit behind it.

    >>> plain(" temp [C]")
    'temp'
    """
    return re.sub(r"(?<=\S)\s*\[[^\]]*\]$", "", name.strip())


def main(arguments: list[str] | None = None) -> int:
    """Score a file or standard input; one JSON line per row on standard output."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data", nargs="?", default="-", help="a CSV or JSON lines file; -: standard input")
    parser.add_argument("--device-column", help="whose row it is: that device's own threshold is used")
    parser.add_argument("--alert-only", action="store_true", help="print rows above the threshold only")
    asked = parser.parse_args(arguments)
    try:
        scorer = SmallScorer(asked.model)
        if asked.data == "-":
            return _score(scorer, sys.stdin, asked)
        with Path(asked.data).open(encoding="utf-8-sig") as stream:
            return _score(scorer, stream, asked)
    except (OSError, RuntimeError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _score(scorer: SmallScorer, stream: IO[str], asked: argparse.Namespace) -> int:
    n_bad = 0
    for number, row in enumerate(rows_of(stream), start=1):
        device = None
        try:
            if isinstance(row, str):
                raise ValueError(row)  # noqa: TRY301, TRY004  (it is said below, as all that is wrong with a row)
            device = None if asked.device_column is None else str(row.get(asked.device_column, ""))
            found = scorer.judge(row, device)
        except ValueError as error:
            n_bad += 1
            sys.stderr.write(f"row {number}: {error}\n")
            found = {"score": None, "p_value": None, "verdict": "not scored"}
        if found["verdict"] == "alarm" or not asked.alert_only:
            who = {} if device is None else {"device": device}
            sys.stdout.write(json.dumps({"row": number, **who, **found}) + "\n")
            sys.stdout.flush()
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
