"""`tolfl report` as a person types it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.runs.test_run_report import check_self_contained

SMALL = ["--data", "blobs", "--devices", "4", "--clusters", "2", "--rounds", "4", "--evaluate-every", "1"]


def test_a_report_lies_in_the_run_directory_unless_it_is_told_where(tolfl: Command, tmp_path: Path) -> None:
    tolfl("simulate", *SMALL, "--fail", "server@2", "--out", "x")
    code, told, said = tolfl("report", "x")
    _, elsewhere, _ = tolfl("report", "x", "--out", "mail/it.html")

    assert (code, told, said) == (0, "report: x/report.html\n", "")
    assert elsewhere == "report: mail/it.html\n"
    page = (tmp_path / "x" / "report.html").read_text()
    assert page == (tmp_path / "mail" / "it.html").read_text()
    reader = check_self_contained(page)
    assert "device 0, head of cluster 0, died (train)" in reader.text
    assert "device 1 for 0 in cluster 0 after 0.20 s" in reader.text
    assert "200 of 800" in reader.text


def test_the_cost_of_failures_is_told_from_the_same_run_without_them(tolfl: Command, tmp_path: Path) -> None:
    tolfl("simulate", *SMALL, "--fail", "server@1", "--out", "x")
    clean = tolfl("simulate", "x/spec.toml", "--fail", "", "--out", "clean")
    code, *_ = tolfl("report", "x", "--failure-free", "clean", "--out", "named.html")

    assert (clean[0], code) == (0, 0)
    assert "AUROC cost against the failure-free run" in (tmp_path / "named.html").read_text()


def test_markdown_has_its_figures_beside_it(tolfl: Command, tmp_path: Path) -> None:
    tolfl("simulate", *SMALL, "--fail", "client@2", "--repetitions", "2", "--out", "x")
    code, told, _ = tolfl("report", "x", "--format", "markdown", "--out", "docs/it.md")

    assert (code, told) == (0, "report: docs/it.md\n")
    assert "![" in (tmp_path / "docs" / "it.md").read_text()
    names = {path.name for path in (tmp_path / "docs" / "it-figures").iterdir()}
    assert names == {"curves.svg", "before.svg", "after.svg"}


SLOWLY = [pytest.param(scheme, marks=pytest.mark.slow) for scheme in ("batch", "sbt", "fedgroup", "fesem")]


@pytest.mark.parametrize("scheme", ["pca-16", "fl", "ifca", *SLOWLY])
def test_every_scheme_has_a_report(scheme: str, tolfl: Command, tmp_path: Path) -> None:
    rounds = [] if scheme == "pca-16" else ["--fail", "server@2"]
    tolfl("simulate", *SMALL, "--scheme", scheme, *rounds, "--out", "x")
    code, _, said = tolfl("report", "x")

    assert (code, said) == (0, "")
    check_self_contained((tmp_path / "x" / "report.html").read_text())
