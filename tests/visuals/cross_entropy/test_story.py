"""Sentences about the figures of the cross-entropy ladders."""

from __future__ import annotations

import pytest

from kernels.cross_entropy.ladder import LADDERS
from visuals.cross_entropy.story import STORIES


@pytest.mark.parametrize("ladder", LADDERS, ids=lambda ladder: ladder.name)
def test_every_ladder_says_at_each_preset_what_is_moved(ladder):
    for preset in ladder.presets.values():
        text = STORIES[ladder.name].cost(preset.shape)
        assert text.startswith("At least ") and "The logits x have" in text and "{" not in text
    assert STORIES[ladder.name].gain({}) == ""
