"""The gradient of the filters as a scene: one filter tap is a sum over all positions.

Direct: the first tap takes one step per output position, as the loops of kernels/conv/cuda/25_dweight_direct.cu. Each
other tap takes one step. im2col + GEMM: every window becomes a column, and one product of gradient and columns sums over
the positions. The links are those of the forward pass.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.conv.shape import ConvShape
from kernels.i18n import mark, tr
from visuals.conv.backward import frame
from visuals.conv.backward.links import Links, padded_lists
from visuals.scene.fold import folded, repeats
from visuals.scene.parts import Annotation, Captions, Group, MatMul, Reading, Tensor, product
from visuals.scene.recorder import Recorder
from visuals.scene.scene import Scene

DIRECT, GEMM = "conv-dweight/direct", "conv-dweight/im2col-gemm"
DIRECT_NOTE = mark(
    "The steps show one thread after another. The first thread takes one step per output position. On the GPU all threads "
    "of a block run at the same time."
)
GEMM_NOTE = mark(
    "One window after another, then one tile of the sum after another. On the GPU all windows are copied at the same time. "
    "Then all tiles of the result are computed at the same time."
)


def direct_kinds(s: ConvShape) -> frame.Kinds:
    """Returns the kinds of steps. {0} n, {1} p, {2} q, {3} h, {4} w, {5} pixel, {6} gradient, {7} sum; of a tap {0} k,
    {1} c, {2} r, {3} s, {4} products, {5} zeros, {6} gradient."""
    at = tr("Image {0}, output ({1}, {2}): this tap multiplied pixel ({3}, {4}).")
    return {
        "term": (
            "row_sum +=",
            at + " " + tr("The [pixel](input) {5} times the [gradient](workspace) {6} makes the [sum](output) {7}."),
        ),
        "zero": ("row_sum +=", at + " " + tr("That is in the padding: a zero. The [sum](output) stays {7}.")),
        "image": (
            "sum += image_sum",
            tr("All outputs of image {0} are added. The [sum](output) over the images is {7}."),
        ),
        "store": (
            "filter_gradient[filter_tap]",
            tr("The thread stores its [sum](output) {7} as the gradient of the first tap."),
        ),
        "tap": (
            "filter_gradient[filter_tap]",
            tr("Filter {0}, channel {1}, tap ({2}, {3}): a sum of {4} products, {5} of them with zeros of the padding.")
            + " "
            + tr("Its [gradient](output) is {6}."),
        ),
    }


def direct_scene(s: ConvShape, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray]) -> Scene:
    """Returns the scene of inputs x [N,C,H,W] and dy [N,K,P,Q]: all images."""
    found, links = frame.run(DIRECT, s, tiles, inputs), Links(s)
    kinds = direct_kinds(s)
    r = frame.recorder(kinds)
    _first_tap(r, links, found)
    for tap in range(1, s.K * s.CRS):
        _one_tap(r, links, found, tap)
    registers = ("pixels", "gradients", "prod", "sum")
    return frame.assemble(
        found,
        r,
        kinds,
        [0],
        [*_images(found), *_registers(s)],
        [
            Group((("x", "dy", "dw"),)),
            Group((registers,), "registers", tr("what one thread multiplies, position by position")),
        ],
        tr(DIRECT_NOTE),
        annotations=(_tap_notes(links),),
        readings=(Reading(tr("multiply-adds"), r.so_far("added"), "predicted"),),
    )


def folded_direct_scene(scene: Scene) -> Scene:
    """Returns a direct_scene with the products of the first tap as a few steps: the repeated ones are folded."""
    kind = np.asarray(scene.captions.kind)
    runs = repeats(np.where(kind <= 1, 0, kind), (0,))
    sums = {run: scene.captions.args[run[1]][7] for run in runs}
    text = tr("Products {0} to {1} are added in the same way. The [sum](output) of the row's image is now {2}.")
    return folded(scene, runs, text, lambda run: (run[0] + 1, run[1] + 1, sums[run]))


def _first_tap(r: Recorder, links: Links, found: frame.Run) -> None:
    """Adds a step per position of the first tap, in the order of the loops, and one per image."""
    s, total = links.s, np.float32(0)
    x, dy = found["x"].reshape(s.N, -1), found["dy"].reshape(s.N, s.K, s.PQ)
    for n in range(s.N):
        image_sum = np.float32(0)
        for p in range(s.P):
            row_sum = np.float32(0)
            for q in range(s.Q):
                row_sum = _position(r, links, x[n], dy[n, 0], (n, p, q), image_sum, row_sum)
            image_sum += row_sum
        total += image_sum
        r.step("image", n, 0, 0, 0, 0, 0, 0, total)
        r.put("sum", total)
    stored = found["dw"].ravel()[0]
    r.step("store", 0, 0, 0, 0, 0, 0, 0, stored)
    r.put("sum", stored)
    r.put("dw", stored, np.array([0]))


def _position(r: Recorder, links: Links, x, dy, at: tuple[int, int, int], image_sum, row_sum) -> np.float32:
    """Adds the step of one position and returns the sum of its row."""
    s, (n, p, q) = links.s, at
    output = p * s.Q + q
    pixel = int(links.pixel[0, output])
    value, gradient = (x[pixel] if pixel >= 0 else np.float32(0)), dy[output]
    row_sum = np.float32(row_sum + value * gradient)
    first = (s.R - 1, s.S - 1) if s.flip else (0, 0)
    h = p * s.u - s.pad_h + first[0] * s.dilation_h
    w = q * s.v - s.pad_w + first[1] * s.dilation_w
    r.step("term" if pixel >= 0 else "zero", n, p, q, h, w, value, gradient, image_sum + row_sum, added=1)
    cell, images = np.array([n * s.PQ + output]), s.C * s.H * s.W
    r.copy("pixels", "x", np.array([n * images + pixel if pixel >= 0 else -1]), cell)
    r.copy("gradients", "dy", np.array([n * s.K * s.PQ + output]), cell)
    r.put("prod", value * gradient, cell)
    r.put("sum", image_sum + row_sum)
    return row_sum


def _one_tap(r: Recorder, links: Links, found: frame.Run, tap: int) -> None:
    """Adds the step of one whole tap (flat in K, C, R, S)."""
    s, value = links.s, found["dw"].ravel()[tap]
    k, c, row, column = (int(n) for n in np.unravel_index(tap, s.w_shape))
    pixel = links.pixel[tap % s.CRS]
    n = np.arange(s.N)[:, None]
    index = np.where(pixel >= 0, n * s.C * s.H * s.W + pixel, -1)
    gradients = (n * s.K + k) * s.PQ + np.arange(s.PQ)
    r.step("tap", k, c, row, column, s.N * s.PQ, s.N * int((pixel < 0).sum()), value, 0, added=s.N * s.PQ)
    r.copy("pixels", "x", index)
    r.copy("gradients", "dy", gradients)
    r.put("prod", np.append(found["x"].ravel(), np.float32(0))[index] * found["dy"].ravel()[gradients])
    r.put("sum", value)
    r.put("dw", value, np.array([tap]))


def _images(found: frame.Run) -> list[Tensor]:
    s = found.s
    of_images = tr("image and channel") if s.N > 1 else tr("channel")
    of_filters = tr("image and filter") if s.N > 1 else tr("filter")
    return [
        frame.image("x", tr("input"), "input", s.N * s.C, (s.H, s.W), found["x"], plane_name=of_images),
        frame.image(
            "dy", tr("gradient of the output"), "workspace", s.N * s.K, (s.P, s.Q), found["dy"], plane_name=of_filters
        ),
        frame.filters("dw", tr("gradient of the filters"), s, "output"),
    ]


def _registers(s: ConvShape) -> list[Tensor]:
    size = s.P, s.Q
    return [
        frame.image("pixels", tr("pixels under this tap"), "input", s.N, size, plane_name=tr("image")),
        frame.image("gradients", tr("gradients"), "workspace", s.N, size, plane_name=tr("image")),
        frame.image("prod", tr("products"), "output", s.N, size, note=tr("pixel × gradient"), plane_name=tr("image")),
        frame.image("sum", tr("sum"), "output", 1, (1, 1), note=""),
    ]


def _tap_notes(links: Links) -> Annotation:
    """Returns a note on each tap: the pixels of image 0 that it multiplied."""
    s = links.s
    pixels = [links.pixel[tap % s.CRS][links.pixel[tap % s.CRS] >= 0] for tap in range(s.K * s.CRS)]
    args = np.stack([*np.unravel_index(np.arange(s.K * s.CRS), s.w_shape), [len(p) for p in pixels]], axis=1)
    text = tr("Filter {0}, channel {1}, tap ({2}, {3}): in each image it multiplied the {4} outlined pixels.")
    return Annotation("dw", Captions((text,), np.zeros(len(args), int), args), {"x": padded_lists(pixels)})


# -- im2col + GEMM -------------------------------------------------------------------------------------
def gemm_kinds(s: ConvShape) -> frame.Kinds:
    return {
        "column": (
            "column[(r * shape.S + s)",
            tr(
                "Image {0}: the window of output ({1}, {2}) becomes row {3} of the [data matrix](input), shown transposed."
            ),
        ),
        "load": (
            "tile_a[thread_row][thread_col] =",
            tr(
                "Each block loads positions {0} to {1} of image {2}: a tile of the [gradient](workspace), one of the [columns](input)."
            ),
        ),
        "barrier": ("__syncthreads();", tr("All threads of a block wait until both tiles are complete.")),
        "multiply": (
            "tile_sum += tile_a",
            tr(
                "The products of positions {0} to {1} are added. The [sums](output) have {2} of {n} terms.",
                n=s.N * s.PQ,
            ),
        ),
        "store": ("C[(size_t)row * cols", tr("Each thread stores its [sum](output): the gradient of one tap.")),
    }


def gemm_scene(s: ConvShape, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray]) -> Scene:
    """Returns the scene of inputs x [N,C,H,W] and dy [N,K,P,Q]: all images."""
    found, links = frame.run(GEMM, s, tiles, inputs), Links(s)
    kinds, tile = gemm_kinds(s), dict(found.program.launch(1).defines)["TILE"]
    r, upto = frame.recorder(kinds), []
    for n in range(s.N):
        for output in range(s.PQ):
            _column(r, links, n, output)
    copied = r.steps
    upto += [0] * copied
    for n in range(s.N):
        for first in range(0, s.PQ, tile):
            _multiply(r, found, n, first, min(first + tile, s.PQ), upto)
    r.step("store", 0, 0, 0, 0)
    r.put("C", found["dw"])
    r.copy("dw", "C", np.arange(s.K * s.CRS))
    upto.append(s.N * s.PQ)
    return frame.assemble(
        found,
        r,
        kinds,
        [0, copied],
        _gemm_tensors(found),
        [Group((("x", "dw"),)), Group(product("dym", "D", "C"), "workspace", table=True)],
        tr(GEMM_NOTE),
        matmuls=(MatMul("dym", "D", "C", upto=np.array(upto)),),
        annotations=(_tap_notes(links),),
        readings=(
            Reading(tr("values copied"), r.so_far("copied"), "predicted"),
            Reading(tr("multiply-adds"), r.so_far("added"), "predicted"),
        ),
    )


def folded_gemm_scene(scene: Scene) -> Scene:
    """Returns a gemm_scene with most of its copied windows as one step."""
    runs = repeats(np.asarray(scene.captions.kind), (0,))
    text = tr("Windows {0} to {1} are copied in the same way.")
    return folded(scene, runs, text, lambda run: (run[0] + 1, run[1] + 1))


def _column(r: Recorder, links: Links, n: int, output: int) -> None:
    s, pixel = links.s, links.pixel[:, output]
    row = n * s.PQ + output
    r.step("column", n, output // s.Q, output % s.Q, row, copied=s.CRS)
    index = np.where(pixel >= 0, n * s.C * s.H * s.W + pixel, -1)
    r.copy("D", "x", index, row * s.CRS + np.arange(s.CRS))


def _multiply(r: Recorder, found: frame.Run, n: int, first: int, end: int, upto: list[int]) -> None:
    """Adds the steps of one tile along the sum: load, barrier, multiply."""
    s = found.s
    done = n * s.PQ + first
    positions = n * s.PQ + np.arange(first, end)
    r.step("load", first, end - 1, n, 0)
    r.look("dym", np.arange(s.K)[:, None] * s.N * s.PQ + positions)
    r.look("D", positions[:, None] * s.CRS + np.arange(s.CRS))
    r.step("barrier", 0, 0, 0, 0)
    total = n * s.PQ + end
    r.step("multiply", first, end - 1, total, 0, added=s.K * s.CRS * (end - first))
    gradient = _flat_gradient(found)[:, :total].astype(np.float64)
    r.put("C", gradient @ _columns(found)[:total])
    upto += [done, done, total]


def _flat_gradient(found: frame.Run) -> np.ndarray:
    """Returns dy as a matrix [K, N*P*Q]."""
    s = found.s
    return found["dy"].reshape(s.N, s.K, s.PQ).swapaxes(0, 1).reshape(s.K, -1)


def _columns(found: frame.Run) -> np.ndarray:
    """Returns the data matrix of all images, transposed: [N*P*Q, C*R*S]."""
    s = found.s
    return found["col"].reshape(s.N, s.CRS, s.PQ).swapaxes(1, 2).reshape(-1, s.CRS)


def _gemm_tensors(found: frame.Run) -> list[Tensor]:
    s = found.s
    x, _, dw = _images(found)
    return [
        x,
        dw,
        frame.matrix("dym", tr("gradient of the output"), "workspace", (s.K, s.N * s.PQ), _flat_gradient(found)),
        frame.matrix("D", tr("data matrix, transposed (workspace)"), "input", (s.N * s.PQ, s.CRS)),
        frame.matrix("C", tr("sums"), "output", (s.K, s.CRS)),
    ]
