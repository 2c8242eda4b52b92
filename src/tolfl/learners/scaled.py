"""Any learner on rows that the fleet scales first: for devices that have tables of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tolfl.core.contribution import Contribution, Part
from tolfl.learners.learner import Account, Closing, Learner, Scorer, Shape, State, Turn

#: In double precision they take twice the memory of all the rows of a small device.
_ROWS_AT_ONCE = 1024


class Scaled(Learner):
    """A learner whose rows are `(row - shift) * factor`, with what a scaling stage before it left in the state."""

    def __init__(self, learner: Learner) -> None:
        self.learner, self.rounds = learner, learner.rounds

    def start(self, state: State) -> State:
        """Return what the learner starts from."""
        return self.learner.start(state)

    def contribute(self, turns: Sequence[Turn]) -> list[dict[str, Part]]:
        """Return what each device adds, from its scaled rows; nothing, where nobody has said how to scale."""
        with_scale = [turn for turn in turns if "scaler/shift" in turn.state]
        found = iter(self.learner.contribute([_scaled(turn) for turn in with_scale]) if with_scale else ())
        return [next(found) if "scaler/shift" in turn.state else {} for turn in turns]

    def apply(self, state: State, total: Contribution, closing: Closing) -> State:
        """Return the state after a round."""
        return self.learner.apply(state, total, closing)

    def shapes(self, state: State, round_index: int) -> dict[str, Shape] | None:
        """Return the parts that a round may carry."""
        return self.learner.shapes(state, round_index)

    def results(self, state: State) -> dict[str, Scorer]:
        """Return what the learner leaves; it scores scaled rows."""
        return self.learner.results(state)

    def nbytes(self, round_index: int) -> tuple[int, int]:
        """Return the bytes of a contribution and of a closed round."""
        return self.learner.nbytes(round_index)

    def account(self, before: State, after: State, total: Contribution, round_index: int) -> Account:
        """Return what the record says of a round."""
        return self.learner.account(before, after, total, round_index)


def _scaled(turn: Turn) -> Turn:
    rows = np.empty(turn.rows.shape, np.float32)
    for first in range(0, len(rows), _ROWS_AT_ONCE):
        some = slice(first, first + _ROWS_AT_ONCE)
        values = turn.rows[some].astype(np.float64)
        values -= turn.state["scaler/shift"]
        values *= turn.state["scaler/factor"]
        rows[some] = values
    return replace(turn, rows=rows)
