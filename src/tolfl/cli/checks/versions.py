"""Versions: of Python, of tolfl, of the packages it needs and of those that only some commands need."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from tolfl.cli.checks.finding import Finding, State

_AREA = "versions"
_LOWEST_PYTHON = (3, 11, 4)
#: Groups of packages that are asked for by name, and what does not work without them.
_EXTRAS = {
    "tables": "tables in CSV and Parquet, figures and FederatedDetector",
    "study": "generated Bluetooth, spectrograms and statistics of experiments",
    "discovery": "finding devices in a local network",
    "dashboard": "tolfl dashboard",
    "export": "tolfl export",
    "ray": "tolfl reproduce --on ray",
    "torch": "a module of your own",
    "track": "--track",
}


def version_findings() -> Iterator[Finding]:
    """Look at what is installed."""
    yield _python()
    yield Finding(_AREA, "tolfl", State.OK, f"{version('tolfl')}")
    yield _kernel()
    yield _packages()
    for extra, what in _EXTRAS.items():
        yield _extra(extra, what)


def _python() -> Finding:
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.version_info < _LOWEST_PYTHON:
        return Finding(_AREA, "python", State.PROBLEM, found, "tolfl needs 3.11.4 or newer")
    return Finding(_AREA, "python", State.OK, found)


def _kernel() -> Finding:
    """Say which kernel trains and scores."""
    from tolfl.kernel import KernelError, chosen_kernel

    try:
        chosen = chosen_kernel()
    except KernelError as error:
        return Finding(_AREA, "kernel", State.PROBLEM, error.problem, "install a C compiler, such as gcc")
    if chosen.problem:
        found = f"{chosen.kernel.name}, right but slow: {chosen.problem}"
        return Finding(_AREA, "kernel", State.WARNING, found, "install a C compiler, such as gcc")
    return Finding(_AREA, "kernel", State.OK, chosen.kernel.name)


def _packages() -> Finding:
    wrong = unmet("")
    if wrong:
        return Finding(_AREA, "packages", State.PROBLEM, ", ".join(wrong), "run: pip install --upgrade tolfl")
    return Finding(_AREA, "packages", State.OK, "all that tolfl needs are installed, in versions that it knows")


def _extra(extra: str, what: str) -> Finding:
    wrong, command = unmet(extra), f"pip install 'tolfl[{extra}]'"
    if not wrong:
        return Finding(_AREA, extra, State.OK, f"installed: {what} works")
    if all(one.endswith("is not installed") for one in wrong):
        return Finding(_AREA, extra, State.NOTE, f"{', '.join(wrong)}", f"for {what}, run: {command}")
    return Finding(_AREA, extra, State.WARNING, f"{', '.join(wrong)}", f"for {what}, run: {command}")


def unmet(extra: str) -> list[str]:
    """Return what is wrong with the packages of an extra; of none: with those that everybody needs."""
    from packaging.requirements import Requirement

    wrong = []
    for line in requires("tolfl") or []:
        requirement = Requirement(line)
        if not _is_of(requirement.marker, extra):
            continue
        try:
            there = version(requirement.name)
        except PackageNotFoundError:
            wrong.append(f"{requirement.name} is not installed")
            continue
        if not requirement.specifier.contains(there, prereleases=True):
            wrong.append(f"{requirement.name} {there} is not {requirement.specifier}")
    return wrong


def _is_of(marker: object, extra: str) -> bool:
    from packaging.markers import Marker

    if not isinstance(marker, Marker):
        return not extra
    return marker.evaluate({"extra": extra}) and (not extra or not marker.evaluate({"extra": ""}))
