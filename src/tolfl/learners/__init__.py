"""Learners: what a fleet can compute, one file each, with its paper cited on top.

A learner is three methods (`learner.Learner`); the simulator and the network run any of them. `registry` finds the one
that a specification asks for, `layouts` says who reports to whom, `checks` tests a learner of your own.
"""

from tolfl.learners.learner import (
    Account,
    Closing,
    Fleet,
    Learner,
    Scorer,
    ScoringFunction,
    Shape,
    Stages,
    State,
    Turn,
)

__all__ = ["Account", "Closing", "Fleet", "Learner", "Scorer", "ScoringFunction", "Shape", "Stages", "State", "Turn"]
