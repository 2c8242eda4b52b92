"""Tables as they come: whoever reads them reads them alike, and says the same of every row.

Readers are `fit`, `score`, `evaluate`, the estimator, devices that have a table of their own (`node`), and the exported
scorer.
"""

from __future__ import annotations

import datetime as dt
import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.feather as pa_feather
import pyarrow.parquet as pa_parquet
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.cli.detectors import Done, run
from tests.learners.play import play
from tolfl.cli.detector_commands import _score_table
from tolfl.core.errors import DataError
from tolfl.core.spec import DatasetSpec, RunSpec
from tolfl.detect import Detector, FederatedDetector
from tolfl.detect.detector_learner import DetectorStages
from tolfl.learners.registry import scaled_learner_of
from tolfl.net.node_config import NodeConfig
from tolfl.net.prepare import _rows
from tolfl.tables import Reading, Roles, Schema, blocks, blocks_of

N = 80
#: An exported scorer is a process of its own. `make test` lets it read one table of every kind of reading.
IS_QUICK = bool(os.environ.get("TOLFL_QUICK"))
EXPORTED_QUICKLY = ("plain", "decimal comma", "holes", "utf-16", "quotes", "units", "json lines", "parquet")


def columns(seed: int = 0) -> dict[str, list[object]]:
    rng = np.random.default_rng(seed)
    warm = np.round(rng.normal(20, 1, N), 3)
    return {
        "warm": warm.tolist(),
        "flow": np.round(2 * warm + rng.normal(0, 0.1, N), 3).tolist(),
        "mode": [("eco", "boost", "off")[row % 3] for row in range(N)],
        "on": [("True", "False")[row % 2] for row in range(N)],
        "site": [f"s{row % 2}" for row in range(N)],
    }


def lines(table: dict[str, list[object]], separator: str = ",", **changes: Callable[[str], str]) -> str:
    rows = [list(table), *zip(*table.values(), strict=True)]
    text = "\n".join(separator.join(map(str, row)) for row in rows) + "\n"
    for change in changes.values():
        text = change(text)
    return text


def with_column(name: str, values: list[object]) -> dict[str, list[object]]:
    return {**columns(), name: values}


def comma(text: str) -> str:
    return text.replace(".", ",")


def with_holes(hole: str) -> str:
    table = columns()
    table["flow"][3] = table["mode"][5] = hole
    return lines(table)


def spreadsheet(time: str, separator: str, encoding: str, decimal: str, before: str = "", behind: str = "") -> bytes:
    """Return a table as another country writes it, with a column of money or percent and one of dates."""
    start = dt.datetime(2024, 1, 1, 9, 5, tzinfo=dt.UTC)
    table = columns() | {
        "mode": [("kühl", "warm", "aus")[row % 3] for row in range(N)],
        "paid": [f"{before}{1000 * (row % 7) + row + 0.25}{behind}" for row in range(N)],
        "when": [(start + row * dt.timedelta(hours=7)).strftime(time) for row in range(N)],
    }
    text = lines({name: [str(value).replace(".", decimal) if name != "when" else value for value in column]
                  for name, column in table.items()}, separator)  # fmt: skip
    return text.encode(encoding)


#: What is not UTF-8 is said to be.
ENCODINGS = {"a German spreadsheet": "cp1252", "a French spreadsheet": "latin-1"}

