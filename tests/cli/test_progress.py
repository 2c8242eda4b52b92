"""Ctrl-C while something is computed: nothing that comes later begins."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
import typer

from tolfl.cli.progress import follow
from tolfl.sim.simulation import Progress


class Interrupted:
    """A computation of three steps, and a Ctrl-C after one of them."""

    def __init__(self, after: int) -> None:
        self.after, self.is_saved = after, False

    def __iter__(self) -> Iterator[Progress]:
        for done in range(1, 4):
            if done == self.after:
                os.kill(os.getpid(), signal.SIGINT)
            yield Progress(done, 3)
        if self.after > 3:  # while the models are scored
            os.kill(os.getpid(), signal.SIGINT)

    def save_checkpoints(self) -> None:
        self.is_saved = True


@pytest.mark.parametrize(("after", "said"), [(2, "stopped after 2 rounds"), (4, "stopped")])
def test_ctrl_c_in_any_step_says_how_to_go_on(after: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    work = Interrupted(after)
    with pytest.raises(typer.Exit) as ended:
        follow(work, command="tolfl simulate --out x --resume")  # type: ignore[arg-type]

    assert ended.value.exit_code == 130
    assert capsys.readouterr().err == f"tolfl: {said}; to go on: tolfl simulate --out x --resume\n"
    assert work.is_saved == (after < 4)


@pytest.mark.parametrize("after", [2, 4])
def test_ctrl_c_where_nothing_can_go_on_stops_all_that_follows(after: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        follow(Interrupted(after))  # type: ignore[arg-type]
