"""Checks of the contract of learners, to be called by the tests of a learner of your own.

>>> import numpy as np
>>> from tolfl.core.spec import RunSpec
>>> from tolfl.learners import Fleet
>>> from tolfl.learners.registry import learner_of
>>> fleet = Fleet(RunSpec(data="blobs", devices=3, rounds=2), sample_shape=(4,), usual_rows=5)
>>> check_learner(lambda: learner_of(fleet), [np.ones((5, 4), dtype=np.float32)] * 3)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from tolfl.core.contribution import Contribution, can_travel
from tolfl.core.device_set import DeviceSet
from tolfl.learners.learner import (
    Closing,
    Learner,
    State,
    Turn,
    check_contribution,
    contributions_of,
    digest_of,
    state_problem,
)

Given = ParamSpec("Given")
Returned = TypeVar("Returned")

_KEEPS = "a learner keeps nothing and draws by rng_for alone"
_NEEDS = "a device that returns has the state and nothing else"


def check_learner(make: Callable[[], Learner], rows: Sequence[NDArray[np.floating]], seed: int = 0) -> None:
    """Play all rounds of a learner, each several times over; `AssertionError` says what it does not keep to.

    Parameters
    ----------
    make
        Makes the learner anew, as every device of a fleet does: what one object remembers, another does not know.
    rows
        The rows of each device, which may have none. A few of each are enough, as are a few rounds; a learner that
        trains in mini-batches gets the same bits in any company if each device has more than one of them.
    seed
        The seed of the run.
    """
    learner = make()
    _check_schedule(learner)
    state = _called("start({})", learner.start, {})
    _check_state("start({})", state)
    for again in (learner, make()):
        _demand(digest_of(again.start({})) == digest_of(state), "start({}) is not the same twice: devices would differ")
    for index in range(learner.rounds):
        turns = [Turn(seed, device, index, state, slice_) for device, slice_ in enumerate(rows)]
        contributions = _check_contributions(make, learner, turns)
        state = _check_apply(make, learner, turns, contributions)
    _check_results(learner, state, rows)


def _demand(is_kept: bool, sentence: str) -> None:
    if not is_kept:
        raise AssertionError(sentence)


def _called(what: str, call: Callable[Given, Returned], *args: Given.args, **options: Given.kwargs) -> Returned:
    """Return what a call of the learner returns; whatever it raises instead is said of it."""
    before = _global_random_state()
    try:
        returned = call(*args, **options)
    except Exception as error:
        raise AssertionError(f"{what} failed ({type(error).__name__}: {error})") from error
    _demand(_global_random_state() == before, f"{what} draws from np.random; use rng_for(seed, purpose, device, round)")
    return returned


def _global_random_state() -> str:
    return repr(np.random.get_state(legacy=False))  # noqa: NPY002  (to find out who uses it)


def _check_schedule(learner: Learner) -> None:
    rounds = getattr(learner, "rounds", None)
    _demand(isinstance(rounds, int) and rounds > 0, f"rounds is {rounds!r}; it must be a number above 0, known at once")
    for index in range(learner.rounds):
        name, inner, of = learner.stage(index)
        _demand(0 <= inner < of, f"stage({index}) says round {inner} of {of} of {name!r}")
        nbytes: Any = learner.nbytes(index)
        is_size = len(nbytes) == 2 and all(isinstance(n, int) and n >= 0 for n in nbytes)
        _demand(is_size and nbytes == learner.nbytes(index), f"nbytes({index}) is {nbytes}; give two sizes in bytes")
    n_rounds = sum(of for _, of in learner.all_stages()) or learner.stage(0)[2]
    _demand(n_rounds == learner.rounds, f"the stages have {n_rounds} rounds, the learner has {learner.rounds}")


def _check_state(source: str, state: State) -> None:
    problem = state_problem(state)
    _demand(not problem, f"{source} gives {problem}")
    for key, array in state.items():
        _demand(can_travel(array), f"{source}: {key!r} has numbers that are not finite, or of 1e18 and more")


def _check_contributions(make: Callable[[], Learner], learner: Learner, turns: Sequence[Turn]) -> list[Contribution]:
    """Return what the devices report; the same alone, in another company, from another object, another time."""
    index, state = turns[0].round, turns[0].state
    what = f"contribute in round {index}"
    before = digest_of(state), [turn.rows.tobytes() for turn in turns]
    found = _called(what, contributions_of, learner, turns)
    _demand([turn.rows.tobytes() for turn in turns] == before[1], f"{what} changes the rows in place")
    _demand(digest_of(state) == before[0], f"{what} changes the state in place")
    for turn, one in zip(turns, found, strict=True):
        _called(what, check_contribution, learner, turn, one)
    bits = [_bits(one) for one in found]
    again = [_bits(one) for one in contributions_of(learner, turns)]
    _demand(again == bits, f"{what} is not the same twice: {_KEEPS}")
    if not learner.needs_all_turns:
        alone = [_bits(contributions_of(learner, [turn])[0]) for turn in turns]
        _demand(alone == bits, f"{what} depends on the other turns of the call")
    others = [replace(turn, seed=turn.seed + 1) for turn in turns]
    together = [_bits(one) for one in contributions_of(learner, [*turns, *others])]
    _demand(together[: len(turns)] == bits, f"{what} depends on the other turns of the call")
    kept = safetensors.numpy.load(safetensors.numpy.save(state))
    fresh = _called(what, contributions_of, make(), [replace(turn, state=kept) for turn in turns])
    _demand([_bits(one) for one in fresh] == bits, f"{what} is another for a new object with the same state: {_NEEDS}")
    return found


def _check_apply(
    make: Callable[[], Learner], learner: Learner, turns: Sequence[Turn], contributions: Sequence[Contribution]
) -> State:
    """Return the state after a round, applied also to what is left of it when devices fail."""
    index, state = turns[0].round, turns[0].state
    what = f"apply in round {index}"
    closing = Closing(turns[0].seed, index, DeviceSet.of(turn.device for turn in turns))
    total = _called(f"the sum of round {index}", Contribution.total, contributions)
    _check_order(index, total, contributions)
    before = digest_of(state), _bits(total)
    after = _called(what, learner.apply, state, total, closing)
    _check_state(what, after)
    _demand((digest_of(state), _bits(total)) == before, f"{what} changes the state or the total in place")
    _called(f"account of round {index}", learner.account, state, after, total, index)
    again = digest_of(learner.apply(state, total, closing))
    _demand(again == digest_of(after), f"{what} is not the same twice: {_KEEPS}")
    kept = safetensors.numpy.load(safetensors.numpy.save(state))
    fresh = _called(what, make().apply, kept, total, closing)
    _demand(digest_of(fresh) == digest_of(after), f"{what} is another for a new object with the same state: {_NEEDS}")
    partly = {f"without {key!r}": _without(total, key) for key in total.parts}
    for name, rest in {"with an empty total": Contribution.empty(), **partly}.items():
        what = f"apply in round {index} {name}"
        left = _called(what, learner.apply, state, rest, closing)
        _check_state(what, left)
        _called(f"account of round {index} {name}", learner.account, state, left, rest, index)
    return after


def _without(total: Contribution, missing: str) -> Contribution:
    parts = {key: part for key, part in total.parts.items() if key != missing}
    return Contribution(total.included, total.n_samples, parts)


def _check_order(index: int, total: Contribution, contributions: Sequence[Contribution]) -> None:
    """Check that another order and another grouping, as other layouts have, give the same sum but for rounding."""
    half = len(contributions) // 2
    groups = [list(contributions[half:])[::-1], list(contributions[:half])[::-1]]
    other = Contribution.total([Contribution.total(group) for group in groups])
    _demand(other.parts.keys() == total.parts.keys(), f"round {index}: parts depend on the order of devices")
    for key, part in total.parts.items():
        mine, theirs = part.vector.astype(np.float64), other.parts[key].vector.astype(np.float64)
        largest = float(np.abs(mine).max(initial=0.0))
        is_close = np.allclose(mine, theirs, rtol=1e-3, atol=1e-4 * largest)
        _demand(is_close, f"round {index}: the sum of {key!r} depends on the order of devices")


def _bits(contribution: Contribution) -> list[tuple[Any, ...]]:
    """Return all that a contribution says, to be compared to the last bit."""
    return [
        (
            key,
            *(getattr(part, name) for name in part.__struct_fields__ if name != "vector"),
            digest_of({"": part.vector}),
        )
        for key, part in sorted(contribution.parts.items())
    ]


def _check_results(learner: Learner, state: State, rows: Sequence[NDArray[np.floating]]) -> None:
    for name, result in _called("results", learner.results, state).items():
        for slice_ in filter(len, rows):
            scores = _called(f"result {name!r}", result.anomaly_score, slice_)
            is_score = np.shape(scores) == (len(slice_),) and bool(np.isfinite(scores).all())
            _demand(is_score, f"result {name!r} does not give one finite score per row")
        files = _called(f"result {name!r}", result.files)
        _demand(all(isinstance(content, bytes) for content in files.values()), f"result {name!r}: files are no bytes")
