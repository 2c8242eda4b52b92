"""Which learner a specification asks for: by name, from a file, from another package, and what is refused."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import msgspec
import numpy as np
import pytest
from torch import nn

from tolfl.core.errors import SpecError, UnknownNameError
from tolfl.core.spec import ModelSpec, RunSpec
from tolfl.learners import Fleet, Learner, registry
from tolfl.learners.autoencoder import Autoencoder
from tolfl.learners.averaging import Averaging, Batch
from tolfl.learners.checks import check_learner
from tolfl.learners.fedgroup import FedGroup
from tolfl.learners.fesem import FeSEM
from tolfl.learners.ifca import IFCA
from tolfl.learners.layouts import SCHEMES
from tolfl.learners.registry import autoencoder_for, fingerprint, learner_of, settings_of, training_of, what_of
from tolfl.learners.torch_module import ModuleModel

MINE = """
import numpy as np
from tolfl.learners import Learner

class Centre(Learner):
    rounds = 2

    def __init__(self, fleet):
        self.n = fleet.n_features

    def start(self, state):
        return {**state, "centre": np.zeros(self.n)}

    def contribute(self, turns):
        return [{"centre": turn.mean(turn.rows.mean(axis=0, dtype=float))} for turn in turns]

    def apply(self, state, total, closing):
        return {**state, "centre": total.parts["centre"].mean} if total.parts else state

class Endless(Centre):
    rounds = None

def nothing(fleet):
    return None
