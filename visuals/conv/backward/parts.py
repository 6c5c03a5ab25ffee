"""The gradient of the filters as an implicit product as a scene: the sum over all positions, cut into parts.

Each block computes one part (kernels/conv/cuda/dweight.cuh). Either every part is stored and a second kernel adds them in
order, or each block adds its part to the gradient by atomics: then all parts add to the same addresses.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.conv.shape import ConvShape
from kernels.i18n import mark, tr
from kernels.model.launch import ceil
from visuals.conv.backward import frame
from visuals.conv.backward.links import Links
from visuals.scene.fold import folded, repeats
from visuals.scene.parts import Group, Reading, Tensor, product
from visuals.scene.recorder import Recorder
from visuals.scene.scene import Scene

SPLIT, ATOMICS = "conv-dweight/implicit-gemm", "conv-dweight/implicit-gemm-atomics"
NOTE = mark(
    "One part after another. On the GPU the blocks of all parts run at the same time. Tiles are copied while earlier ones "
    "are multiplied."
)


def kinds_of(s: ConvShape, parts: int, atomics: bool) -> frame.Kinds:
    """Returns the kinds of steps. {0} part, {1} {2} its first and last position, {3} zeros or terms."""
    file_kinds = {
        "start": (
            "int first_term = part * terms",
            tr("Part {0} of {parts}: the block adds positions {1} to {2} of {n}.", parts=parts, n=s.N * s.PQ),
        ),
        "copy": (
            "correlate(sum,",
            tr("Positions {1} to {2}: the block copies [gradients](workspace) and [pixels](input) into shared memory.")
            + " "
            + tr("Zeros of the padding: {3}."),
        ),
        "barrier": ("correlate(sum,", tr("All threads of the block wait until both tiles are complete.")),
        "multiply": (
            "correlate(sum,",
            tr("The products of positions {1} to {2} are added to the [sums](output) of part {0}."),
        ),
    }
    if atomics:
        zero = ("y[i] = 0.0f", tr("The [gradient of the filters](output) is set to 0."))
        first = tr("The block adds its {3} sums to the gradient by atomics.")
        again = tr("Part 0 to part {0} have now added to the same {3} addresses: their additions collide.")
        return (
            {"zero": zero}
            | file_kinds
            | {
                "first": ("atomicAdd(&filter_gradient", first),
                "again": ("atomicAdd(&filter_gradient", first + " " + again),
            }
        )
    line = "*(float4*)&part_gradients" if s.CRS % 4 == 0 else "part_gradients[(size_t)row * columns + column] = sum"
    stored = tr("The block stores its {3} sums in the array of part {0}.")
    if parts == 1:
        stored = tr("There is one part. The block stores its {3} sums directly as the gradient.")
    return file_kinds | {
        "store": (line, stored),
        "sum": ("sum += parts", tr("The second kernel adds part {0}. The order is the same in every run.")),
        "done": ("result[element] = sum", tr("Each thread stores the [sum](output) of {parts} parts.", parts=parts)),
    }


def parts_scene(s: ConvShape, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray], rung: str = SPLIT) -> Scene:
    """Returns the scene of inputs x [N,C,H,W] and dy [N,K,P,Q]: all images. `rung`: by atomics or with a second sum."""
    found, links = frame.run(rung, s, tiles, inputs), Links(s)
    step = next(step for step in found.program.launches if "implicit" in step.source or "atomics" in step.source)
    terms, BK = int(np.array(step.args[-1])), dict(step.defines)["BK"]
    parts, atomics = ceil(s.N * s.PQ, terms), rung == ATOMICS
    kinds = kinds_of(s, parts, atomics)
    r, starts = frame.recorder(kinds), [0]
    if atomics:
        r.step("zero", 0, 0, 0, 0)
        r.put("dw", np.zeros(s.K * s.CRS))
        r.put("adds", np.zeros(s.K * s.CRS))
        starts.append(r.steps)
    matrices = gradient_and_columns(found, links)
    total = np.zeros((s.K, s.CRS))
    for part in range(parts):
        total += _part(r, found, matrices, part, terms, BK)
        _finish_part(r, found, part, parts, total, atomics)
    if not atomics and parts > 1:
        starts.append(r.steps)
        _add_parts(r, found, parts)
    return frame.assemble(
        found,
        r,
        kinds,
        starts,
        _tensors(found, parts, atomics, min(terms, BK)),
        _groups(parts, atomics),
        tr(NOTE),
        readings=_readings(r, atomics),
    )


def folded_parts_scene(scene: Scene) -> Scene:
    """Returns a parts_scene in which the tiles of a part after the second, except the last, are one step."""
    names = {"copy": 0, "barrier": 0, "multiply": 0}
    kind = np.asarray(scene.captions.kind)
    first = 2 if scene.key.startswith(f"{ATOMICS} ") else 1  # after the kinds zero, start
    group = np.where((kind >= first) & (kind < first + len(names)), 0, kind + 1)
    text = tr("More positions are copied and multiplied in the same way, up to position {0}.")
    runs = [(a + 4, b - 2) for a, b in repeats(group, (0,)) if b - 2 > a + 4]
    return folded(scene, runs, text, lambda run: (scene.captions.args[run[1]][2],))


def gradient_and_columns(found: frame.Run, links: Links) -> tuple[np.ndarray, np.ndarray]:
    """Returns (cells of dy [K, N*P*Q], cells of x [N*P*Q, C*R*S]); -1 in the padding."""
    s = found.s
    n, output = np.divmod(np.arange(s.N * s.PQ), s.PQ)
    gradient = (n * s.K + np.arange(s.K)[:, None]) * s.PQ + output
    pixel = links.pixel[:, output].T
    return gradient, np.where(pixel >= 0, n[:, None] * s.C * s.H * s.W + pixel, -1)


# -- steps -----------------------------------------------------------------------------------------------
def _part(r: Recorder, found: frame.Run, matrices, part: int, terms: int, BK: int) -> np.ndarray:
    """Adds the steps of one part and returns its sums, float64 [K, C*R*S]."""
    s, (gradient, columns) = found.s, matrices
    first, end = part * terms, min((part + 1) * terms, s.N * s.PQ)
    r.step("start", part, first, end - 1, 0)
    sums = np.zeros((s.K, s.CRS))
    r.put("sum", sums)
    x = np.append(found["x"].ravel(), np.float32(0)).astype(np.float64)
    for k in range(first, end, BK):
        last = min(k + BK, end)
        index, width = columns[k:last], min(terms, BK)
        r.step("copy", part, k, last - 1, int((index < 0).sum()))
        r.copy("A", "dy", gradient[:, k:last], np.arange(s.K)[:, None] * width + np.arange(last - k))
        r.copy("B", "x", index, np.arange((last - k) * s.CRS))
        r.step("barrier", part, 0, 0, 0)
        r.step("multiply", part, k, last - 1, 0, added=s.K * s.CRS * (last - k))
        sums = sums + found["dy"].ravel()[gradient[:, k:last]] @ x[index]
        r.put("sum", sums)
        r.look("A", np.arange(s.K)[:, None] * width + np.arange(last - k))
        r.look("B", np.arange((last - k) * s.CRS))
    return sums


def _finish_part(r: Recorder, found: frame.Run, part: int, parts: int, total: np.ndarray, atomics: bool) -> None:
    """Adds the step that stores or adds a part. What the last part leaves is what the kernel stored."""
    cells = np.arange(found.s.K * found.s.CRS)
    last = part == parts - 1
    if atomics:
        r.step("again" if part else "first", part, 0, 0, len(cells), atomics=len(cells), shared=len(cells) * (part > 0))
        r.put("dw", found["dw"] if last else total)
        r.put("adds", np.full(len(cells), part + 1))
        return
    r.step("store", part, 0, 0, len(cells))
    if parts == 1:
        r.put("dw", found["dw"])
        return
    r.put("sum", found["parts"][part])
    r.copy("parts", "sum", cells, part * len(cells) + cells)


def _add_parts(r: Recorder, found: frame.Run, parts: int) -> None:
    """Adds the steps of the second kernel: one part at a time, in float32 and in order."""
    size, sums = found["dw"].size, np.zeros(found["dw"].size, np.float32)
    for part in range(parts):
        r.step("sum", part, 0, 0, 0)
        sums = sums + found["parts"][part].ravel()
        r.look("parts", part * size + np.arange(size))
        r.put("total", sums)
    r.step("done", 0, 0, 0, 0)
    r.copy("dw", "total", np.arange(size))


# -- tensors ---------------------------------------------------------------------------------------------
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


def _tensors(found: frame.Run, parts: int, atomics: bool, width: int) -> list[Tensor]:
    s = found.s
    x, dy, dw = _images(found)
    out = [
        x,
        dy,
        dw,
        frame.matrix("A", tr("gradients"), "workspace", (s.K, width), note=tr("one tile")),
        frame.matrix("B", tr("columns, transposed"), "input", (width, s.CRS), note=tr("never in global memory")),
        frame.matrix("sum", tr("sums of one part"), "output", (s.K, s.CRS)),
    ]
    if atomics:
        out.append(frame.filters("adds", tr("additions to each tap"), s, "workspace"))
    elif parts > 1:
        note = tr("one matrix per part")
        out.append(
            frame.image(
                "parts", tr("parts (workspace)"), "workspace", parts, (s.K, s.CRS), note=note, plane_name=tr("part")
            )
        )
        out.append(frame.matrix("total", tr("sums of all parts"), "output", (s.K, s.CRS)))
    return out


def _groups(parts: int, atomics: bool) -> list[Group]:
    first = Group((("x", "dy", "dw", *(["adds"] if atomics else [])),))
    tile = Group(product("A", "B", "sum"), "shared", tr("shared memory and registers of one block"), table=True)
    if atomics or parts == 1:
        return [first, tile]
    return [
        first,
        tile,
        Group((("parts",),), "workspace"),
        Group((("total",),), "registers", tr("registers of the second kernel")),
    ]


def _readings(r: Recorder, atomics: bool) -> tuple[Reading, ...]:
    added = Reading(tr("multiply-adds"), r.so_far("added"), "predicted")
    if not atomics:
        return (added,)
    return (
        added,
        Reading(tr("atomic additions"), r.so_far("atomics"), "counted"),
        Reading(tr("of them to a tap that already had one"), r.so_far("shared"), "counted"),
    )
