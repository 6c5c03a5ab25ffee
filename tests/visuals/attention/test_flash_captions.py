"""What flash attention's pictures say, light and leave out; which part of a long head they show, and how large they are."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings

from kernels.attention.shape import AttentionShape
from kernels.model.dtypes import INPUT_DTYPE
from tests.helpers.attention_scenes import (
    FLASH,
    MMA,
    REGISTERS,
    TILES,
    asked,
    kinds,
    lit,
    matrix,
    part,
    random,
    reference,
    scene_at,
)
from tests.helpers.emulated import needs_nvrtc
from visuals.attention.scene import attention_scene, why_not
from visuals.scene.payload import payload

pytestmark = needs_nvrtc
TOY = AttentionShape(1, 1, 16, 8, causal=1)


# -- what is said ------------------------------------------------------------------------------------
@settings(max_examples=25, deadline=None)
@given(ask=asked())
def test_every_step_has_its_words_and_its_line(ask):
    rung, tiles, s = ask
    scene, _ = scene_at(s, rung, tiles, random(s))
    for t in range(scene.steps):
        words = scene.caption(t)
        assert "{" not in words and "](" not in words and "nan" not in words.lower()
        assert not re.search(r"\b1 (more )?(tiles|blocks|heads|keys)\b", words)
        assert lit(scene, t).strip()


LIT = {  # what is said: (flash, flash-registers, flash-mma)
    "into shared memory": ("tile_q[i / DP][dim] =", "tile_q[row][dim]", "load_tile<Br>(tile_q"),
    "the scores of the tile": ("s += tile_q", "s[i][n] += q[i].x", "add_scores"),
    "largest score": ("new_m = fmaxf(new_m, m)", "m[i] = new_m", "update_maxima(s"),
    "never above 1": ("p = expf(", "p = exp2_(", "compute_weights(p"),
    "shrinks by": ("o[n] *= rescale", "o[i][n] *= rescale", "scale_rows(o"),
    "of the tile is added": ("o[n] += tile_p", "o[i][n] += p", "add_values(o"),
    "add up their parts": ("l += __shfl", "l[i] += __shfl", "sum += __shfl"),
    "Only now all is divided": ("= o[n] / l", "store4(O", "store_row(O"),
}


@pytest.mark.parametrize("n", range(3))
def test_the_line_lit_is_the_one_that_runs(n):
    rung = (FLASH, REGISTERS, MMA)[n]
    s = AttentionShape(1, 1, 40, 8, causal=1, dtype="fp16" if rung == MMA else "fp32")
    scene, _ = scene_at(s, rung, TILES[rung], random(s))
    for words, lines in LIT.items():
        found = [
            t
            for t in kinds(scene, words)
            if words != "into shared memory" or "block of queries" in scene.caption(t)
        ]
        assert found and all(lines[n] in lit(scene, t) for t in found), words


def test_words_carry_the_readers_numbers():
    """The caption of a rescaling says what m, l and the factor on the stage are."""
    scene, _ = scene_at(TOY, FLASH, TILES[FLASH], random(TOY))
    (t,) = kinds(scene, "the older sum times the factor")
    query, old, factor, p, new = re.match(
        r"l of query (\d+): .* ([\d.]+) × ([\d.]+) \+ ([\d.]+) = ([\d.]+)\.", scene.caption(t)
    ).groups()
    row = int(query) - 12
    assert matrix(scene, "l", t)[row, 0] == pytest.approx(float(new), rel=1e-3)
    assert matrix(scene, "l", t - 1)[row, 0] == pytest.approx(float(old), rel=1e-3)
    assert matrix(scene, "shrink", t)[row, 0] == pytest.approx(float(factor), rel=1e-3)
    assert matrix(scene, "Ps", t)[row].sum() == pytest.approx(float(p), rel=1e-3)


def test_what_storing_s_and_p_would_cost_is_told():
    s = AttentionShape(1, 1, 64, 16)
    scene, _ = scene_at(s, FLASH, {"Br": 16, "Bc": 16}, random(s))
    (t,) = kinds(scene, "Only now all is divided")
    assert f"writes {2 * 4 * 16 * 64} bytes more for these queries" in scene.caption(t)


# -- parts, sizes --------------------------------------------------------------------------------------
@pytest.mark.parametrize("rung", TILES)
@pytest.mark.parametrize("causal", [0, 1])
def test_a_part_of_a_long_head_is_true_and_says_which(rung, causal):
    s = AttentionShape(2, 12, 300, 64, causal=causal, dtype="bf16" if rung == MMA else "fp32")
    inputs = random(s)
    scene, _ = scene_at(s, rung, {} if rung != MMA else TILES[MMA], inputs)
    ref, scale = (part(scene, "O", of) for of in reference(s, inputs))
    rounded = 4 * 2.0**-8 / 5e-6 if rung == MMA else 1  # as the reference admits for bfloat16
    assert INPUT_DTYPE[s.dtype] == ("bfloat16" if rung == MMA else "float32")
    assert (abs(matrix(scene, "O") - ref) <= 5e-6 * max(1, rounded) * scale).all()
    O = scene.tensor("O")  # noqa: E741
    assert O.partial and f"part {O.origin[1]}–{O.origin[1] + O.rows - 1}, 0–7 of 300 × 64" in O.note
    assert scene.groups[0].title == "global memory, head 0 of 12, sequence 0 of 2"
    assert bool(kinds(scene, "The loop ends here")) == bool(causal)


@pytest.mark.parametrize(
    ("s", "most"),
    [(TOY, 100_000), (AttentionShape(1, 1, 8, 4), 100_000), (AttentionShape(1, 1, 64, 16), 200_000)],
    ids=str,
)
def test_payloads_are_small(s, most):
    tiles = TILES[FLASH] if s.N <= 16 else {"Br": 16, "Bc": 16}
    for rung in (FLASH, REGISTERS, MMA):
        of = s.with_(dtype="fp16" if rung == MMA else "fp32")
        given_ = tiles if rung == FLASH else TILES[rung]
        assert why_not(of, rung, given_) == ""
        meta, block = payload(attention_scene(of, rung, given_, random(of)))
        assert len(block) + len(json.dumps(meta)) < most
