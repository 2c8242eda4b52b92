"""What a fleet can compute: learners, one file each, its paper cited on top."""

from tolfl.learners.learner import Account, Closing, Fleet, Learner, Scorer, Shape, Stages, State, Turn

__all__ = ["Account", "Closing", "Fleet", "Learner", "Scorer", "Shape", "Stages", "State", "Turn"]
