"""How long the paper's tables and the questions beyond them take: seconds per round of every group of runs that share
rounds, times the rounds that are to be computed.

python -m benchmarks.tables [tables] [beyond] [--rounds 3] [--data comms-ml,fashion-mnist,cifar-10,cifar-100]

A run of hours is not repeated for a number: each group is timed for some rounds, and the rest is a product. IFCA's
first rounds, in which several starts are compared, are timed by themselves.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time

from tolfl.experiments.beyond.work import Beyond
from tolfl.experiments.paper.studies import chosen_studies
from tolfl.experiments.paper.tables import SCENARIOS, PaperTables
from tolfl.experiments.sweep import Cell, Sweep, groups
from tolfl.learners.layouts import is_plain
from tolfl.sim.simulation import Runs


def cost(group: list[Cell], n_rounds: int) -> tuple[float, float, int]:
    """Return the usual seconds per round of a group, its seconds in all, and its rounds."""
    spec = group[0].spec
    all_runs = Runs(spec)
    n_trials = 0 if is_plain(spec) else getattr(all_runs.simulations[0].learner, "decides_in", 0)
    runs, times = iter(all_runs), []
    for _ in range(n_trials + 1 + n_rounds):  # the first round also makes room for what later ones use again
        started = time.perf_counter()
        next(runs)
        times.append(time.perf_counter() - started)
    usual = statistics.median(times[n_trials + 1 :])
    rounds = spec.rounds + sum(cell.spec.rounds - cell.shared_rounds for cell in group[1:])
    return usual, sum(times[:n_trials]) + usual * (rounds - n_trials), rounds


def report(title: str, sweep: Sweep, n_rounds: int) -> None:
    """Print the groups of a sweep, and their sum."""
    print(f"{title}\n\n| data, scheme | runs | rounds | s per round | minutes |\n|---|---|---|---|---|")
    total = 0.0
    for group in groups(sweep.cells):
        per_round, seconds, rounds = cost(group, n_rounds)
        total += seconds
        spec = group[0].spec
        print(
            f"| {spec.data}, {spec.scheme} | {len(group)} | {rounds} | {per_round:.2f} | {seconds / 60:.1f} |",
            flush=True,
        )
    print(f"| all | {len(sweep.cells)} | | | {total / 60:.0f} |\n")


def main() -> None:
    """Print a table for each of what is asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=["tables", "beyond"], default=["tables", "beyond"])
    parser.add_argument("--rounds", type=int, default=3, help="timed in each group")
    parser.add_argument("--data", default="all")
    asked = parser.parse_args()
    studies, missing = chosen_studies(asked.data)
    load = os.getloadavg()[0]
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {load:.1f}; without {', '.join(missing) or 'nothing'}\n")
    if "tables" in asked.what:
        report("The paper's tables", PaperTables(tuple(SCENARIOS), studies).sweep, asked.rounds)
    if "beyond" in asked.what:
        report("Beyond the paper", Beyond([study.data for study in studies]).sweep, asked.rounds)


if __name__ == "__main__":
    main()
