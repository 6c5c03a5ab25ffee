"""The curves of recorded trainings in the strip: every step of every run, at one scale, and how each ends."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.precision import record
from visuals.precision import curves
from visuals.precision.tables import scaling, weights


@pytest.mark.parametrize("names", [curves.SCALING, curves.WEIGHTS], ids=["scaling", "weights"])
def test_each_run_is_a_line_over_all_its_steps(names):
    part = curves.strip_curve(names)
    top = float(part["top"])
    assert len({line["role"] for line in part["lines"]}) == len(names) == len(part["lines"])
    for name, line in zip(names, part["lines"], strict=True):
        loss = record.curve(name).loss
        x, y = np.array(line["points"]).T
        assert len(x) == record.STEPS and x[-1] == 1
        mean = np.array([loss[max(0, n - 4) : n + 1].mean() for n in range(len(loss))])
        np.testing.assert_allclose(y, np.minimum(1, mean / top), atol=1e-4)
    assert part["epochs"] == "150 steps" and part["right"] == "" and "secret" in part["kind"]


def test_a_run_that_leaves_the_chart_is_named():
    dying, slow = curves.strip_curve(curves.SCALING), curves.strip_curve(curves.WEIGHTS)
    assert "Losses above 10 are at the upper edge." in dying["text"]
    assert max(record.curve("none").loss) > 10 and "upper edge" not in slow["text"]
    heights = {line["name"]: line["points"][-1][1] for line in dying["lines"]}
    assert heights.pop("no scale") > 0.5 > 0.05 > max(heights.values())


@pytest.mark.parametrize(("names", "table"), [(curves.SCALING, scaling), (curves.WEIGHTS, weights)])
def test_a_run_ends_as_in_the_table(names, table):
    text = curves.strip_curve(names)["text"]
    for name, (_, cells) in zip(names, table().lines, strict=True):
        shown = f"{curves.KEYS[name]} {curves.last_epoch(name):.3g}"
        assert shown in text and float(cells[0]) == pytest.approx(curves.last_epoch(name), abs=5e-4)
