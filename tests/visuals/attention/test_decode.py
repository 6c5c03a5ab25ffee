"""The scene of decoding: it ends with what the kernels store, and its captions name the part, the merge and the keys that are seen."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.attention.presets import ATTENTION_PRESETS
from kernels.attention.reference import TOLERANCE, attention
from kernels.attention.shape import AttentionShape
from kernels.engines import emulator
from kernels.engines.emulator.launch import Options
from kernels.ladders import find
from tests.helpers.attention_scenes import highlighted_line, kinds, last_readings, matrix
from tests.helpers.emulated import needs_nvrtc
from tests.visuals.attention.view_runs import DECODE as RUNG
from tests.visuals.attention.view_runs import SMALL_PARTS as SMALL
from visuals.attention.inputs import KINDS, qkv
from visuals.attention.scene import attention_scene

TOY = ATTENTION_PRESETS["decode-toy"].shape
SHAPES = (
    TOY,
    ATTENTION_PRESETS["window-toy"].shape,
    AttentionShape(1, 1, 3, 6, causal=1, M=21, softcap=2.0, mask="bool"),
    AttentionShape(1, 2, 2, 8, M=70, kv_heads=1, mask="bias"),
    AttentionShape(1, 1, 11, 4, M=19, window=5),
)


def emulated(s: AttentionShape, inputs) -> emulator.Session:
    """Returns a session that has executed both kernels for the heads that share the first keys."""
    one = s.with_(B=1, H=s.sharing, kv_heads=1)
    program = find(RUNG).build(one, find(RUNG).check(one, SMALL))
    arrays = {**inputs, "Q": inputs["Q"].reshape(one.qkv_shape)}
    session = emulator.Session(program, arrays, Options())
    session.verify_run()
    return session


@needs_nvrtc
@pytest.mark.parametrize("s", SHAPES, ids=str)
def test_numbers_and_bytes_are_those_of_the_kernels(s):
    inputs = qkv(s, "whole")
    scene, session = attention_scene(s, RUNG, SMALL, inputs), emulated(s, inputs)
    for name in ("part_m", "part_l", "part_o", "O"):
        shown, stored = matrix(scene, name), session.memory.array(name)
        if name in ("part_m", "part_l"):
            stored = stored.reshape(s.sharing * s.N, -1)
        expected = stored.reshape(-1, stored.shape[-1])[: len(shown), : shown.shape[1]]
        np.testing.assert_array_equal(shown, expected, err_msg=name)
    total = session.counters.total
    readings = list(last_readings(scene).values())
    assert readings[:2] == [total["bytes_ld"], total["bytes_st"]]


@pytest.mark.parametrize("kind", KINDS)
def test_the_merged_result_is_the_reference(kind):
    inputs = qkv(TOY, kind)
    scene = attention_scene(TOY, RUNG, SMALL, inputs)
    ref, scale = attention(TOY, inputs["Q"].reshape(TOY.qkv_shape), inputs["K"], inputs["V"])
    assert (np.abs(matrix(scene, "O") - ref[0, :, 0]) <= TOLERANCE * scale[0, :, 0]).all()


def test_a_part_has_its_steps_then_the_merge():
    scene = attention_scene(TOY, RUNG, SMALL, qkv(TOY, "whole"))
    maxima = kinds(scene, "finds the largest score in this part")
    assert len(maxima) == 2  # rows of the block
    for row, t in enumerate(maxima):
        assert matrix(scene, "p", t)[row].max() == matrix(scene, "part_m")[row, 0]
    (merge,) = kinds(scene, "Second kernel: a block merges")
    assert len(kinds(scene, "gets the factor")) == 4 and scene.next_sources[0].since == merge
    assert scene.next_sources[0].file == "33_decode_merge.cu" and "unpack(q[row]" in highlighted_line(scene, 0)


@pytest.mark.parametrize(
    ("changed", "phrase"),
    [
        ({"softcap": 2.0}, "The factor of Q contains the division by c"),
        ({"softcap": 2.0, "mask": "bool"}, "then the mask is applied"),
        ({"mask": "bias"}, "adds the bias of the mask"),
        ({"mask": "bool"}, "Keys that the mask hides"),
        ({"N": 3, "causal": 1, "window": 12}, "Keys that the row does not see"),
    ],
)
def test_captions_say_what_changes_the_scores(changed, phrase):
    s = TOY.with_(**changed)
    scene = attention_scene(s, RUNG, SMALL, qkv(s, "whole"))
    assert kinds(scene, phrase) and not any("nan" in scene.caption(t).lower() for t in range(scene.steps))


def test_only_the_keys_in_the_window_are_shown():
    s = ATTENTION_PRESETS["window-toy"].shape
    scene = attention_scene(s, RUNG, SMALL, qkv(s, "whole"))
    keys = scene.tensor("K")
    assert (keys.origin[1], keys.rows) == (20, 12) and "20–31" in keys.note


def test_a_real_cache_shows_its_first_part():
    s = ATTENTION_PRESETS["llama-decode"].shape
    scene = attention_scene(s, RUNG, {}, qkv(s, "random"))
    assert kinds(scene, "The other blocks (31)") and scene.tensor("part_m").cols == 8
    assert scene.groups[0].title == "global memory, one of 8 heads of keys"
