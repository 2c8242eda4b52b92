"""What the pages conclude is what the stored rows say: each number is made from rows and must stand in its sentence."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from tolfl.experiments.beyond import with_every_policy
from tolfl.experiments.result_rows import Method, Row, Units, by_split, rows_where
from tolfl.experiments.results import read_results
from tolfl.experiments.significance import Interval, differences, interval

ROOT = Path(__file__).resolve().parents[2]
SETS = ("comms-ml", "fashion-mnist", "cifar-10", "cifar-100")
ELECT, DROP, FREEZE = Method("tol-fl", "elect"), Method("tol-fl", "drop"), Method("fl", "freeze")
ALONE, ALL_ALONE = Method("fl", "alone"), Method("fl", "alone", "auroc_all_models")


@cache
def rows(name: str) -> list[Row]:
    """Return the rows of a results file; devices alone have a policy of that name."""
    found: list[dict[str, Any]] = read_results(ROOT / "results" / f"{name}.json")["rows"]
    return [{**row, "policy": "alone"} if row.get("scenario") == "alone" else row for row in found]


def server(method: Method, data: str) -> Units:
    return by_split([row for row in rows("server") if row["scenario"] != "clean"], method, data=data)


def mean(units: Units) -> float:
    return fmean(fmean(values) for values in units.values())


def beyond(question: str, value: object, ours: Method, theirs: Method = FREEZE) -> Interval:
    own = rows_where(with_every_policy(rows_where(rows("beyond"), question=question)), varied=str(value))
    return interval(differences(by_split(own, ours), by_split(own, theirs)))


def round_s(scheme: str, k: int, uplink: str) -> float:
    clocks = rows_where(rows("timing"), kind="time", scheme=scheme, k=k, uplink=uplink)
    times = min(clocks, key=lambda row: float(row["seconds_per_sample"]))["times_s"]
    return float(times[-1] - times[0]) / (len(times) - 1)


def sentences() -> Iterator[str]:
    """Yield pieces of sentences of when-tol-fl-pays.md, with numbers from the rows."""
    alone = [mean(server(ALL_ALONE, data)) for data in SETS[:2]]
    elect = [mean(server(ELECT, data)) for data in SETS[:2]]
    clean = [mean(by_split(rows("clean"), Method("tol-fl"), data=data, scenario="clean")) for data in SETS[:2]]
    yield f"reach {alone[0]:.3f} on Comms-ML and {alone[1]:.3f} on Fashion-MNIST"
    yield f"Tol-FL with `elect` reaches {elect[0]:.3f} and {elect[1]:.3f} after a server failure"
    yield f"{clean[0]:.3f} and {clean[1]:.3f} without one"
    gaps = [interval(differences(server(ELECT, data), server(ALL_ALONE, data))) for data in SETS]
    assert [gap.side() for gap in gaps] == [-1, 0, 0, 0]
    yield f"settled ({gaps[0].mean:+.3f}, interval {gaps[0].low:+.3f} to {gaps[0].high:+.3f})"
    yield f"on Fashion-MNIST it is not ({gaps[1].mean:+.3f}, {gaps[1].low:+.3f} to {gaps[1].high:+.3f})"
    yield f"CIFAR-100, where it is small ({gaps[3].mean:+.3f}, {gaps[3].low:+.3f} to {gaps[3].high:+.3f})"
    yield f"{-beyond('dirichlet', 'iid', ELECT, ALL_ALONE).mean:.3f} with data dealt out at random"
    own = [mean(server(ALONE, data)) for data in SETS[:2]]
    yield f"own model alone reaches {own[0]:.3f} and {own[1]:.3f}"
    yield f"Tol-FL is {elect[0] - own[0]:.2f} and {elect[1] - own[1]:.2f} ahead"
    half, early = (beyond("early", at, ELECT).mean for at in (50, 5))
    new = beyond("newcomer", "yes", ELECT).mean
    fashion = interval(differences(server(ELECT, SETS[1]), server(FREEZE, SETS[1]))).mean
    yield f"ahead by {half:.2f} after half of the rounds and by {early:.2f} after five, by {new:.2f} if a new class"
    yield f"by {fashion:.3f} on Fashion-MNIST"
    star, three = (
        [round_s(scheme, k, up) for up in ("serial", "parallel")] for scheme, k in (("fl", 1), ("tol-fl", 3))
    )
    yield f"k = 3 takes {three[0]:.2f} virtual seconds where the star takes {star[0]:.2f}"
    yield f"the star is quicker, {star[1]:.2f} against {three[1]:.2f}"
    drop = {k: beyond("clusters", k, DROP).mean for k in range(4, 11)}
    assert len({f"{drop[k]:.3f}" for k in range(5, 10)}) == 1
    yield f"(k of 4: {drop[4]:+.3f}, of 5 to 9: {drop[5]:+.3f}, of 10: {drop[10]:+.3f})"
    yield f"({beyond('early', 5, DROP).mean:+.2f} in round 5, {beyond('early', 25, DROP).mean:+.2f} in round 25)"
    alike = [beyond("dirichlet", value, DROP) for value in (10, "iid")]
    assert all(gap.side() > 0 for gap in alike)
    yield f"(Dirichlet data of alpha 10: {alike[0].mean:+.3f}, dealt out at random: {alike[1].mean:+.3f})"
    together = [beyond("dirichlet", value, ALL_ALONE, ALONE).mean for value in ("iid", 10, 1, 0.2, 0.05, "classes")]
    assert sorted(together) == pytest.approx(together, abs=5e-4)
    yield f"({together[0]:.3f} with data dealt out at random, {together[-1]:.3f} with one class each)"
    each = [row["auroc"] for row in rows_where(rows("beyond"), question="rotation", scheme="tol-fl", policy="elect")]
    yield f"{min(each):.2f} to {max(each):.2f} for `elect`"
    rivals = {
        policy: [
            mean(by_split(rows_where(rows("beyond"), question="rehome"), Method(name, policy, "auroc_all_models")))
            for name in ("fedgroup", "ifca", "fesem")
        ]
        for policy in ("strict", "rehome")
    }
    yield f"with `strict` ({min(rivals['strict']):.2f} to {max(rivals['strict']):.2f})"
    yield f"`rehome` ({min(rivals['rehome']):.2f} to {max(rivals['rehome']):.2f})"
    messages = {(row["scheme"], row["k"]): row["messages"] for row in rows("communication")}
    star, five = messages["fl", 1], messages["tol-fl", 5]
    assert len({row["unicast"] for (scheme, _), row in messages.items() if scheme in ("fl", "tol-fl", "sbt")}) == 1
    yield f"({five['hops']:g} at k = 5, {star['hops']:g} for the star)"
    yield f"({five['paper']:g} against {star['paper']:g})"
    lost = [-beyond("several", n, DROP).mean for n in (1, 2)]
    yield f"stopping is better by {lost[0]:.2f}, and after two lost heads by {lost[1]:.2f}"
    yield f"PCA with all data in one place reaches {mean(server(Method('pca-16'), SETS[0])):.3f} on Comms-ML"


def sentences_of_reproduction() -> Iterator[str]:
    """Yield pieces of sentences of reproduction.md, with numbers from the rows."""
    pairs = (
        ("`elect` against `isolate`", ELECT, Method("fl", "isolate")),
        ("`elect` against `freeze`", ELECT, FREEZE),
        ("`elect` against all models of isolated devices", ELECT, Method("fl", "isolate", "auroc_all_models")),
        ("`drop` against `freeze`", DROP, FREEZE),
    )
    for pair, own, rival in pairs:
        gaps = [interval(differences(server(own, data), server(rival, data))).mean for data in SETS]
        yield " | ".join([f"| {pair}", *(f"{gap:+.3f}" for gap in gaps)])
    clustered = ("fedgroup", "ifca", "fesem")
    for score, words in (("auroc_best", "their best single models by"), ("auroc_all_models", "all models together by")):
        theirs = {data: [server(Method(name, "strict", score), data) for name in clustered] for data in SETS}
        ahead = [mean(server(ELECT, SETS[0])) - mean(units) for units in theirs[SETS[0]]]
        yield f"{words} {min(ahead):.2f} to {max(ahead):.2f}"
        sides = [
            interval(differences(server(ELECT, data), units)).side() for data in SETS[1:] for units in theirs[data]
        ]
        assert 1 not in sides
        assert sides.count(-1) == (score == "auroc_all_models")
    apart = [
        abs(mean(by_split(of, Method(name, rival, "auroc_chosen"), data=data)) - mean(by_split(of, ours, data=data)))
        for scenario, rival, ours in (
            ("clean", "", Method("tol-fl")),
            ("client", "", Method("tol-fl")),
            ("server", "strict", ELECT),
        )
        for of in [rows_where(rows(scenario), scenario=scenario)]
        for data in SETS[2:]
        for name in clustered
    ]
    yield f"the model that held-back samples choose is within {max(apart):.3f} of Tol-FL"
    ours = [row for row in rows("client") if row["scenario"] in ("clean", "client")]
    means = {
        (row["scenario"], row["scheme"], row["data"], score): mean(
            by_split(
                rows_where(ours, scenario=row["scenario"]),
                Method(row["scheme"], row["policy"], score),
                data=row["data"],
            )
        )
        for row in ours
        for score in ("auroc", "auroc_best", "auroc_all_models")
        if row.get(score) is not None
    }
    moved = max(abs(means["clean", *of] - value) for (_, *of), value in means.items() if ("clean", *of) in means)
    yield f"A client's failure changes no method's mean by more than {moved:.3f}"
    claims = read_results(ROOT / "results" / "client.json")["verdicts"]
    assert all(claim["is_supported"] and "costs" in claim["claim"] for claim in claims)


@pytest.mark.parametrize(
    ("name", "expected"), [("when-tol-fl-pays", sentences), ("reproduction", sentences_of_reproduction)]
)
def test_conclusions_have_the_numbers_of_the_rows(name: str, expected: Callable[[], Iterator[str]]) -> None:
    page = re.sub(r"\s+", " ", (ROOT / f"docs/explanation/{name}.md").read_text())

    assert [sentence for sentence in expected() if sentence not in page] == []


def test_election_is_nowhere_settled_to_be_behind_stopping_and_never_worse_than_drop_on_comms_ml() -> None:
    values = {(row["question"], row["varied"], row["data"]) for row in rows("beyond") if row["scheme"] == "tol-fl"}
    for question, value, data in values:
        own = rows_where(with_every_policy(rows_where(rows("beyond"), question=question)), varied=value)
        elect, drop, freeze = (by_split(own, method) for method in (ELECT, DROP, FREEZE))
        if elect and freeze and len(elect) > 1:
            assert interval(differences(elect, freeze)).side() >= 0, (question, value)
        if elect and drop and data == "comms-ml":
            assert mean(elect) >= mean(drop) - 1e-9, (question, value)
