"""Each lesson's scene in the player's own code, by Node: captions of all steps, and what a cell says when it is pointed at."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

from kernels.conv import winograd_matrices
from kernels.conv.presets import CONV_PRESETS
from kernels.model.fast_division import magic
from pages import _teasers
from pages._teasers import TEASERS
from pages.attention import address as attention
from pages.conv.backward import address as backward
from pages.conv.fft import address as fft
from pages.conv.implicit import address as implicit
from pages.conv.winograd import address as winograd
from pages.fusion import address as fusion
from pages.hopper import address as hopper
from pages.layers import address as layers
from pages.parts.tiles import SelectedRung
from pages.precision import address as precision
from pages.softmax import address as softmax
from tests.helpers.printed import number
from visuals.conv.fft.arrays import arrays_of
from visuals.conv.inputs import Inputs
from visuals.scene.scene import Scene
from visuals.stage import HERE, message

STEPS = 40  # of a longer scene: as many, from the first to the last
PLAYER = """
import fs from "node:fs";
const [{ unpack, decodeScene, captionOf }, { explain }] = await Promise.all(process.argv.slice(1).map((module) => import(module)));
const said = (parts) => parts.map((part) => part.text).join("");
const requests = JSON.parse(fs.readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(requests.map(({ message, steps, cells }) => {
  const { meta, block } = unpack(new Uint8Array(Buffer.from(message, "base64")));
  const scene = decodeScene(meta, block);
  return { captions: steps.map((step) => said(captionOf(scene, step))), cells: cells.map((cell) => said(explain(scene, ...cell).parts)) };
})));
"""


def played(
    node: str, requests: list[tuple[Scene, list[int], list[tuple[int, str, int]]]]
) -> list[dict[str, list[str]]]:
    """Returns the captions of the steps of each scene and the texts of its cells: (step, tensor, cell)."""
    sent = [
        {"message": base64.b64encode(message(scene)).decode(), "steps": steps, "cells": cells}
        for scene, steps, cells in requests
    ]
    modules = [(HERE / f"{name}.js").as_uri() for name in ("decode", "explain")]
    command = [node, "--input-type=module", "--eval", PLAYER, "--", *modules]
    process = subprocess.run(command, input=json.dumps(sent), capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


# -- captions --------------------------------------------------------------------------------------
def scenes() -> Iterator[tuple[str, Scene]]:
    for teaser in TEASERS:
        yield teaser.page, teaser.build_scene()
    for topic in ("divergence", "coalescing", "banks", "layout"):
        yield topic, _teasers.threads({"topic": topic})
    yield "im2col in warps", _teasers.im2col({"order": "warps"})
    yield "direct in warps", _teasers.direct({"order": "warps"})
    yield "implicit", implicit_scene()
    for params in ({}, {"values": "large"}, {"rung": "naive"}):
        yield f"attention {params}", attention.scene_at(params)
    yield "fusion", fusion.scene_at({})
    yield "fusion, folded", fusion.scene_at({"rung": "folded"})
    yield "softmax, overflow", softmax.scene_at(OVERFLOW)
    for order in ("swizzle", "accumulator"):
        yield f"hopper, {order}", hopper.scene_at({"order": order})
    yield "winograd", winograd.scene_at({})
    yield "backward, filters", backward.scene_at({"gradient": "filters", "rung": "implicit-gemm"})
    yield "backward, atomics", backward.scene_at(ATOMICS)
    yield "bits", precision.scene_at({"topic": "bits", "x": "2049"})


OVERFLOW = {"rung": "unsafe", "logits": "large", "BLOCK": "8"}
ATOMICS = {"rung": "gemm-atomics"}
TOY = CONV_PRESETS["toy"].shape
FFT = SelectedRung(fft.RUNG, fft.RUNG.default_tiles)


@cache
def implicit_scene() -> Scene:
    query, watched = implicit.read({})
    inputs = Inputs(query.shape, query.picture, query.filter, query.seed)
    return implicit.scene(inputs, watched.rung.name, tuple(watched.tiles.items()))[0]


def test_each_step_has_the_caption_of_its_scene(node):
    named = list(scenes())
    steps = [np.unique(np.linspace(0, scene.steps - 1, STEPS).round().astype(int)).tolist() for _, scene in named]
    found = played(node, [(scene, of, []) for (_, scene), of in zip(named, steps, strict=True)])
    other = [
        (name, step, said, scene.caption(step))
        for (name, scene), of, result in zip(named, steps, found, strict=True)
        for step, said in zip(of, result["captions"], strict=True)
        if said != scene.caption(step)
    ]
    assert other == []


def test_overflow_and_large_scores():
    scene = softmax.scene_at(OVERFLOW)
    last = scene.steps - 1
    assert np.isnan(scene.cells("y", last)).any() and np.isinf(scene.cells("l", last)).any()
    scene = attention.scene_at({"values": "large"})
    last = scene.steps - 1
    assert np.abs(scene.cells("s", last)).max() > 1000 and np.isfinite(scene.cells("O", last)).all()


# -- cells -----------------------------------------------------------------------------------------
def cells() -> Iterator[tuple[str, Scene, tuple[int, str, int], list[str]]]:
    """Yields a name, a scene, a cell after a step, and patterns that its text has. A minus is written as a hyphen."""
    scene = attention.scene_at({})
    q, k = (scene.cells(name, 3).reshape(-1, 4) for name in ("tile_q", "tile_k"))
    terms = [rf"{a:g}·" for a in np.abs(q[0])]
    yield "score of query 0 and key 1", scene, (3, "s", 1), [rf" {re.escape(f'{q[0] @ k[1]:.4g}')} ", *terms]
    yield "element of K in shared memory", scene, (3, "tile_k", 5), [r"a copy of K\[1, 1\]"]

    scene = fusion.scene_at({})
    chain = r"conv, bias, bn, relu of x: .*Between the blocks, the value stays in a register"
    yield "value of a chain", scene, (scene.steps - 1, "y", 5), [chain, re.escape(f"{scene.cells('y')[5]:g}")]

    scene = softmax.scene_at({})
    a, b = (re.escape(f"{float(v):g}") for v in scene.annotations[0].captions.args[8])
    yield "larger of two", scene, (scene.steps - 1, "partial_m", 8), [rf"The larger of {a} and {b}\."]
    scene = softmax.scene_at(OVERFLOW)
    wrong = int((scene.cells("y") != scene.cells("y")).argmax())
    yield "NaN", scene, (scene.steps - 1, "y", wrong), ["= NaN"]
    yield "infinite sum", scene, (scene.steps - 1, "l", 0), ["= ∞"]

    scene = winograd.scene_at({})
    d, BT = scene.cells("d", 9).reshape(4, 4), winograd_matrices.derive(2, 3).arrays("float64")[2]
    terms = " - ".join(f"{d[i, j]:g}" for i, j in ((0, 0), (0, 2), (2, 0))) + f" + {d[2, 2]:g}"
    value = f"= {(BT @ d @ BT.T)[0, 0]:g}"
    yield "transformed tile", scene, (9, "V", 0), [re.escape(f"= {terms}"), re.escape(value), "a term of 2 cells"]
    yield "pixel of a tile", scene, (9, "x", 9), ["It is a term of 9 cells of V"]

    scene = hopper.scene_at({"order": "accumulator"})
    register = r"Lane 13, thread 13 of the warpgroup, holds it in sum\[0\]\[2\]: row 11, column 2\."
    yield "register of a lane", scene, (15, "sum", 13 * 8 + 2), [register]
    piece = r"Row 3 of A, k 24 to 31\. It begins at byte 384 of the tile and is in banks 0 to 3\."
    yield "piece of a tile", hopper.scene_at({}), (9, "tile_a", 3 * 8), [piece]

    yield (
        "pixel of a receptive field",
        _teasers.direct({"step": "80"}),
        (80, "x", 3 * 8 + 3),
        [r"Its address is 27\. It is in 9 windows\. 18 threads load it: 9 windows × 2 filters\."],
    )
    scene = _teasers.direct(GAPS)
    yield "dilated sum", scene, (40, "y", 8), [re.escape(f"= {scene.cells('y')[8]:g}")]

    nine = magic(9)
    yield (
        "cell that is never stored",
        implicit_scene(),
        (9, "D", 17 * 64 + 12),
        [
            r"D\[17, 12\] is never stored\.",
            r"c = 17 / 9 = 1, remainder 8; r = 8 / 3 = 2, s = 2",
            "p = 12 / 8 = 1, q = 4",
            r"The address is \(\(0·6 \+ 1\)·8 \+ 2\)·8 \+ 5 = 85",
            rf"/ 9: 2·17·{nine.multiplier} >> 32 = {2 * 17 * nine.multiplier >> 32}, >> {nine.shift} = 1",
        ],
    )
    value = implicit_scene().cells("Bs1", 9)[64 + 12]
    yield (
        "element of a tile",
        implicit_scene(),
        (9, "Bs1", 64 + 12),
        [rf"tile_b\[1, 12\] = {value:g}, a copy of x\[1, 2, 5\]\."],
    )

    scene = backward.scene_at(ATOMICS)
    windows = int(next(a for a in scene.annotations if a.tensor == "dx").captions.args[7, 0])
    yield "pixel of colliding windows", scene, (6, "dx", 7), [f"in {windows} windows", "their additions collide"]

    scene = layers.scene_at({"layer": "max-pool", "pass": "backward"})
    yield "gradient of a pixel", scene, (scene.steps - 1, "dx", 6), [r"= 3\b"]

    inputs = Inputs(TOY, "digit", "sobel-x")
    scene, _ = fft.scene(inputs, FFT, "pad")
    last = scene.steps - 1
    yield "output of a transform", scene, (last, "y", 3), [r"It is d\[0, 3\] / 64\."]
    yield "value that wraps around", scene, (last, "d", 63), [r"this value is wrong, except by chance\."]


GAPS = {"pad_h": "1", "pad_w": "1", "dilation_h": "2", "dilation_w": "2", "picture": "numbers"}


def test_a_cell_says_what_it_is_made_of(node):
    hovered = list(cells())
    found = played(node, [(scene, [], [cell]) for _, scene, cell, _ in hovered])
    texts = [result["cells"][0].replace("−", "-") for result in found]
    lacking = [
        (name, pattern, text)
        for (name, *_, patterns), text in zip(hovered, texts, strict=True)
        for pattern in patterns
        if not re.search(pattern, text)
    ]
    assert lacking == []


def test_the_product_of_a_frequency_has_its_complex_numbers(node):
    inputs = Inputs(TOY, "digit", "sobel-x")
    scene, _ = fft.scene(inputs, FFT, "pad")
    a = arrays_of(TOY, inputs.x(1, 1)[0], inputs.w(1, 1)[0], 0)
    ((text,),) = (result["cells"] for result in played(node, [(scene, [], [(scene.steps - 1, "Y", 6)])]))
    assert text.startswith("|Y|[1, 1] = ")
    (x, w, y) = a.X[0, 0, 0, 1, 1], a.W[0, 1, 1], a.Y[0, 0, 1, 1]
    numbers = [number(n) for n in re.findall(r"−?\d+(?:\.\d+)?", text.partition("Y = ")[2])]
    assert numbers == pytest.approx([x.real, x.imag, w.real, w.imag, y.real, y.imag], rel=1e-3, abs=1e-3)


def test_a_dilated_sum_has_the_pixels_of_every_second_row():
    scene = _teasers.direct(GAPS)
    (terms,) = scene.sums
    span = slice(terms.start[8], terms.start[9])
    x, w = scene.cells("x"), scene.cells("w")
    assert (x[terms.cells[span]] * w[terms.factors[span]]).sum() == scene.cells("y")[8]
    assert (np.diff(np.unique(terms.cells[span] // 8)) == 2).all()


def test_readings_of_atomic_additions_are_those_of_the_scene():
    scene = backward.scene_at(ATOMICS)
    added, shared = (reading.values for reading in scene.readings)
    elements = next(read for read in scene.reads if read.source == "col")
    per_step = np.diff(elements.start)[2:7]  # after the zeros and the product
    assert added[6] == per_step.sum() and 0 < shared[6] < added[6]