TEXTS: dict[str, bytes] = {
    "plain": lines(columns()).encode(),
    "semicolons": lines(columns(), ";").encode(),
    "tabs": lines(columns(), "\t").encode(),
    "bars": lines(columns(), "|").encode(),
    "blanks between values": lines(columns(), " ").encode(),
    "decimal comma": comma(lines(columns(), ";")).encode(),
    "a spreadsheet's sep=": ("sep=;\n" + comma(lines(columns(), ";"))).encode(),
    "byte order mark, Windows ends": b"\xef\xbb\xbf" + lines(columns()).replace("\n", "\r\n").encode(),
    "utf-16": lines(columns(), "\t").encode("utf-16"),
    "quotes": lines(columns()).replace("eco", '"eco, or so"').encode(),
    "blank lines": lines(columns()).replace("\n", "\n\n").encode(),
    "blanks around values": lines(columns()).replace(",", " , ").encode(),
    "no newline at the end": lines(columns()).rstrip("\n").encode(),
    "units": lines(columns()).replace("warm", "warm [C]", 1).encode(),
    "umlauts": lines(columns()).replace("eco", "größer").encode(),
    "holes": with_holes("").encode(),
    "NA": with_holes(" NA ").encode(),
    "question marks": with_holes("?").encode(),
    "a serial number": lines(with_column("serial", list(range(6000, 6000 + N)))).encode(),
    "a clock": lines(with_column("clock", [1.7e9 + row * 0.5 for row in range(N)])).encode(),
    "dates": lines(with_column("day", [f"2024-01-{1 + row % 28:02d}" for row in range(N)])).encode(),
    "a German spreadsheet": spreadsheet("%d.%m.%Y %H:%M", ";", "cp1252", decimal=",", behind=" €"),
    "a French spreadsheet": spreadsheet("%d/%m/%Y %H:%M", ";", "latin-1", decimal=",", behind=" %"),
    "an American spreadsheet": spreadsheet("%m/%d/%Y %I:%M %p", ",", "utf-8-sig", decimal=".", before="$"),
    "sixty words": lines(with_column("word", [f"w{row % 60}" for row in range(N)])).encode(),
    "a constant": lines(with_column("constant", [7] * N)).encode(),
    "thousands, plain and quoted": lines(with_column("big", [f'"{1 + row % 7},234"' for row in range(N)])).encode(),
    "lakhs": lines(with_column("big", [f'"{1 + row % 7},23,456"' for row in range(N)])).encode(),
    "long minus signs": lines(with_column("below", [f"\N{MINUS SIGN}{row % 7}.5" for row in range(N)])).encode(),
    "names of months": lines(with_column("day", [f"{1 + row % 28}-Jan-24" for row in range(N)])).encode(),
    "thousands": lines(with_column("big", [f'"{1 + row % 7},234,567.5"' for row in range(N)])).encode(),
    "exponents": lines(with_column("tiny", [f"{row % 9}e-7" for row in range(N)])).encode(),
    "lower-case flags": lines(columns()).replace("True", "true").replace("False", "false").encode(),
    "gzip": gzip.compress(lines(columns()).encode()),
    "json lines": "\n".join(
        json.dumps(dict(zip(columns(), row, strict=True))) for row in zip(*columns().values(), strict=True)
    ).encode(),
}


def typed() -> pa.Table:
    table = columns()
    table["on"] = [value == "True" for value in table["on"]]
    table["flow"][3] = None
    arrow = pa.table(table).append_column("day", pa.array([dt.date(2024, 1, 1 + row % 28) for row in range(N)]))
    mode = arrow.column("mode").dictionary_encode()
    return arrow.set_column(arrow.column_names.index("mode"), "mode", mode)


def write(name: str, folder: Path) -> Path:
    path = folder / "table"
    if name == "parquet":
        pa_parquet.write_table(typed(), path)
    elif name == "arrow":
        pa_feather.write_feather(typed(), path, compression="uncompressed")
    else:
        path.write_bytes(TEXTS[name])
    return path


def as_frame(path: Path, encoding: str) -> pa.Table:
    return pa.concat_tables([block.table for block in blocks(path, Reading(encoding))], promote_options="permissive")


def rewritten(content: bytes, encoding: str, site: int, n_sites: int = 2) -> bytes:
    """Return the rows of one site in a table as it is written: every other one, below the header."""
    if content.startswith((b"PAR1", b"ARROW1")):
        own = pa_parquet.read_table(pa.BufferReader(content)) if content[0] == ord("P") else None
        own = own or pa_feather.read_table(pa.BufferReader(content))
        out = pa.BufferOutputStream()
        pa_parquet.write_table(own.filter([row % n_sites == site for row in range(own.num_rows)]), out)
        return bytes(out.getvalue())
    if content.startswith(b"\x1f\x8b"):
        return gzip.compress(rewritten(gzip.decompress(content), encoding, site, n_sites))
    marks = {b"\xff\xfe": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}
    encoding = next((name for mark, name in marks.items() if content.startswith(mark)), encoding or "utf-8")
    text = [line for line in content.decode(encoding).splitlines(keepends=True) if line.strip()]
    n_heads = 0 if text[0].startswith("{") else 2 if text[0].startswith("sep=") else 1
    own = [line for row, line in enumerate(text[n_heads:]) if row % n_sites == site]
    return "".join([*text[:n_heads], *own]).encode(encoding)


