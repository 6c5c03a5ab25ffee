"""The sentences of the embedding notes: figures of every preset, short sentences, nothing without recordings."""

from __future__ import annotations

import re

import pytest

from visuals.embedding.notes import NOTES, PRESETS

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


def test_repeated_tokens_are_said():
    presets, notes = PRESETS["embedding-backward"], NOTES["embedding-backward"]
    assert "All 8,192 rows are added to one row." in notes.cost(presets["embedding-backward-equal"].shape)
    assert "about 6.4 % of the 65,536 rows" in notes.cost(presets["embedding-backward-gpt2-batch"].shape)
    assert "occurs 1.3 times" in notes.cost(presets["embedding-backward-uniform"].shape)
