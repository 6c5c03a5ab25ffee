"""The sentences of the cross_entropy notes: figures of every preset, short sentences, nothing without recordings."""

from __future__ import annotations

import re

import pytest

from visuals.cross_entropy.notes import NOTES, PRESETS

every_preset = pytest.mark.parametrize(
    ("ladder", "preset"), [(name, key) for name, presets in PRESETS.items() for key in presets]
)


@every_preset
def test_cost_has_the_figures_of_the_shape(ladder, preset):
    text = NOTES[ladder].cost(PRESETS[ladder][preset].shape)
    assert re.search(r"\d", text) and "{" not in text
    for sentence in re.split(r"(?<=[.:]) ", text):
        assert len(sentence.split()) <= 20, sentence


@pytest.mark.parametrize("ladder", NOTES)
def test_gain_is_empty_without_rows(ladder):
    assert NOTES[ladder].gain({}) == ""
    assert isinstance(NOTES[ladder].examples(), list)


def test_three_launches_move_six_matrices_of_gpt2s_logits():
    text = NOTES["cross-entropy"].cost(PRESETS["cross-entropy"]["ce-gpt2"].shape)
    assert "The logits have 206 MB." in text and "move 1.24 GB" in text