def of_own_tables(path: Path, encoding: str) -> Detector:
    """Return the detector of a fleet in which each device has the rows of its site alone, in a file of its own.

    Everything is as `tolfl node` does it but for the network between the devices: the specification has the columns
    that `tolfl data describe` writes of the whole table, and a device reads its file before the first round.
    """
    how = ("--set", f"dataset.encoding={encoding}") if encoding else ()
    said = run("data", "describe", f"./{path.name}", "--device-column", "site", "--columns", *how)
    assert said.code == 0, said.err
    learn = {**msgspec.toml.decode(said.out)["learn"], "what": "detector", "names": ["s0", "s1"]}
    spec = RunSpec(devices=2, clusters=1, dataset=DatasetSpec(encoding=encoding), learn=learn).check()
    rows = {}
    for device in range(2):
        own = path.with_name(f"{path.name}-of-{device}")
        own.write_bytes(rewritten(path.read_bytes(), encoding, device))
        config = NodeConfig(device=device, listen="127.0.0.1:1", state=".", spec="", data=f"./{own.name}")
        rows[device], fleet, _ = _rows(config, spec, Path())
    learner = scaled_learner_of(fleet)
    assert isinstance(learner, DetectorStages)
    found = learner.detector(play(learner, rows, seed=spec.seed))
    assert found is not None
    return found


def fitted_and_scored(path: Path, encoding: str) -> Done:
    """Fit a table and score it; return what the command says."""
    how = ("--encoding", encoding) if encoding else ()
    fitted = run("fit", path.name, "--device-column", "site", "--fill-missing", "--out", "m", *how)
    assert fitted.code == 0, fitted.err
    scored = run("score", "m", path.name, "--format", "jsonl")
    assert scored.code == 0, scored.err
    return scored


def assert_alike(path: Path, encoding: str = "") -> None:
    """Fit a table, score it with every reader, and compare all they say."""
    scored = fitted_and_scored(path, encoding)
    found = [json.loads(line) for line in scored.out.splitlines()]
    frame = as_frame(path, encoding)
    estimator = FederatedDetector().fit(frame, devices="site")

    assert [one["score"] for one in found] == estimator.anomaly_score(frame, devices="site").tolist()
    verdicts = np.where(estimator.predict(frame, devices="site") > 0, "typical", "alarm")
    assert [one["verdict"] for one in found] == verdicts.tolist()

    detector = Detector.load("m")
    judged = _score_table(detector, path.name, Roles("site", "site"), ("s0",), True, encoding)
    assert judged.scores.tolist() == [one["score"] for one in found]
    assert judged.is_alarm.tolist() == [one["verdict"] == "alarm" for one in found]
    assert judged.devices is not None
    assert judged.devices.tolist() == [one["device"] for one in found]

    if estimator.detector_.schema is not None and has_holes(frame, estimator.detector_.schema):
        with pytest.raises(DataError, match="is missing"):  # a fleet has no --fill-missing
            of_own_tables(path, encoding)
        return
    fleet = of_own_tables(path, encoding)
    rows, devices = detector.rows(frame, "site")
    assert fleet.scores_of(rows, devices).tolist() == [np.float32(one["score"]) for one in found]
    assert fleet.thresholds == detector.thresholds
    assert fleet.schema is not None
    assert detector.schema == msgspec.structs.replace(fleet.schema, fill_missing=True)


def has_holes(frame: pa.Table, schema: Schema) -> bool:
    (block,) = blocks_of(frame)
    return bool(np.isnan(schema.rows(block).values).any())