"""


def fleet(
    scheme: str = "tol-fl", shape: tuple[int, ...] = (4,), model: ModelSpec | None = None, **learn: object
) -> Fleet:
    spec = RunSpec(
        data="blobs", scheme=scheme, devices=4, clusters=2, rounds=3, model=model or ModelSpec(), learn=dict(learn)
    )
    return Fleet(spec, shape, usual_rows=20)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


# -- built in ---------------------------------------------------------------------------------------------------------


def test_every_scheme_has_its_learner() -> None:
    kinds = {name: type(learner_of(fleet(name))) for name in SCHEMES}

    assert kinds == {
        "tol-fl": Averaging,
        "fl": Averaging,
        "sbt": Averaging,
        "batch": Batch,
        "batch-small": Batch,
        "fedgroup": FedGroup,
        "ifca": IFCA,
        "fesem": FeSEM,
    }
    assert {learner_of(fleet(name)).rounds for name in SCHEMES} == {3}


def test_what_is_learned_follows_from_the_scheme_unless_it_is_said() -> None:
    assert {name: what_of(fleet(name).spec) for name in ("tol-fl", "fl", "sbt", "ifca", "batch")} == {
        "tol-fl": "autoencoder",
        "fl": "autoencoder",
        "sbt": "autoencoder",
        "ifca": "ifca",
        "batch": "batch",
    }
    assert what_of(fleet("sbt", what="mine.py:Centre").spec) == "mine.py:Centre"
    assert what_of(fleet("ifca", what="ifca").spec) == "ifca"


@pytest.mark.parametrize(
    ("scheme", "what", "sentence"),
    [
        ("ifca", "mine.py:Centre", "scheme ifca learns its own models, not 'mine.py:Centre'; use tol-fl, fl or sbt"),
        ("batch", "autoencoder", "scheme batch learns its own models, not 'autoencoder'"),
        ("tol-fl", "fesem", "'fesem' is a scheme, too: choose it with --scheme fesem"),
        ("fedgroup", "ifca", "scheme fedgroup learns its own models, not 'ifca'"),
        ("tol-fl", 7, "learn.what 7; give a name, or a file and a class as in 'mine.py:KMeans'"),
    ],
)
def test_what_a_scheme_cannot_learn_is_refused(scheme: str, what: object, sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        what_of(fleet(scheme, what=what).spec)


def test_an_unknown_scheme_is_refused_before_what_it_learns() -> None:
    with pytest.raises(UnknownNameError, match="unknown scheme 'gossip'"):
        what_of(RunSpec(data="blobs", scheme="gossip"))


def test_built_in_learners_have_no_settings_of_their_own() -> None:
    with pytest.raises(SpecError, match=r"learn.depth: autoencoder has no settings there; see train and model"):
        learner_of(fleet(depth=3))


def test_the_autoencoder_is_as_large_as_asked_for_and_takes_flat_samples() -> None:
    model = autoencoder_for(fleet(model=ModelSpec(hidden=(5,), code=2)))

    assert model.tensors(model.initial(0))["encoder.0.weight"].shape == (5, 4)
    with pytest.raises(SpecError, match=r"samples of shape .2, 2.: the built-in autoencoder takes flat ones"):
        autoencoder_for(fleet(shape=(2, 2)))
    with pytest.raises(SpecError, match="model 'Mean' was given from Python; repeat the run there"):
        autoencoder_for(fleet(model=ModelSpec(module="Mean")))


def test_what_training_leaves_open_is_settled_by_the_fleet() -> None:
    few, many = (training_of(replace(fleet(), usual_rows=n)).settings.batch_size for n in (20, 20_000))

    assert 0 < few <= many
    assert isinstance(training_of(fleet()).model, Autoencoder)


# -- from a file ------------------------------------------------------------------------------------------------------


def test_a_learner_may_come_from_a_file(mine: Path) -> None:
    asked = fleet(what=f"{mine}:Centre")
    learner = learner_of(asked)

    assert (type(learner).__name__, learner.rounds) == ("Centre", 2)
    check_learner(lambda: learner_of(asked), [np.ones((3, 4), dtype=np.float32), np.zeros((2, 4), dtype=np.float32)])


def test_a_file_is_read_once_until_it_changes(mine: Path) -> None:
    first, second = (type(learner_of(fleet(what=f"{mine}:Centre"))) for _ in range(2))
    written = mine.stat().st_mtime
    mine.write_text(MINE.replace("rounds = 2", "rounds = 5"))
    os.utime(mine, (written, written))
    changed = learner_of(fleet(what=f"{mine}:Centre"))

    assert first is second
    assert changed.rounds == 5


@pytest.mark.parametrize(
    ("content", "name", "sentence"),
    [
        (None, "mine.py:Centre", "there is no file .*mine.py; name a file and a class, as in mine.py:KMeans"),
        (MINE, "mine.py:Median", "mine.py has no class Median"),
        (MINE, "mine.py", "name the class in the file, as in mine.py:KMeans"),
        (MINE, "mine.py:", "name the class in the file, as in mine.py:KMeans"),
        ("1 / 0", "mine.py:Centre", "mine.py cannot be loaded .ZeroDivisionError: division by zero"),
        ("def (", "mine.py:Centre", "mine.py cannot be loaded .SyntaxError: "),
        ("import no_such_package", "mine.py:Centre", "cannot be loaded .ModuleNotFoundError: No module named"),
        (MINE, "mine.py:nothing", "is no Learner with a number of rounds"),
        (MINE, "mine.py:Endless", "is no Learner with a number of rounds"),
    ],
)
def test_a_file_that_gives_no_learner_is_refused_in_one_sentence(
    tmp_path: Path, content: str | None, name: str, sentence: str
) -> None:
    if content is not None:
        (tmp_path / "mine.py").write_text(content)

    with pytest.raises(SpecError, match=sentence) as caught:
        learner_of(fleet(what=f"{tmp_path}/{name}"))
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_that_cannot_be_loaded_leaves_no_module_behind(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("x = 1\nraise RuntimeError('not today')")
    before = set(sys.modules)
    for _ in range(2):
        with pytest.raises(SpecError, match="RuntimeError: not today"):
            learner_of(fleet(what=f"{path}:Centre"))

    assert not {name for name in set(sys.modules) - before if name.startswith("tolfl_learner_")}


def test_a_model_and_a_learner_that_brings_its_own_do_not_go_together(mine: Path) -> None:
    with pytest.raises(SpecError, match=r"a model was handed in, and learner .* brings its own; leave one of them out"):
        learner_of(fleet(what=f"{mine}:Centre"), ModuleModel(nn.Linear(4, 4)))


# -- from another package ---------------------------------------------------------------------------------------------


def offered(monkeypatch: pytest.MonkeyPatch, **points: str) -> None:
    """Stand in for packages that are installed."""
    found = {name: EntryPoint(name, value, registry.GROUP) for name, value in points.items()}
    monkeypatch.setattr(registry, "_entry_points", lambda: found)


def test_a_package_may_offer_a_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    offered(monkeypatch, medians="tests.learners.test_registry:offered_learner")

    assert isinstance(learner_of(fleet(what="medians")), Averaging)


def test_a_package_that_cannot_be_loaded_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    offered(monkeypatch, medians="no_such_package.medians:Medians", means="tests.learners.test_registry:no_such_name")

    with pytest.raises(
        SpecError, match=r"'medians': no_such_package.medians:Medians cannot be loaded \(ModuleNotFound.*"
    ):
        learner_of(fleet(what="medians"))
    with pytest.raises(
        SpecError, match=r"cannot be loaded \(AttributeError: .*; repair or remove the package that offers"
    ):
        learner_of(fleet(what="means"))


def offered_learner(given: Fleet) -> Learner:
    return Averaging(training_of(given), given.spec.rounds, given.seed)


def test_a_learner_that_nobody_offers_is_refused_with_those_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    offered(monkeypatch, medians="tests.learners.test_registry:offered_learner")

    with pytest.raises(
        UnknownNameError, match=r"unknown learner 'median'; .*autoencoder.*medians.*a file and a class, as in mine.py"
    ):
        learner_of(fleet(what="median"))


# -- the fingerprint --------------------------------------------------------------------------------------------------


def test_the_fingerprint_changes_with_the_content_of_the_file_and_not_with_its_place(
    mine: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere.py"
    elsewhere.write_text(MINE)
    same = [fingerprint(fleet(what=f"{path}:Centre").spec) for path in (mine, elsewhere)]
    mine.write_text(MINE + "\n# another\n")

    assert same[0] == same[1]
    assert fingerprint(fleet(what=f"{mine}:Centre").spec) != same[0]
    assert fingerprint(fleet(what=f"{elsewhere}:Endless").spec) != same[0]


def test_the_fingerprint_changes_with_what_is_learned_and_its_settings(mine: Path) -> None:
    prints = [
        fingerprint(asked.spec)
        for asked in (
            fleet(),
            fleet("ifca"),
            fleet(what=f"{mine}:Centre"),
            fleet(what=f"{mine}:Centre", depth=1),
            fleet(what=f"{mine}:Centre", depth=2),
        )
    ]

    assert len(set(prints)) == 5
    assert fingerprint(fleet("fl").spec) == fingerprint(fleet("sbt").spec) == prints[0]


def test_the_fingerprint_of_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="there is no file"):
        fingerprint(fleet(what=f"{tmp_path}/none.py:Centre").spec)


# -- settings ---------------------------------------------------------------------------------------------------------


class Depth(msgspec.Struct):
    depth: int = 1


def test_settings_are_read_as_the_learners_own() -> None:
    assert settings_of(fleet(what="x.py:Y", depth=3), Depth) == Depth(3)
    assert settings_of(fleet(what="x.py:Y"), Depth) == Depth(1)


@pytest.mark.parametrize("learn", [{"depth": "deep"}, {"width": 3}], ids=str)
def test_settings_that_are_wrong_or_unknown_are_refused(learn: dict[str, object]) -> None:
    with pytest.raises(SpecError, match=r"^learn: .*; x.py:Y takes depth$"):
        settings_of(fleet(what="x.py:Y", **learn), Depth)  # type: ignore[arg-type]
