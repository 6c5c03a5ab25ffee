"""The sentences about the figures of the norms have the figures of their rows and shapes."""

from __future__ import annotations

import re

import pytest

from kernels.ladders import LADDERS
from kernels.model.rung import Ladder
from kernels.model.traffic import necessary_bytes
from kernels.norm.ladder import LADDERS as NORMS
from visuals.norm.notes import NOTES, PLAINEST


def row(ladder: Ladder, rung: str, ms: float, **more):
    preset = next(p for key, p in ladder.presets.items() if key.endswith(("-large", "-res2")))
    own = {"rung": rung, "engine": "cuda", "shape": preset.shape.params(), "median_ms": ms, "p20_ms": ms, "p80_ms": ms}
    return own | more


def fast(ladder: Ladder) -> str:
    return [r.name for r in ladder.rungs if not r.library and r.name != PLAINEST[ladder.name]][-1]


every_ladder = pytest.mark.parametrize("ladder", NORMS, ids=lambda ladder: ladder.name)


def test_each_ladder_has_notes():
    assert set(NOTES) == {ladder.name for ladder in NORMS}


@every_ladder
def test_the_cost_names_bytes_that_rungs_move(ladder):
    """The bytes in the sentence are those of x, and of the cost formulas of the ladder's own kernels."""
    from visuals import units

    preset = next(p for key, p in ladder.presets.items() if key.endswith(("-large", "-res2")))
    s, text = preset.shape, NOTES[ladder.name].cost(preset.shape)
    moved = {
        units.bytes_(r.cost(s, r.build(s, r.default_tiles)).bytes)
        for r in ladder.rungs
        if not r.library and not any(r.rules(s, r.default_tiles))
    }
    named = set(re.findall(r"[\d.,]+ [KMG]?B", text))
    assert moved <= named and named <= moved | {units.bytes_(4 * s.elements)}


@every_ladder
def test_the_gain_compares_with_the_plainest_and_the_library(ladder):
    library = next(r.name for r in ladder.rungs if r.library)
    own, plainest = fast(ladder), PLAINEST[ladder.name]
    rows = {r["rung"]: r for r in (row(ladder, plainest, 0.5), row(ladder, own, 0.2), row(ladder, library, 0.19))}
    text = NOTES[ladder.name].gain(rows)
    assert "is 2.5× as fast as" in text and "reaches 95 % of the speed of PyTorch" in text
    rows[library] = row(ladder, library, 0.3)
    assert "is 1.5× as fast as PyTorch" in NOTES[ladder.name].gain(rows)
    rows[library] = row(ladder, library, 0.2)
    assert "is as fast as PyTorch" in NOTES[ladder.name].gain(rows)
    rows[own] = row(ladder, own, 0.6)
    assert "is the fastest of our kernels at this size" in NOTES[ladder.name].gain(rows)
    rows[own] = row(ladder, own, 0.49, p80_ms=0.51)
    rows[plainest] = row(ladder, plainest, 0.5, p20_ms=0.48)
    assert "their spreads overlap" in NOTES[ladder.name].gain(rows)
    assert NOTES[ladder.name].gain({}) == "" == NOTES[ladder.name].gain({own: rows[own]})


@every_ladder
def test_the_copy_is_of_the_bytes_that_the_kernel_must_move(ladder):
    """x once, however often a launch reads it."""
    rung = LADDERS[ladder.name].rung(PLAINEST[ladder.name])
    own = row(ladder, rung.name, 1.0, ceilings={"copy_bytes_per_s": 4e12}, tiles=rung.default_tiles)
    shape = ladder.shape(**own["shape"])
    program = rung.build(shape, rung.default_tiles)
    predicted = rung.cost(shape, program).bytes
    own["predicted_bytes"] = predicted
    moved = min(necessary_bytes(program), predicted)
    text = NOTES[ladder.name].gain({rung.name: own})
    share = round(100 * moved / 4e12 * 1e3)
    assert f"This is {share} % of its time." in text
    own["ceilings"]["launch_us"] = 1e6
    assert "copy" not in NOTES[ladder.name].gain({rung.name: own})


@every_ladder
def test_examples_are_presets_of_the_ladder(ladder):
    assert {preset.key for preset, _ in NOTES[ladder.name].examples()} <= set(ladder.presets)
