"""Tests of the lesson on attention's backward pass without a browser: URL, parts, chapters, figures, truth of the stage."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.attention.backward.presets import BACKWARD_PRESETS
from kernels.attention.backward.shape import AttentionBackwardShape
from kernels.ladders import find
from kernels.runner import run
from pages import _teasers
from pages.attention.address import MAX, MAX_ELEMENTS, bounds
from pages.attention.backward import address, chapters, controls
from pages.attention.backward.address import ADDRESS, DEFAULT
from tests.helpers.hostile import anything, assert_bounds, assert_valid
from tests.helpers.offenders import every
from tests.helpers.page_runner import heads, links, open_page, stages, strip, texts
from visuals import units
from visuals.attention.backward.inputs import KINDS, inputs
from visuals.attention.backward.memory import LENGTHS, kept
from visuals.attention.backward.notes import NAIVE, squares
from visuals.attention.backward.scene import SCENES

open_at = partial(open_page, "attention/backward/page.py")
RUNGS = ADDRESS.rungs
OWN = [name for name, rung in RUNGS.items() if not rung.library]
HALVES = "flash-mma", "flash-wgmma"  # their tensors have 16 bits


# -- the URL ---------------------------------------------------------------------------------------
@given(
    st.dictionaries(st.sampled_from([*MAX, "causal", "scale", "dtype", "rung", "Br", "Bc", "TILE"]), anything(RUNGS))
)
def test_invalid_values_give_a_valid_state_and_notes(raw):
    assert_valid(*ADDRESS.read(raw), AttentionBackwardShape, RUNGS)


@given(st.fixed_dictionaries({name: st.integers(1, maximum) for name, maximum in MAX.items()}))
def test_field_bounds_allow_only_valid_shapes(values):
    shape = ADDRESS.read(values)[0].shape
    assert shape.elements["Q"] <= MAX_ELEMENTS
    assert_bounds(shape, bounds(shape), ADDRESS.read)


@every("key", BACKWARD_PRESETS)
def test_a_preset_s_link_keeps_the_rung_or_leads_to_one_that_runs(key):
    first, _ = ADDRESS.read({})
    found, notes = ADDRESS.read(ADDRESS.at_shape(first, BACKWARD_PRESETS[key].shape))
    assert found.shape == BACKWARD_PRESETS[key].shape and not notes and not found.broken


@every("name", OWN)
def test_small_heads_have_tiles_to_watch_and_large_ones_the_defaults(name):
    rung = RUNGS[name]
    small = DEFAULT.with_(N=32, d=16, dtype="fp16") if name in HALVES else DEFAULT
    large = small.with_(N=2048)
    assert address.fit(rung, large) == rung.default_tiles
    assert not list(rung.rules(small, address.fit(rung, small)))
    assert address.fit(rung, small) in list(rung.tile_sets(small))


# -- the page --------------------------------------------------------------------------------------
@pytest.mark.parametrize("key", ["backward-toy", "backward-ragged", "backward-2048-fp16"])
def test_a_preset_shows_every_part(key):
    shape = BACKWARD_PRESETS[key].shape
    at = open_at(**ADDRESS.at_shape(ADDRESS.read({})[0], shape))
    html = texts(at)
    assert "kt-note" not in html and f"P and dS <b>{shape.N:,}×{shape.N:,}</b>" in html
    for part in ("Time", "Memory", "Roofline", "Why", "Memory against N", "Kernel"):
        assert f'<h2 class="kt-card">{part}' in html, part
    assert at.code and strip(at)["run"]["label"] == "Run here"


@pytest.mark.parametrize("name", [name for name in OWN if not RUNGS[name].no_scene])
def test_every_own_rung_is_on_the_stage(name):
    shape = DEFAULT.with_(N=32, d=16, dtype="fp16") if name in HALVES else DEFAULT
    at = open_at(view="watch", rung=name, **shape.params(), **address.fit(RUNGS[name], shape))
    assert stages(at)[0].startswith(f"attention-backward/{name} ") and "kt-note" not in texts(at)


def test_a_library_and_a_wrong_type_have_no_stage_but_a_reason():
    at = open_at(rung="library")  # without PyTorch it cannot run at all
    assert not stages(at) and re.search("Its source is not open|cannot run with these settings", texts(at))
    at = open_at(dtype="fp16", rung="flash")
    assert not stages(at) and "cannot run with these settings: dtype must be fp32, got fp16" in texts(at)
    assert "flash backward, tensor cores" in links(at)


def test_memory_is_an_order_of_every_rung():
    at = open_at(order="memory", rung="recompute")
    assert stages(at)[0].startswith("memory ") and len(heads(at)[0]["orders"]) == 2


def test_the_memory_card_speaks_of_this_ladder():
    html = texts(open_at(view="memory", B=4, H=16, N=2048, d=64, rung="naive", TILE=32))
    assert "At N = 2,048, P and dS in memory allocates 2.42 GB" in html and "P and dS are N × N per head." in html
    assert "recorded NVIDIA H200, peak: ◆" in html and "equal it to the byte" in html


def test_every_chip_is_a_preset():
    assert controls.CHIPS.keys() <= BACKWARD_PRESETS.keys()
    assert controls.name(controls.REAL) == "N = 2,048, 16 heads of 64, batch 4"


# -- figures ---------------------------------------------------------------------------------------
def test_the_chapters_figures_are_those_of_the_programs():
    real = controls.REAL
    counts = chapters._counts(real)
    naive = find(NAIVE)
    program = naive.build(real, naive.default_tiles)
    stored = sum(b.nbytes for b in program.buffers if b.name in ("P", "dS"))
    assert squares(real) == stored and counts["squares"] == "2.15 GB"
    assert kept(NAIVE, real) - stored == kept("attention-backward/flash", real)
    assert counts["parts"] == "32" and counts["longer"] == "16,384"
    flash = find("attention-backward/flash")
    for name, rung in (("naive", naive), ("flash", flash)):
        moved = rung.cost(real, rung.build(real, rung.default_tiles)).moved_bytes
        assert counts[f"moved_{name}"] == units.bytes_(moved)
    assert squares(real.with_(N=16_384)) == 64 * stored
    assert chapters.CHAPTERS[3].step == LENGTHS.index(real.N)


def test_no_n_answers_another_question():
    """The answer is computed: a matrix that grew with N alone would be 8 times as large."""
    times = squares(DEFAULT.with_(N=chapters.LONGER * DEFAULT.N)) // squares(DEFAULT)
    assert str(times) in chapters.TIMES


# -- truth -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("values", KINDS)
def test_the_page_opens_with_a_scene_that_ends_with_what_the_kernel_stored(values):
    scene = address.scene_at({address.VALUES: values})
    query, _ = ADDRESS.read({})
    given_inputs = inputs(DEFAULT, values)
    stored = run(query.rung.name, DEFAULT, given_inputs, engine="emulator", tiles=query.tiles, measure=False).outputs
    for name in ("dQ", "dK", "dV"):
        np.testing.assert_allclose(scene.cells(name), stored[name].ravel(), rtol=1e-5, atol=1e-6)


def test_the_card_shows_a_step_of_the_memory_over_n():
    teaser = _teasers.BY_PAGE["attention/backward/page.py"]
    scene = teaser.build_scene()
    assert scene.key.startswith("memory ") and 0 < teaser.step < scene.steps


def test_every_scene_of_the_ladder_is_in_a_chapter():
    staged = {f"attention-backward/{chapter.params['rung']}" for chapter in chapters.CHAPTERS}
    assert staged == set(SCENES)
