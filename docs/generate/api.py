"""The page of the Python interface: every public name, described by its docstring."""

from __future__ import annotations

from docs.generate.comments import names_in

#: In the order in which a reader meets them; a name that is not here comes after them.
_FIRST = ("simulate", "Run", "compare", "Comparison", "FederatedDetector", "Detector")
#: What somebody implements or looks up who extends the library.
EXTENDING = (
    "learners.learner.Learner",
    "learners.learner.Fleet",
    "learners.learner.Turn",
    "learners.learner.Closing",
    "learners.learner.Stages",
    "learners.learner.ScoringFunction",
    "learners.checks.check_learner",
    "learners.registry.settings_of",
    "core.contribution.Contribution",
    "core.contribution.Part",
    "core.topology.Topology",
    "datasets.raw.RawData",
    "learners.training.Model",
)


def page() -> str:
    """Return the page; `:::` is filled in by mkdocstrings."""
    public = names_in("")
    names = sorted(public, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
    inside = [name for name in names_in("detect") if name not in public]
    return "\n\n".join(
        [
            "## tolfl",
            *(f"::: tolfl.{name}" for name in names),
            "## tolfl.detect",
            *(f"::: tolfl.detect.{name}" for name in inside),
            "## Errors",
            "::: tolfl.core.errors\n    options:\n      show_root_heading: false\n      show_root_toc_entry: false",
            "## To extend it",
            *(f"::: tolfl.{name}" for name in EXTENDING),
        ]
    )
