"""Flash attention's scenes: captions, highlighted lines, the visible part of a long head, and payload sizes."""

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
    attention_cases,
    highlighted_line,
    kinds,
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


# -- captions ----------------------------------------------------------------------------------------
@settings(max_examples=10)
@given(case=attention_cases())
def test_every_step_has_a_caption_and_a_line(case):
    rung, tiles, s = case
    scene, _ = scene_at(s, rung, tiles, random(s))
    for t in range(scene.steps):
        caption = scene.caption(t)
        assert "{" not in caption and "](" not in caption and "nan" not in caption.lower()
        assert not re.search(r"\b1 (more )?(tiles|blocks|heads|keys)\b", caption)
        assert highlighted_line(scene, t).strip()


LINE_OF_CAPTION = {  # by text of a caption: (flash, flash-registers, flash-mma)
    "into shared memory": ("tile_q[i / DP][dim] =", "tile_q[row][dim]", "load_tile<Br>(tile_q"),
    "the scores of the tile": ("s += tile_q", "s[i][n] += q[i].x", "add_scores"),
    "largest score": ("new_m = fmaxf(new_m, m)", "m[i] = new_m", "update_maxima(s"),
    "at most 1": ("p = expf(", "p = exp2_(", "compute_weights(p"),
    "multiplied by the same factor": ("o[n] *= rescale", "o[i][n] *= rescale", "scale_rows(o"),
    "is added to O": ("o[n] += tile_p", "o[i][n] += p", "add_values(o"),
    "add their parts": ("l += __shfl", "l[i] += __shfl", "sum += __shfl"),
    "Now O is divided by l": ("= o[n] / l", "store4(O", "store_row(O"),
}


@pytest.mark.parametrize("n", range(3))
def test_highlighted_line_matches_the_caption(n):
    rung = (FLASH, REGISTERS, MMA)[n]
    s = AttentionShape(1, 1, 40, 8, causal=1, dtype="fp16" if rung == MMA else "fp32")
    scene, _ = scene_at(s, rung, TILES[rung], random(s))
    for words, lines in LINE_OF_CAPTION.items():
        steps = [
            t for t in kinds(scene, words) if words != "into shared memory" or "block of queries" in scene.caption(t)
        ]
        assert steps and all(lines[n] in highlighted_line(scene, t) for t in steps), words


def test_caption_has_the_scenes_numbers():
    """The caption of a rescaling has the l and the factor of the tensors shown."""
    scene, _ = scene_at(TOY, FLASH, TILES[FLASH], random(TOY))
    (t,) = kinds(scene, "the older sum times the factor")
    query, old, factor, p, new = re.match(
        r"l of query (\d+) is .*: ([\d.]+) × ([\d.]+) \+ ([\d.]+) = ([\d.]+)\.", scene.caption(t)
    ).groups()
    row = int(query) - 12
    assert matrix(scene, "l", t)[row, 0] == pytest.approx(float(new), rel=1e-3)
    assert matrix(scene, "l", t - 1)[row, 0] == pytest.approx(float(old), rel=1e-3)
    assert matrix(scene, "shrink", t)[row, 0] == pytest.approx(float(factor), rel=1e-3)
    assert matrix(scene, "Ps", t)[row].sum() == pytest.approx(float(p), rel=1e-3)


def test_caption_has_the_bytes_of_storing_s_and_p():
    s = AttentionShape(1, 1, 64, 16)
    scene, _ = scene_at(s, FLASH, {"Br": 16, "Bc": 16}, random(s))
    (t,) = kinds(scene, "Now O is divided by l")
    assert f"would write {2 * 4 * 16 * 64} bytes more, and read them again" in scene.caption(t)


def test_padding_is_said_not_to_be_drawn():
    """Rows in shared memory have more columns than the picture, which draws none of the zeros after d."""
    s = AttentionShape(1, 1, 16, 4)
    scene, plan = scene_at(s, FLASH, {"Br": 4, "Bc": 8}, random(s))
    assert (plan.DP, scene.tensor("Qs").cols) == (8, 4)
    assert " Columns up to 8 are filled with zeros (not drawn)." in scene.caption(0)
    whole, plan = scene_at(TOY, FLASH, TILES[FLASH], random(TOY))
    assert plan.DP == TOY.d == whole.tensor("Qs").cols and "padded" not in whole.caption(0)


@pytest.mark.parametrize(("N", "words"), [(40, "processes one more tile"), (300, "processes 34 more tiles")])
def test_tiles_that_are_not_shown_are_counted(N, words):
    s = AttentionShape(1, 1, N, 8)
    scene, _ = scene_at(s, FLASH, TILES[FLASH], random(s))
    assert kinds(scene, words)


# -- parts, sizes --------------------------------------------------------------------------------------
@pytest.mark.parametrize("rung", TILES)
@pytest.mark.parametrize("causal", [0, 1])
def test_part_of_a_long_head_is_correct_and_named(rung, causal):
    s = AttentionShape(2, 12, 300, 64, causal=causal, dtype="bf16" if rung == MMA else "fp32")
    inputs = random(s)
    scene, _ = scene_at(s, rung, {} if rung != MMA else TILES[MMA], inputs)
    ref, scale = (part(scene, "O", of) for of in reference(s, inputs))
    rounded = 4 * 2.0**-8 / 5e-6 if rung == MMA else 1  # as the reference allows for bfloat16
    assert INPUT_DTYPE[s.dtype] == ("bfloat16" if rung == MMA else "float32")
    assert (abs(matrix(scene, "O") - ref) <= 5e-6 * max(1, rounded) * scale).all()
    O = scene.tensor("O")  # noqa: E741
    assert O.partial and O.note == f"rows {O.origin[1]}–{O.origin[1] + O.rows - 1} of 300"
    assert scene.groups[0].title == "global memory, head 0 of 12, sequence 0 of 2, columns 0–3 of 64"
    assert bool(kinds(scene, "The loop ends here")) == bool(causal)


@pytest.mark.parametrize(
    ("s", "max_bytes"),
    [(TOY, 100_000), (AttentionShape(1, 1, 8, 4), 100_000), (AttentionShape(1, 1, 64, 16), 200_000)],
    ids=str,
)
def test_payloads_are_small(s, max_bytes):
    tiles = TILES[FLASH] if s.N <= 16 else {"Br": 16, "Bc": 16}
    for rung in (FLASH, REGISTERS, MMA):
        shape = s.with_(dtype="fp16" if rung == MMA else "fp32")
        tile_sizes = tiles if rung == FLASH else TILES[rung]
        assert why_not(shape, rung, tile_sizes) == ""
        meta, block = payload(attention_scene(shape, rung, tile_sizes, random(shape)))
        assert len(block) + len(json.dumps(meta)) < max_bytes