@pytest.mark.parametrize("name", [*TEXTS, "parquet", "arrow"])
def test_every_reader_reads_a_table_alike(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert_alike(write(name, tmp_path), ENCODINGS.get(name, ""))


#: One interpreter for many exported scorers: each brings the code that is in its own file.
SCORERS = """
import contextlib, io, json, os, runpy, sys

for folder in sys.argv[1:]:
    os.chdir(folder)
    sys.argv = [f"{folder}/m.pyz", "table", "--format", "jsonl"]
    for name in [name for name in sys.modules if name.partition(".")[0] == "tolfl"]:
        del sys.modules[name]
    out, err, code = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as ended:
            code = ended.code or 0
    out.flush()
    used = [one.__file__ for name, one in sys.modules.items() if name == "tolfl"]
    print(json.dumps([code, out.buffer.getvalue().decode(), err.getvalue(), used]))
"""


@pytest.mark.processes
def test_the_exported_scorer_says_what_score_says_of_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = EXPORTED_QUICKLY if IS_QUICK else (*TEXTS, "parquet", "arrow")
    expected = {}
    for number, name in enumerate(names):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        expected[folder] = fitted_and_scored(write(name, folder), ENCODINGS.get(name, ""))
        assert run("export", "m").code == 0
    command = [sys.executable, "-c", SCORERS, *map(str, expected)]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

    for name, (folder, ours), line in zip(names, expected.items(), found, strict=True):
        code, out, err, used = json.loads(line)
        assert (code, out, err) == (ours.code, ours.out, ours.err), name
        assert used == [str(folder / "m.pyz" / "tolfl" / "__init__.py")]


CELLS = {
    "number": st.floats(-1e6, 1e6, width=32).map(lambda value: f"{value:.6g}"),
    "whole": st.integers(-99, 99).map(str),
    "with holes": st.one_of(st.integers(0, 9).map(str), st.sampled_from(["", "NA", "?", " - ", "null"])),
    "flag": st.sampled_from(["true", "False", "TRUE"]),
    "word": st.sampled_from(["eco", "größer", "a b", "x'y", "404", "Ω"]),
}


@st.composite
def drawn_tables(draw: st.DrawFn) -> bytes:
    """Return a table with columns of any kinds, in any order, with any separator and line end."""
    kinds = draw(st.lists(st.sampled_from(sorted(CELLS)), min_size=1, max_size=4))
    n_rows = draw(st.integers(30, 60))
    ramp = np.random.default_rng(draw(st.integers(0, 9))).normal(size=n_rows)
    table = {"level": [f"{value:.4f}" for value in ramp], "site": [f"s{row % 2}" for row in range(n_rows)]}
    for place, kind in enumerate(kinds):
        table[f"{kind} {place}"] = draw(st.lists(CELLS[kind], min_size=n_rows, max_size=n_rows))
    order = draw(st.permutations(sorted(table)))
    separator, end = draw(st.sampled_from(",;|\t")), draw(st.sampled_from(["\n", "\r\n"]))
    rows = [order, *zip(*(table[name] for name in order), strict=True)]
    return end.join(separator.join(row) for row in rows).encode()


def as_often(n_examples: int) -> settings:
    phases = [Phase.explicit, Phase.generate]
    return settings(max_examples=n_examples, deadline=None, suppress_health_check=list(HealthCheck), phases=phases)


def assert_drawn_alike(content: bytes, folder: Path) -> None:
    (folder / "table").write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)

        assert_alike(folder / "table")


