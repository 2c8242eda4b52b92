"""What the pages conclude is what the stored rows say: each number is made from rows and must stand in its sentence."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from tolfl.experiments.beyond import with_every_policy
from tolfl.experiments.paper.published import published
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
    together = [mean(server(Method(name, "strict", "auroc_all_models"), SETS[0])) for name in clustered]
    yield f"their models together, a server fails, Comms-ML | {min(together):.2f} to {max(together):.2f}"
    on_cifar = [
        mean(by_split(rows_where(rows(name), scenario=row["scenario"]), method, data=row["data"]))
        for name in ("clean", "client", "server")
        for row in rows(name)
        if row["data"] in SETS[2:]
        for score in ("auroc", "auroc_best", "auroc_chosen", "auroc_all_models")
        if row.get(score) is not None and row["seed"] == 0
        for method in [Method(row["scheme"], row["policy"], score)]
    ]
    yield f"{min(on_cifar):.2f} to {max(on_cifar):.2f} for every method, failure or not"
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
    yield from sentences_about_time()
    yield from sentences_about_step_sizes()
    printed = published()["auroc"]["server"]
    above = [
        (data, name)
        for data in SETS
        for name in clustered
        if printed[data]["tol-fl"][0] > printed[data][f"{name}-dagger"][0]
    ]
    assert above == [("cifar-100", "ifca")]
    of_both = [printed["cifar-100"][name][0] for name in ("tol-fl", "ifca-dagger")]
    yield f"but for IFCA's on CIFAR-100 ({of_both[0]:.2f} against {of_both[1]:.2f})"
    ends = {
        policy: [
            row["losses"][-1] for row in rows_where(rows("server-figure"), data="mnist", scheme=scheme, policy=policy)
        ]
        for scheme, policy in (("tol-fl", "drop"), ("fl", "freeze"))
    }
    gaps = [a - b for a, b in zip(ends["drop"], ends["freeze"], strict=True)]
    yield f"not clearly below training that stops ({fmean(gaps):.2f} ± {stdev(gaps):.2f})"


def sentences_about_time() -> Iterator[str]:
    """Yield the table of virtual seconds until the loss is within 5 % of batch training's."""
    losses = {
        name: {row["seed"]: row["losses"] for row in rows_where(rows("timing"), kind="loss", training=name)}
        for name in ("batch", "averaging, dealt out at random")
    }
    n_rounds = {
        name: {
            seed: next(n for n, loss in enumerate(found, 1) if loss <= 1.05 * min(losses["batch"][seed]))
            for seed, found in of_seed.items()
        }
        for name, of_seed in losses.items()
    }
    for name, of_seed in n_rounds.items():
        found = list(of_seed.values())
        where = "within 5 % of its least loss" if name == "batch" else "averaging with data dealt out at random"
        yield f"{where} after {fmean(found):.1f} ± {stdev(found):.1f}"
    schemes = (("batch", 1), ("fl", 1), ("tol-fl", 3), ("tol-fl", 5), ("sbt", 10))
    means: dict[float, dict[str, list[float]]] = {}
    for speed in (0.0001, 0.001):
        for uplink in ("serial", "parallel"):
            of_schemes = means.setdefault(speed, {}).setdefault(uplink, [])
            for scheme, k in schemes:
                clocks = rows_where(rows("timing"), kind="time", scheme=scheme, k=k, uplink=uplink)
                (clock,) = rows_where(clocks, seconds_per_sample=speed)
                needed = n_rounds["batch" if scheme == "batch" else "averaging, dealt out at random"]
                of_schemes.append(fmean(clock["times_s"][n - 1] for n in needed.values()))
    for uplink in ("serial", "parallel"):
        yield f"({uplink}) | " + " | ".join(f"{one:.1f} s" for one in means[0.0001][uplink])
    for of_speed in means.values():
        _, fl, three, five, sbt = of_speed["parallel"]
        assert fl < min(three, five) < max(three, five) < sbt
        _, fl, three, five, sbt = of_speed["serial"]
        assert max(three, five) < fl < sbt
    assert means[0.0001]["serial"][0] < min(means[0.0001]["serial"][1:]), "batch training is faster still"
    assert all(of_uplink[0] > max(of_uplink[1:]) for of_uplink in means[0.001].values())


def sentences_about_step_sizes() -> Iterator[str]:
    """Yield the lines of the table of step sizes: of all whose double is not too large the one with the least loss."""
    for data, label in zip(SETS, ("Comms-ML", "Fashion-MNIST", "CIFAR-10", "CIFAR-100"), strict=True):
        losses = {row["lr"]: row["loss"] for row in rows_where(rows("step-size"), data=data)}
        steps = sorted(losses)
        best = [
            min((losses[one] or float("inf") for one in steps[:n]), default=float("inf")) for n in range(len(steps))
        ]
        too_large = next(
            step for step, least in zip(steps, best, strict=True) if losses[step] is None or losses[step] > 1.1 * least
        )
        chosen = min((step for step in steps if 2 * step < too_large), key=losses.__getitem__)
        near = " (0.016 and 0.032 can hardly be told from it)" if data == "comms-ml" else ""
        yield f"| {label} | {chosen:g}{near} | {losses[chosen]:.4g} | {too_large:g} |"


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
