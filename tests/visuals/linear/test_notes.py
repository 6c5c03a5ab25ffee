"""The sentences of the linear notes: figures of every preset, short sentences, nothing without recordings."""

from __future__ import annotations

import re

import pytest

from visuals.linear.notes import NOTES, PRESETS

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


def test_blocks_are_counted():
    text = NOTES["linear"].cost(PRESETS["linear"]["linear-gpt2-qkv"].shape)
    assert "64 × 128 give 288 blocks of 128 threads" in text and "1.81 G multiply-adds" in text
