"""Defences as choices of a specification: off unless asked for, and wrong numbers are named."""

from __future__ import annotations

import pytest

from tolfl.core.errors import SpecError
from tolfl.core.spec import DefenceSpec, RunSpec


def test_nothing_is_on_unless_it_is_asked_for() -> None:
    assert not RunSpec().defence.is_on
    assert str(RunSpec().defence) == ""
    assert not DefenceSpec(trim=0.4).is_on


@pytest.mark.parametrize(
    ("defence", "depends"),
    [
        (DefenceSpec("median"), True),
        (DefenceSpec("trimmed-mean"), True),
        (DefenceSpec(clip_to_median=2.0), True),
        (DefenceSpec(chain_clip=1.0), True),
        (DefenceSpec(clip_norm=1.0), False),
        (DefenceSpec(max_samples=9), False),
    ],
    ids=str,
)
def test_a_defence_says_whether_the_clusters_matter(defence: DefenceSpec, depends: bool) -> None:
    assert defence.is_on
    assert defence.depends_on_layout is depends
    assert str(defence).endswith("the model depends on the clusters") is depends


def test_a_defence_is_read_from_toml() -> None:
    spec = RunSpec.from_toml('liars = "3:flip"\n[defence]\ninside = "trimmed-mean"\ntrim = 0.3\nmax_samples = 500')

    assert spec.check().defence == DefenceSpec("trimmed-mean", trim=0.3, max_samples=500)
    assert RunSpec.from_toml(spec.to_toml()) == spec


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("trim = 0.5", "trim 0.5; use a share above 0 and below 0.5"),
        ("trim = 0.0", "trim 0;"),
        ("trim = nan", "trim nan;"),
        ("clip_norm = -1.0", "clip_norm -1; use a number above 0"),
        ("clip_to_median = inf", "clip_to_median inf;"),
        ("chain_clip = nan", "chain_clip nan;"),
        ("max_samples = -3", "max_samples -3;"),
        ('inside = "krum"', "choose one of: mean, median, trimmed-mean"),
        ("inner = 3", "unknown key 'inner'"),
    ],
)
def test_a_wrong_defence_is_named_with_what_to_do(text: str, problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        RunSpec.from_toml(f"[defence]\n{text}").check()
