"""Figures of rounds: what there is to draw is drawn, and stages are named."""

from __future__ import annotations

import msgspec
import numpy as np

from tests.runs.recorded_runs import lost_head, started
from tolfl.core.records import AnyRecord, Evaluated, RoundClosed
from tolfl.runs.run_figures import has_curves, plot_curves

STAGES = (("scaling", 1), ("thresholds", 2))


def without_loss() -> list[AnyRecord]:
    """Return the run of a detector from statistics: stages, no loss, no scores while it goes on."""
    told = [line for line in lost_head()[1:] if not isinstance(line, Evaluated)]
    lines = [msgspec.structs.replace(line, loss=None) if isinstance(line, RoundClosed) else line for line in told]
    return [msgspec.structs.replace(started(), learn="detector", stages=STAGES), *lines]


def test_loss_and_auroc_are_drawn_where_rounds_have_them() -> None:
    upper, lower = plot_curves([("mine", lost_head())]).axes

    assert (upper.get_ylabel(), lower.get_ylabel()) == ("AUROC on the test set", "training loss")
    assert np.asarray(lower.lines[0].get_ydata()).tolist() == [3.0, 2.0, 1.0]
    assert has_curves([("mine", lost_head())])


def test_rounds_without_a_loss_show_their_devices_and_stages() -> None:
    (axis,) = plot_curves([("mine", without_loss())]).axes

    assert axis.get_ylabel() == "devices in the round"
    assert np.asarray(axis.lines[0].get_ydata()).tolist() == [4, 3, 3]
    assert [text.get_text().strip() for text in axis.texts][:2] == ["scaling", "thresholds"]
    assert not has_curves([("mine", without_loss())])
