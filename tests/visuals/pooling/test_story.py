"""Sentences about the figures of the pooling ladders."""

from __future__ import annotations

import pytest

from kernels.pooling.ladder import LADDERS
from kernels.pooling.shape import MaxPoolShape
from visuals.pooling.story import STORIES


@pytest.mark.parametrize("ladder", LADDERS, ids=lambda ladder: ladder.name)
def test_every_ladder_says_at_each_preset_what_is_moved(ladder):
    for preset in ladder.presets.values():
        text = STORIES[ladder.name].cost(preset.shape)
        assert text.startswith("At least ") and "{" not in text
        assert ("Windows per pixel" in text) == hasattr(preset.shape, "R")
    assert STORIES[ladder.name].gain({}) == "" and STORIES[ladder.name].examples() is not None


def test_windows_that_overlap_cover_a_pixel_several_times():
    overlapping = STORIES["max-pool"].cost(MaxPoolShape(1, 1, 56, 56, 3, 3, stride=1, pad=1))
    assert "padding included: 9." in overlapping
    assert "padding included: 1." in STORIES["max-pool"].cost(MaxPoolShape(1, 1, 56, 56, 2, 2))
