"""The scene of decoding: its numbers and bytes are those of the kernels, and the lit lines do what the captions say."""

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
from visuals.attention.decode import RUNG
from visuals.attention.inputs import KINDS, qkv
from visuals.attention.scene import attention_scene

SMALL = {"PART": 8, "THREADS": 32, "BATCH": 1}
TOY = ATTENTION_PRESETS["decode-toy"].shape
SHAPES = (
    TOY,
    ATTENTION_PRESETS["window-toy"].shape,
    AttentionShape(1, 1, 3, 6, causal=1, M=21, softcap=2.0, mask="bool"),
    AttentionShape(1, 2, 2, 8, M=70, kv_heads=1, mask="bias"),
    AttentionShape(1, 1, 11, 4, M=19, window=5),
)


def emulated(s: AttentionShape, inputs, trace_block: int | None = None) -> emulator.Session:
    """Returns a session that has executed both kernels for the heads that share the first keys."""
    one = s.with_(B=1, H=s.sharing, kv_heads=1)
    program = find(RUNG).build(one, find(RUNG).check(one, SMALL))
    arrays = {**inputs, "Q": inputs["Q"].reshape(one.qkv_shape)}
    session = emulator.Session(program, arrays, Options(trace_block=trace_block))
    session.verify_run()
    return session


@needs_nvrtc
@pytest.mark.parametrize("s", SHAPES, ids=str)
def test_numbers_and_bytes_are_those_of_the_kernels(s):
    inputs = qkv(s, "whole")
    scene, session = attention_scene(s, RUNG, SMALL, inputs), emulated(s, inputs)
    rows, rows_of_all = scene.tensor("p").rows, s.sharing * s.N
    for name in ("part_m", "part_l", "O"):
        expected = session.memory.array(name).reshape(rows_of_all, -1)[:rows]
        shown = matrix(scene, name)
        np.testing.assert_allclose(shown, expected[:, : shown.shape[1]], rtol=1e-5, atol=1e-5, err_msg=name)
    shown = scene.tensor("part_o")
    expected = session.memory.array("part_o").reshape(rows_of_all, -1, s.d)[:rows, : shown.rows, : shown.cols]
    np.testing.assert_allclose(
        scene.cells("part_o").reshape(shown.planes, shown.rows, shown.cols), expected, rtol=1e-5, atol=1e-5
    )
    total = session.counters.total
    readings = list(last_readings(scene).values())
    assert readings[:2] == [total["bytes_ld"], total["bytes_st"]]


@needs_nvrtc
def test_bytes_of_shared_memory_are_those_of_the_trace():
    """All four blocks of the toy do the same."""
    inputs = qkv(TOY, "whole")
    trace = emulated(TOY, inputs, 0).trace[0]
    accesses = int((np.array(trace.buffers, dtype=object)[trace.buffer] == "shared").sum())
    readings = last_readings(attention_scene(TOY, RUNG, SMALL, inputs))
    assert readings["bytes to and from shared memory"] == 4 * 4 * accesses


@pytest.mark.parametrize("kind", KINDS)
def test_the_merged_result_is_the_reference(kind):
    inputs = qkv(TOY, kind)
    scene = attention_scene(TOY, RUNG, SMALL, inputs)
    ref, scale = attention(TOY, inputs["Q"].reshape(TOY.qkv_shape), inputs["K"], inputs["V"])
    assert (np.abs(matrix(scene, "O") - ref[0, :, 0]) <= TOLERANCE * scale[0, :, 0]).all()


def test_each_part_has_its_steps_then_the_merge():
    scene = attention_scene(TOY, RUNG, SMALL, qkv(TOY, "whole"))
    assert len(kinds(scene, "finds its largest score in this part")) == 4
    (merge,) = kinds(scene, "The sums l of the parts are added")
    assert merge == scene.steps - 3 and scene.next_sources[0].file == "33_decode_merge.cu"
    assert "unpack(q[row]" in highlighted_line(scene, 0)


def test_only_the_keys_in_the_window_are_shown():
    s = ATTENTION_PRESETS["window-toy"].shape
    scene = attention_scene(s, RUNG, SMALL, qkv(s, "whole"))
    keys = scene.tensor("K")
    assert (keys.origin[1], keys.rows) == (20, 12) and "20–31" in keys.note


def test_a_real_cache_shows_its_first_part():
    s = ATTENTION_PRESETS["llama-decode"].shape
    scene = attention_scene(s, RUNG, {}, qkv(s, "random"))
    assert kinds(scene, "The other 255 blocks") and scene.tensor("part_m").cols == 8