@as_often(2 if IS_QUICK else 6)
@given(content=drawn_tables())
def test_drawn_tables_are_read_alike(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert_drawn_alike(content, tmp_path_factory.mktemp("drawn"))


@pytest.mark.slow
@as_often(100)
@given(content=drawn_tables())
def test_many_drawn_tables_are_read_alike(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert_drawn_alike(content, tmp_path_factory.mktemp("drawn"))


def test_three_countries_write_one_table_and_get_the_same_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    american = lines(columns() | {"when": [f"1/{1 + row % 30}/2024 9:{row % 60:02d} PM" for row in range(N)]})
    german = lines(columns() | {"when": [f"{1 + row % 30}.1.2024 21:{row % 60:02d}" for row in range(N)]}, "\t")
    french = lines(columns() | {"when": [f"{1 + row % 30:02d}/01/24 21:{row % 60:02d}" for row in range(N)]}, ";")
    countries = dict(
        zip(("utf-8", "utf-16", "latin-1"), (american, *map(comma_in_numbers, (german, french))), strict=True)
    )
    for encoding, text in countries.items():
        Path(encoding).write_bytes(text.replace("warm", "wärme", 1).encode(encoding))
    found = []
    for fitted, other in zip(countries, ("utf-16", "latin-1", "utf-8"), strict=True):
        roles = ("--device-column", "site", "--time-column", "when", *how_to_read(fitted))
        assert run("fit", fitted, *roles, "--out", f"of {fitted}").code == 0
        for read in (fitted, other):
            scored = run("score", f"of {fitted}", read, "--format", "jsonl", *how_to_read(read))
            found.append([without_time(line) for line in scored.out.splitlines()])

    assert len(found[0]) == N
    assert all(one == found[0] for one in found)


@pytest.mark.slow
@pytest.mark.processes
def test_whoever_makes_a_detector_it_reads_a_table_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    start = dt.datetime(2024, 1, 1, 9, 5, tzinfo=dt.UTC)
    table = columns() | {
        "when": [(start + row * dt.timedelta(hours=5)).strftime("%d.%m.%Y %H:%M") for row in range(N)],
        "serial": list(range(6000, 6000 + N)),
    }
    text = comma_in_numbers(lines(table, ";"))
    Path("table.csv").write_text(text.replace("warm", "warm [C]", 1))
    # What the new file leaves open: 1,999 may be a thousand, 2/3/2024 the third of February.
    Path("new.csv").write_text(
        "warm;flow;mode;on;site;when;serial\n" + "20,021;40,040;eco;True;s1;02/03/2024 9:05;1\n" * 3
    )
    roles = ("--device-column", "site", "--time-column", "when")
    fleet = ("--learn", "detector", "--data", "table.csv", *roles, "--devices", "2", "--clusters", "2")
    for command in (
        ("fit", "table.csv", *roles, "--out", "fit"),
        ("simulate", *fleet, "--out", "sim"),
        ("up", *fleet, "--out", "up"),
    ):
        subprocess.run([sys.executable, "-m", "tolfl", *command], capture_output=True, check=True)
    assert run("export", "fit", "--to", "scorer", "--out", "m.pyz").code == 0
    made = [Path("fit"), Path("sim/detector.tolfl"), *Path("up/devices").glob("*/detector.tolfl")]
    said = [run("score", one, "new.csv", "--format", "csv") for one in made]
    exported = subprocess.run(
        [sys.executable, "m.pyz", "new.csv", "--format", "csv"], capture_output=True, text=True, check=True
    )
    frame = as_frame(Path("table.csv"), "").drop_columns(["when"])
    score = FederatedDetector().fit(frame, devices="site").anomaly_score(as_frame(Path("new.csv"), ""), devices="site")

    assert len(made) == 4
    assert [Detector.load(one).schema for one in made] == 4 * [Detector.load(made[0]).schema]
    assert len({one.read_bytes() for one in made[1:]}) == 1
    assert {(one.code, one.out, one.err) for one in said} == {(0, exported.stdout, exported.stderr)}
    assert [float(line.split(",")[3]) for line in exported.stdout.splitlines()[1:]] == score.tolist()


def comma_in_numbers(text: str) -> str:
    return re.sub(r"(?<=\d)\.(?=\d{1,3}[;\t])", ",", text)


def how_to_read(encoding: str) -> tuple[str, ...]:
    return ("--encoding", encoding) if encoding != "utf-16" else ()


def without_time(line: str) -> dict[str, object]:
    return {name: value for name, value in json.loads(line).items() if name != "time"}


def test_new_rows_need_no_label_and_may_lack_device_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = columns() | {"when": [float(row % 7) for row in range(N)], "state": ["normal"] * N}
    (tmp_path / "known").write_text(lines(table))
    roles = ("--device-column", "site", "--time-column", "when", "--label-column", "state")
    assert run("fit", "known", *roles, "--out", "m").code == 0
    (tmp_path / "new").write_text(lines({name: table[name] for name in ("warm", "flow", "mode", "on")}))

    known, new = (run("score", "m", name, "--format", "jsonl") for name in ("known", "new"))
    scores = [[json.loads(line)["score"] for line in one.out.splitlines()] for one in (known, new)]
    assert (new.code, scores[1]) == (0, scores[0])
    assert (
        "no column 'site', which was the device in training: each row is compared with the fleet's threshold" in new.err
    )
    assert "no column 'when', which was the time in training" in new.err
    assert run("score", "m", "new", "--device-column", "site").code == 2
    assert run("evaluate", "m", "new").code == 2


def scored_by_plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: pa.Table) -> tuple[int, str, str]:
    monkeypatch.chdir(tmp_path)
    write("plain", tmp_path)
    assert run("fit", "table", "--device-column", "site", "--out", "m").code == 0
    pa_parquet.write_table(other, "other")
    done = run("score", "m", "other", "--format", "csv")
    return done.code, done.out, done.err


def test_words_where_numbers_were_trained_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = pa.table(with_column("flow", ["high"] * N))

    assert scored_by_plain(tmp_path, monkeypatch, other) == (
        2, "", "other: column 'flow' holds words ('high'), numbers were trained on\n",
    )  # fmt: skip


def test_numbers_where_words_were_trained_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = pa.table(with_column("mode", list(range(N))))

    assert scored_by_plain(tmp_path, monkeypatch, other) == (
        2, "", "other: column 'mode' holds numbers (int64), words were trained on\n",
    )  # fmt: skip


@pytest.mark.parametrize("values", [list(range(N)), ["", *["TRUE", "FALSE"] * 20]])
def test_numbers_as_text_where_words_were_trained_are_one_sentence(
    values: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = {"mode": list(map(str, values))}
    text = pa.table({name: column[: len(values)] for name, column in (columns() | other).items()})
    first = next(filter(None, other["mode"]))

    assert scored_by_plain(tmp_path, monkeypatch, text) == (
        2, "", f"other: column 'mode' holds numbers ({first!r}), words were trained on\n",
    )  # fmt: skip


def test_codes_may_all_be_numbers_in_a_later_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("known").write_text(
        lines(with_column("mode", [("http", "80", "ssh", "443")[row // 2 % 4] for row in range(N)]))
    )
    Path("later").write_text(lines(with_column("mode", [("80", "443")[row // 2 % 2] for row in range(N)])))
    pa_parquet.write_table(pa.table(with_column("mode", [(80, 443)[row // 2 % 2] for row in range(N)])), "typed")
    assert run("fit", "known", "--device-column", "site", "--out", "m").code == 0

    text, typed = (run("score", "m", name, "--format", "jsonl") for name in ("later", "typed"))
    assert (text.code, text.out) == (0, typed.out)
    assert [json.loads(line)["verdict"] for line in text.out.splitlines()].count("alarm") < N // 10


def test_a_column_in_two_units_is_taken_in_that_of_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = lines(columns()).replace("warm", "warm [C]", 1)
    both = lines(columns() | {"warm [F]": [9.0] * N, "flow [l]": [1.0] * N}).replace("warm", "warm [C]", 1)
    Path("one").write_text(text)
    Path("both").write_text(both)
    assert run("fit", "one", "--device-column", "site", "--out", "m").code == 0

    assert run("score", "m", "both", "--format", "csv").out == run("score", "m", "one", "--format", "csv").out


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            b"a,b\n1,2\n",
            "standard input: n_samples=1: too few rows to train on; a detector takes at least 10 typical ones\n",
        ),
        (b"a,b\n", "standard input: there is no row of data in it; fill it\n"),
    ],
)
def test_too_little_on_standard_input_is_one_sentence(
    content: bytes, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("fit", "-", "--out", "m", stdin=content)

    assert (done.code, done.out, done.err, list(tmp_path.iterdir())) == (2, "", sentence, [])


def test_the_file_that_has_too_few_rows_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("few.csv").write_text("a,b\n1,2\n3,5\n")
    done = run("fit", "few.csv", "--out", "m")

    assert (done.code, done.out) == (2, "")
    assert done.err == "few.csv: n_samples=2: too few rows to train on; a detector takes at least 10 typical ones\n"
