"""The scene of implicit GEMM: block 0 copies tiles of a data matrix that is never stored, multiplies them and stores the convolution."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import sources
from kernels.conv import reference
from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.ladders import find
from kernels.model.fast_division import magic
from tests.helpers.offenders import every
from tests.helpers.shapes import conv_shapes
from tests.visuals.scene.test_payload import check_same_pictures, decoded, read  # noqa: F401
from visuals.conv.implicit import notes
from visuals.conv.implicit.plan import RUNGS, Plan, why_not
from visuals.conv.implicit.scene import implicit_scene, shown
from visuals.conv.inputs import Inputs
from visuals.scene.parts import SceneError
from visuals.scene.payload import payload
from visuals.units import bytes_

PLAIN, MAGIC = RUNGS
SETS = [dict(t) for t in find(MAGIC).tile_sets(CONV_PRESETS["toy"].shape)]
SMALL = {"BM": 32, "BN": 32, "BK": 16, "TM": 4, "TN": 4, "STAGES": 4}
ONE_TILE = CONV_PRESETS["one-tile"].shape
RAGGED = ConvShape(1, 4, 7, 6, 37, 3, 2, stride=(2, 1), pad=(1, 2), dilation=(1, 2), mode="convolution")
TOY_CELLS = 9 * 36  # of its data matrix
# The shape and the tiles of the first chapters.
INSIDE, SMALLEST = ConvShape(1, 2, 4, 4, 2, 3, 3), {"BM": 32, "BN": 32, "BK": 8, "TM": 4, "TN": 4, "STAGES": 2}
TRACED = [(INSIDE, SMALLEST), (RAGGED, SMALL)]


def scene_of(s: ConvShape, tiles, rung: str = MAGIC):
    return implicit_scene(Inputs(s, "random", "random"), rung, tiles)


def steps_of(scene, text: str) -> list[int]:
    return [t for t in range(scene.steps) if text in scene.caption(t)]


# -- cells -----------------------------------------------------------------------------------------
@settings(max_examples=5)
@given(conv_shapes(), st.sampled_from(SETS[::3]), st.sampled_from(RUNGS))
def test_the_last_step_shows_the_convolution(s, tiles, rung):
    scene, part = scene_of(s, tiles, rung), shown(s)
    inputs = Inputs(s, "random", "random")
    w = inputs.w(part.K, part.C)
    expected, _ = reference.conv(part, scene.cells("x").reshape(part.x_shape), w)
    most = 1e-5 * (1 + np.abs(expected).max())
    np.testing.assert_allclose(scene.cells("y"), expected.ravel(), rtol=0, atol=most)
    assert np.isnan(scene.cells("D")).all()  # never stored
    D = np.append(scene.cells("x"), 0)[scene.views[0].index].reshape(part.CRS, -1)
    np.testing.assert_allclose((w.reshape(part.K, -1) @ D).ravel(), expected.ravel(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("s", "tiles"), [(INSIDE, SMALLEST), (RAGGED.with_(H=11), SMALL)])
def test_a_part_of_a_tile_is_copies_too(s, tiles):
    scene = scene_of(s, tiles)
    sources = {write.target: write.source for write in scene.writes if write.source}
    assert {name: sources[name] for name in ("As0", "Bs0")} == {"As0": "w", "Bs0": "x"}


def test_tiles_are_copies_of_pixels_and_filters():
    scene = scene_of(ONE_TILE, find(MAGIC).default_tiles)
    copies = {(write.target, write.source) for write in scene.writes if write.source}
    assert copies == {(f"{name}{n}", source) for n in range(3) for name, source in (("As", "w"), ("Bs", "x"))}
    D = np.append(scene.cells("x"), 0)[scene.views[0].index].reshape(54, 64)
    first = steps_of(scene, "tile 1 is in buffer 0")[0]
    np.testing.assert_array_equal(scene.cells("Bs0", first).reshape(16, 64), D[:16])
    np.testing.assert_array_equal(scene.cells("As0", first).reshape(16, 64), scene.cells("w").reshape(64, 54).T[:16])
    np.testing.assert_array_equal(scene.cells("Bs0").reshape(16, 64)[:6], D[48:])
    assert (scene.cells("Bs0").reshape(16, 64)[6:] == 0).all()


@settings(max_examples=20)
@given(conv_shapes(), st.sampled_from(RUNGS))
def test_matrix_annotation_has_the_pixel_address(s, rung):
    s = s.with_(N=1, groups=1)
    scene, plan = scene_of(s, SMALL, rung), Plan(s, rung, SMALL)
    x = scene.cells("x").reshape(s.x_shape)
    annotation = next(t for t in scene.annotations if t.tensor == "D")
    for i in range(0, scene.tensor("D").size, 7):
        a, (row, col) = annotation.captions.args[i], divmod(i, plan.columns)
        k, c, tap, r, t = (int(a[n]) for n in (0, 2, 3, 5, 6))
        j, n, pixel, p, q = (int(a[n]) for n in (7, 9, 10, 12, 13))
        assert (k, c, tap, r, t) == (row, row // (s.R * s.S), row % (s.R * s.S), row % (s.R * s.S) // s.S, row % s.S)
        assert (j, n, pixel, p, q) == (col, col // s.PQ, col % s.PQ, col % s.PQ // s.Q, col % s.Q)
        # The kernel divides by multiplication: the upper half of a product, shifted.
        for high, number, by in ((1, k, s.R * s.S), (4, tap, s.S), (8, j, s.PQ), (11, pixel, s.Q)):
            assert int(a[high]) == 2 * number * magic(by).multiplier >> 32
            assert int(a[high]) >> magic(by).shift == number // by
        down, right = (s.R - 1 - r, s.S - 1 - t) if s.flip else (r, t)
        h, v = p * s.u - s.pad_h + down * s.dilation_h, q * s.v - s.pad_w + right * s.dilation_w
        inside = 0 <= h < s.H and 0 <= v < s.W
        assert (int(a[15]), int(a[16])) == (h, v) and annotation.captions.kind[i] == (not inside)
        if inside:
            assert int(a[17]) == np.ravel_multi_index((n, c, h, v), s.x_shape)
            shown = scene.views[0].index[i]
            assert scene.cells("x")[shown] == x[n, c, h, v]
    template = annotation.captions.templates[0]
    assert (f"{magic(s.R * s.S).multiplier} >> 32" in template) == (rung == MAGIC)


# -- time ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("s", "tiles"), TRACED)
def test_a_buffer_is_not_overwritten_before_its_tile_is_multiplied(s, tiles):
    scene = scene_of(s, tiles)
    used = steps_of(scene, "Each thread adds")
    fetched = steps_of(scene, "rows ")
    assert len(used) == len(fetched) == -(-s.CRS // tiles["BK"])
    for tile, when in enumerate(used):
        assert fetched[tile] < when
        assert all(later > when for later in fetched[tile + tiles["STAGES"] : tile + tiles["STAGES"] + 1])
        barrier = max(t for t in steps_of(scene, "Barrier: ") if t < when)
        assert f"all copies of tile {tile + 1} are complete" in scene.caption(barrier)
        for tensor in scene.tensors:  # nothing is written
            np.testing.assert_array_equal(scene.cells(tensor.name, barrier), scene.cells(tensor.name, barrier - 1))


# -- size and sentences ----------------------------------------------------------------------------------
@pytest.mark.parametrize("key", [*CONV_PRESETS][::2])
def test_every_preset_has_a_small_scene(key):
    meta, block = payload(scene_of(CONV_PRESETS[key].shape, find(MAGIC).default_tiles))
    assert len(block) + len(json.dumps(meta)) < 100_000


def test_the_stage_shows_a_small_convolution_whole_and_else_a_smaller_one():
    assert shown(ONE_TILE) == ONE_TILE
    assert shown(CONV_PRESETS["vgg-conv1_2"].shape) == ConvShape(1, 10, 8, 8, 64, 3, 3, pad=1)


def test_caption_names_the_share_of_the_tile_outside():
    caption = scene_of(CONV_PRESETS["toy"].shape, find(MAGIC).default_tiles).caption(0)
    assert "98 % of its 64 × 64 sums are outside" in caption
    assert caption.startswith("Block 0 computes ")  # numbered from 0, as in every lesson
    scene = scene_of(ONE_TILE, find(MAGIC).default_tiles)
    assert "are outside" not in scene.caption(0)
    assert "Values: 384. The copy is transposed. The 640 elements outside the filters become zero." in scene.caption(12)


@pytest.mark.parametrize("rung", RUNGS)
def test_lit_lines_match_the_steps(rung):
    scene = scene_of(ONE_TILE, find(rung).default_tiles, rung)
    lines = [scene.source.text.splitlines()[int(line) - scene.source.first] for line in scene.source.lines]
    for line, text in zip(
        lines, ("window(", "load_filters", "tile_b", "load_filters", "tile_b", "wait_groups<", "__sync"), strict=False
    ):
        assert text in line
    assert "store<4>" in lines[-1]  # P*Q = 64 is a multiple of 4
    odd = scene_of(ConvShape(1, 1, 5, 5, 4, 3, 3), find(rung).default_tiles, rung)
    whole = sources.text(Plan(ONE_TILE, rung, find(rung).default_tiles).file).splitlines()
    assert "store<1>" in whole[int(odd.source.lines[-1]) - 1]


def test_why_not_names_the_rule():
    assert "BM % 64 == 0, got 32" in why_not(ONE_TILE, MAGIC, find(MAGIC).default_tiles | {"BM": 32, "TM": 8})
    assert "groups" not in why_not(ONE_TILE, MAGIC, find(MAGIC).default_tiles)
    assert "is not one of our implicit GEMM kernels" in why_not(ONE_TILE, "conv/direct", {})


def test_the_player_decodes_the_same_picture(decoded):  # noqa: F811
    check_same_pictures(decoded, [(scene_of(s, tiles), [0, 2, 5]) for s, tiles in TRACED])


def test_annotation_arguments_are_sent_as_row_plus_column():
    scene = scene_of(RAGGED, SMALL)
    meta, block = payload(scene)
    annotation, entry = scene.annotations[0], meta["annotations"][0]["captions"]["args"]
    row, col = (
        read(block, entry[name]).astype(int).reshape(-1, meta["annotations"][0]["captions"]["width"])
        for name in ("row", "col")
    )
    np.testing.assert_array_equal(
        (row[:, None] + col).reshape(annotation.captions.args.shape), annotation.captions.args
    )
    assert len(row) * len(col) == scene.tensor("D").size


@pytest.mark.parametrize(
    ("view", "says"),
    [
        ({"source": "nowhere"}, "names no tensor"),
        ({"index": np.zeros(3, int)}, "misses cells"),
        ({"index": np.full(TOY_CELLS, 10**6)}, "leaves x"),
        ({"tensor": "y", "index": np.zeros(2 * 36, int)}, "the view y is written"),
    ],
)
def test_a_view_that_breaks_the_contract_is_refused(view, says):
    scene = scene_of(CONV_PRESETS["toy"].shape, find(MAGIC).default_tiles)
    with pytest.raises(SceneError, match=says):
        dataclasses.replace(scene, views=(dataclasses.replace(scene.views[0], **view),))


# -- notes -----------------------------------------------------------------------------------------------
def row(rung: str, ms: float) -> dict:
    return {"rung": rung, "engine": "cuda", "median_ms": ms, "p20_ms": 0.99 * ms, "p80_ms": 1.01 * ms}


@every(
    ("rows", "says"),
    [
        ([], [""]),
        ([(MAGIC, 1.0)], [""]),
        ([("conv/im2col-cublas", 1.0)], [""]),
        ([(MAGIC, 1.0), (PLAIN, 1.5)], ["Division by multiply and shift is faster: 1.5× as fast as plain division."]),
        ([(MAGIC, 1.0), (PLAIN, 1.0)], ["makes no measurable difference here"]),
        ([(MAGIC, 2.0), (PLAIN, 1.0)], ["slower here: 2× the time of plain division."]),
        ([(MAGIC, 1.0), ("conv/im2col-cublas", 2.0)], ["Implicit GEMM is 2× as fast as im2col + cuBLAS."]),
        (
            [(MAGIC, 2.0), ("conv/cudnn-implicit-gemm", 4.0), ("conv/cudnn-implicit-precomp-gemm", 1.0)],
            ["Implicit GEMM takes 2× the time of cuDNN"],
        ),
    ],
)
def test_gain_sentence(rows, says):
    sentence = notes.gain({name: row(name, ms) for name, ms in rows})
    assert all(text in sentence for text in says) and (sentence == "") == (says == [""])


def test_unstored_matrix_has_the_size_of_im2col():
    program = find("conv/im2col-cublas").build(RAGGED, find("conv/im2col-cublas").default_tiles)
    assert f"would take {bytes_(program.nbytes('workspace'))}." in notes.cost(RAGGED)
