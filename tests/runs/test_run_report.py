"""The report as a file: what it says, that it needs nothing else, and that no record can smuggle anything into it."""

from __future__ import annotations

import dataclasses
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runs.recorded_runs import closed, failed, lost_head, recorded, spec, started, summary
from tolfl.core.errors import RunDirectoryError, SpecError
from tolfl.core.records import AnyRecord, Evaluated, RoundClosed, RunStarted, encode_records
from tolfl.runs.failure_history import DeviceState
from tolfl.runs.run_figures import COLOURS, as_file, fleet_svg
from tolfl.runs.run_folder import RunFolder, read_run
from tolfl.runs.run_report import fenced, pictures_of, render, report_context

HOSTILE = '</title><script>alert(1)</script><img src="//elsewhere/x" onerror=1>`|$\\x$[a](javascript:1)\x00\u202e'


class Reader(HTMLParser):
    """Collects tags and visible text as a browser would."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._hidden = 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._hidden += tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag == "style"

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.text += data + "\n"


def failure_free(auroc: float, **fields: object) -> RunFolder:
    records: list[AnyRecord] = [started(), closed(0, 1.0, (0, 1, 2, 3)), closed(1, 2.0, (0, 1, 2, 3))]
    return RunFolder("clean", spec(fail="", **fields), records, summary(auroc), is_over=True)


def to_html(context: dict[str, Any]) -> str:
    return render(context, "report.html")


def check_self_contained(page: str) -> Reader:
    """Nothing in a page may be loaded, run or followed."""
    reader = Reader(page)
    assert not {tag for tag, _ in reader.tags} & {"script", "img", "link", "iframe", "object", "embed", "image", "a"}
    for _, attributes in reader.tags:
        assert "src" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
        assert attributes.get("href", "#") is not None
        assert str(attributes.get("href", "#")).startswith("#")
    style = page[page.index("<style>") : page.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    assert not re.search(r"https?:", page)
    return reader


def test_the_failure_report_has_the_numbers_of_the_run() -> None:
    context = report_context(recorded(lost_head(), auroc=0.78), failure_free(0.8))

    assert context["failure_rows"] == [
        [
            "1",
            "1.5 s",
            "device 0, head of cluster 0, died (train)",
            "0.25 s, by device 3 (connection refused)",
            "device 1 for 0 in cluster 0 after 0.50 s",
            "0.50 s",
            "100 of 190",
            "no",
        ]
    ]
    assert context["cost_rows"] == [["0", "0.780", "0.800", "+0.020"]]
    assert "AUROC cost against the failure-free run: 0.020." in context["leads"]


def test_the_page_stands_alone_and_says_everything() -> None:
    page = to_html(report_context(recorded(lost_head()), failure_free(0.8)))

    reader = check_self_contained(page)
    for text in ("Failure report", "Curves", "The fleet before and after", "Result", "Specification", "server@1"):
        assert text in reader.text
    assert "device 0: member, dead" in reader.text
    assert "default-src 'none'" in page
    assert page.count("<svg ") == 3
    assert page == to_html(report_context(recorded(lost_head()), failure_free(0.8))), "the same run gives the same file"


def hostile_lines(text: str) -> list[AnyRecord]:
    return [
        started(data=text),
        closed(0, 1.0, (0, 1, 2, 3)),
        failed(1.1, 0, 1, f"died ({text})"),
        failed(1.2, 0, 1, f"found dead: {text}", by=1),
        failed(1.3, None, 1, text),
        closed(1, 2.0, (1, 2, 3)),
    ]


def test_a_hostile_record_is_shown_and_does_nothing() -> None:
    context = report_context(RunFolder(HOSTILE, spec(data=HOSTILE), hostile_lines(HOSTILE), is_real=True))

    reader = check_self_contained(to_html(context))
    assert "<script>alert(1)</script>" in reader.text
    assert not {"\x00", "\u202e"} & set(to_html(context))
    shown = render(context, "report.md", "figures")
    outside = re.sub(r"^(`{3,})$.*?^\1$", "", shown, flags=re.MULTILINE | re.DOTALL)
    assert "<script" not in outside.replace("\\<", "")
    assert "[a](javascript" not in outside.replace("\\[", "")


@settings(max_examples=4 if os.environ.get("TOLFL_QUICK") else 25, deadline=None)
@given(st.text(max_size=60))
def test_no_text_in_a_record_becomes_markup(text: str) -> None:
    usual = [tag for tag, _ in Reader(to_html(report_context(recorded(hostile_lines("x"))))).tags]
    page = to_html(report_context(dataclasses.replace(recorded(hostile_lines(text)), name=text)))

    tags = [tag for tag, _ in check_self_contained(page.replace("https:", "").replace("http:", "")).tags]
    table, drawn = {"table", "tr", "th", "td", "p", "h1", "h2", "pre"}, {"svg", "style", "main", "figure"}
    # What a curve needs (a tick more, a longer label) may vary; the structure of the page may not.
    assert [tag for tag in tags if tag in table | drawn] == [tag for tag in usual if tag in table | drawn]


def test_a_listing_cannot_end_its_own_fence() -> None:
    assert fenced("a\n````\nb") == "`````\na\n````\nb\n`````"


def test_markdown_names_its_figures_and_has_the_same_sections() -> None:
    context = report_context(recorded(lost_head()), failure_free(0.8))
    shown = render(context, "report.md", "report-figures")

    assert re.findall(r"\]\((.*?)\)", shown) == [f"report-figures/{name}.svg" for name in ("curves", "before", "after")]
    assert (
        "| 1 | 1.5 s | device 0, head of cluster 0, died (train) | 0.25 s, by device 3 (connection refused) |" in shown
    )
    for picture in pictures_of(context):
        svg = as_file(picture.svg)
        assert "var(" not in svg
        assert svg.startswith("<svg xmlns=")


def test_light_and_dark_have_the_same_colours_and_text_can_be_read() -> None:
    def luminance(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    page = to_html(report_context(recorded(lost_head())))
    dark = dict(re.findall(r"--(\w+): (#\w+);", page[page.index("dark) {") : page.index("box-sizing")]))
    assert COLOURS.keys() == dark.keys()
    for colours in (COLOURS, dark):
        for name in ("ink", "soft", "accent", "danger", "warn"):
            for ground in ("page", "panel"):
                lights = sorted((luminance(colours[name]), luminance(colours[ground])))
                assert (lights[1] + 0.05) / (lights[0] + 0.05) >= 4.5, (name, ground)


def test_a_large_fleet_is_drawn_with_every_device() -> None:
    clusters = [range(start, start + 100) for start in range(0, 500, 100)]
    states = {
        device: DeviceState(is_head=device % 100 == 0, state="dead" if device == 7 else "trains")
        for device in range(500)
    }
    svg = fleet_svg(clusters, states)

    assert svg.count("<title>") == 500
    assert svg.count("marker-end") == 4, "arrows between five heads"


# -- folders ----------------------------------------------------------------------------------------------------


def write_run(folder: Path, lines: bytes, ending: dict[str, object] | None = None, **fields: object) -> Path:
    folder.mkdir(parents=True)
    (folder / "spec.toml").write_text(spec(**fields).to_toml())
    (folder / "records.jsonl").write_bytes(lines)
    if ending is not None:
        (folder / "summary.json").write_bytes(msgspec.json.encode(ending))
    return folder


def test_a_run_that_goes_on_says_so_and_its_torn_line_is_left_out(tmp_path: Path) -> None:
    lines = encode_records(lost_head()[:5])
    page = to_html(report_context(read_run(write_run(tmp_path / "x", lines + b'{"kind":"round_cl'))))

    assert "This run is not finished: it was at 1 of 3 rounds when this was written." in page
    assert "There is no result before the run ends." in page
    check_self_contained(page)


def in_stages(lines: list[AnyRecord], has_loss: bool = True) -> list[AnyRecord]:
    """Return the lines as those of a learner with two stages, whose rounds may have no loss."""
    stages = (("scaling", 1), ("thresholds", 2))
    told: list[AnyRecord] = []
    for line in lines:
        if isinstance(line, RunStarted):
            told.append(msgspec.structs.replace(line, learn="detector", stages=stages))
        elif isinstance(line, RoundClosed):
            told.append(msgspec.structs.replace(line, loss=line.loss if has_loss else None))
        elif has_loss or not isinstance(line, Evaluated):
            told.append(line)
    return told


def test_a_run_with_stages_names_them(tmp_path: Path) -> None:
    lines = in_stages(lost_head())
    page = to_html(report_context(recorded(lines)))
    unfinished = to_html(report_context(read_run(write_run(tmp_path / "x", encode_records(lines[:5])))))

    assert "In round 1 (thresholds:0), 1.5 s into the run" in page
    assert ">1 (thresholds:0)<" in page
    assert re.search(r"<text[^>]*>thresholds</text>", page), "the curves name the stages"
    assert "This run is not finished: it was at scaling 1/1 (1 of 3 rounds) when this was written." in unfinished


def test_rounds_without_a_loss_have_no_empty_curve() -> None:
    page = to_html(report_context(recorded(in_stages(lost_head(), has_loss=False))))

    assert "No round has a loss, and none was scored: there is nothing to draw." in page
    assert page.count("<svg ") == 2


#: As a simulation wrote them before rounds had stages.
OLD_LINES = b"""\
{"kind":"run_started","time_s":0.0,"device":null,"round":null,"version":null,"schema":1,"scheme":"tol-fl",\
"data":"blobs","seed":0,"clusters":[[0,1],[2,3]],"model_bytes":400,"hosts":[],"defence":"","liars":""}
{"kind":"round_closed","time_s":1.25,"device":2,"round":0,"version":"6.1.0.abc","schema":1,"parent":"",\
"included":[0,1,2,3],"missing":{},"n_samples":190,"loss":0.5,"bytes":1200,"messages":{"unicast":3},"heads":[0,2],\
"stall_s":0.0,"groups":{}}
{"kind":"failure","time_s":1.5,"device":3,"round":1,"version":null,"schema":1,"what":"died (train)","by":null}
"""


def test_a_run_directory_without_stages_stays_readable(tmp_path: Path) -> None:
    page = to_html(report_context(read_run(write_run(tmp_path / "x", OLD_LINES))))

    assert "This run is not finished: it was at 1 of 3 rounds when this was written." in page
    assert "In round 1, 1.5 s into the run: device 3 died (train)." in page
    assert "<td>1.5 s</td>" in page


def test_a_real_run_that_goes_on_is_read_from_its_devices(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "x", b"")
    other: list[AnyRecord] = [started(), failed(1.9, 0, 1, "found dead: connection refused", by=2)]
    for device, lines in ((1, lost_head()[:-1]), (2, other)):
        (folder / "devices" / str(device)).mkdir(parents=True)
        (folder / "devices" / str(device) / "records.jsonl").write_bytes(encode_records(lines))
    (run,) = read_run(folder).runs

    assert run.is_real
    assert run.rounds_done == 3
    assert [line.time_s for line in run.records] == [0.0, 1.0, 1.1, 1.5, 1.6, 1.75, 2.0, 2.5, 3.5]


def test_nothing_closed_yet_is_no_trouble(tmp_path: Path) -> None:
    page = to_html(report_context(read_run(write_run(tmp_path / "x", b""))))

    assert "No round was closed: there is nothing to draw." in page
    assert "Nobody failed." in page


def test_repetitions_are_told_together(tmp_path: Path) -> None:
    for index, auroc in enumerate((0.7, 0.8)):
        lines = encode_records(lost_head())
        write_run(tmp_path / "x" / f"repetition-{index}", lines, summary(auroc, seed=index), seed=index)
    (tmp_path / "x" / "spec.toml").write_text(spec(repetitions=2).to_toml())
    context = report_context(read_run(tmp_path / "x"))

    assert [row[0] for row in context["failure_rows"]] == ["0", "1"]
    assert context["mean_auroc"] == "Mean AUROC 0.750 over 2 repetitions."
    assert context["leads"] == ["2 incidents; 2 devices did not return; 1.00 s stalled in all."]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.write_text("x"), "is a file; name the folder that it is in"),
        (lambda path: path.mkdir(), "holds no run (no spec.toml and no records.jsonl)"),
        (lambda path: write_run(path / "tol-fl-elect", b""), "holds several runs; name one of them: tol-fl-elect"),
        (lambda path: write_run(path, b"", repetitions=2), "2 repetitions, but none of them has begun"),
    ],
    ids=["nowhere", "file", "empty", "above", "not-begun"],
)
def test_a_folder_without_a_run_is_one_sentence(make: object, sentence: str, tmp_path: Path) -> None:
    assert callable(make)
    make(tmp_path / "x")

    with pytest.raises(RunDirectoryError, match=re.escape(sentence)):
        read_run(tmp_path / "x")


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    write_run(tmp_path / "x", b'{"kind":"nonsense"}\n')
    with pytest.raises(RunDirectoryError, match="no record that can be read"):
        read_run(tmp_path / "x")
    write_run(tmp_path / "y", b"")
    (tmp_path / "y" / "summary.json").write_text("{")
    with pytest.raises(RunDirectoryError, match=r"summary.json cannot be read"):
        read_run(tmp_path / "y")


def test_only_a_failure_free_run_shows_the_cost() -> None:
    disturbed = recorded(lost_head())
    with pytest.raises(SpecError, match="had failures of its own"):
        report_context(disturbed, disturbed)

    other_seed = report_context(disturbed, failure_free(0.9, seed=5))
    assert other_seed["why_no_cost"] == "run clean has no AUROC for the same seed"
    longer = report_context(disturbed, failure_free(0.9, rounds=9))
    assert longer["differing_fields"] == "rounds"
