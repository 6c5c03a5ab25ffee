"""im2col as a scene of two acts: every window of the input becomes a column; then filters times columns are the output.

The index map here is the one that the CUDA kernel computes (kernels/conv/cuda/02_im2col.cu): row (c, r, s) and
column (p, q) of the data matrix read x[c, p*u - pad_h + r*dilation_h, q*v - pad_w + s*dilation_w]. r and s are
counted from the far end if the filter is flipped.
"""

from __future__ import annotations

import numpy as np

from kernels import sources
from kernels.conv.shape import ConvShape
from kernels.i18n import cached, decimal, mark, tr, trn
from kernels.ladders import find
from visuals.conv.im2col import captions
from visuals.conv.im2col.product import Product
from visuals.conv.part import Part, copies_per_pixel, gather_index
from visuals.scene.parts import Captions, Group, MatMul, Reading, Source, Tensor, Write
from visuals.scene.recorder import part_note
from visuals.scene.scene import Scene
from visuals.scene.source import resources

FILE = "conv/02_im2col.cu"
MAX_ABREAST = 64  # columns of filters and data matrix that are side by side

ORDER = mark("explaining order")
ORDER_NOTE = mark(
    "First each step copies one column, then the steps follow the tiles of the product. On the GPU, one launch fills the whole data "
    "matrix, many columns at once. A second launch computes the product, many tiles at once."
)
LIBRARY_NOTE = mark(
    "Each step copies one column. On the GPU, one launch fills the whole data matrix, many columns at once. A library "
    "computes the product."
)


@cached(16)
def kernel_source(block: int | None = None) -> Source:
    """Returns the im2col kernel from its signature on, with its copying line highlighted. `block`: BLOCK, the default if
    None."""
    rung = find("conv/im2col-gemm")
    tiles = rung.default_tiles | ({"BLOCK": block} if block else {})
    launch = rung.build(ConvShape(1, 1, 1, 1, 1, 1, 1), tiles).launch()
    lines = sources.text(FILE).splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith('extern "C"'))
    copying = next(i for i, line in enumerate(lines) if "column[" in line)
    return Source(
        FILE.rpartition("/")[2], "\n".join(lines[first:]), np.array([copying + 1]), first + 1, detail=resources(launch)
    )


def im2col_scene(
    s: ConvShape,
    part: Part,
    x: np.ndarray,
    w: np.ndarray,
    y: np.ndarray,
    tile: int | None = None,
    block: int | None = None,
) -> Scene:
    """Returns the scene of image 0. float32: x [N,C,H,W], w [K,C,R,S] (the first part.C channels and part.K
    filters are enough), y [part.K, part.P, part.Q]: the kernel's output for the part. `tile`: TILE of our product, the
    default if None; 0: the product is one call of a library. `block`: BLOCK of the copy, the default if None."""
    index = gather_index(s, part)
    crs, copies = index.shape
    rows, cols = slice(part.h, part.h + part.H), slice(part.w, part.w + part.W)
    left = np.ascontiguousarray(w[: part.K, : part.C], dtype=np.float32).reshape(part.K, crs)
    visible_x = np.ascontiguousarray(x[0, : part.C, rows, cols], dtype=np.float32)
    columns, out = (np.append(visible_x.ravel(), np.float32(0))[index], np.reshape(y, (part.K, copies)).astype("f4"))
    rest = out - left.astype(np.float64) @ columns if part.C < s.C else None
    tile = find("conv/im2col-gemm").default_tiles["TILE"] if tile is None else tile
    product = Product(s, part, left, columns, out, tile, copies)
    steps = copies + len(product.steps)
    tensors = _tensors(s, part, visible_x, left, product.columns)
    return Scene(
        key=f"im2col {part.p},{part.q} " + ",".join(f"{k}={v}" for k, v in (s.params() | {"tile": tile}).items()),
        title="im2col",
        tensors=(*tensors, *product.tensors()),
        groups=_groups(tensors[0], tensors[2], bool(tile)),
        steps=steps,
        step_name=tr("step"),
        order_name=tr(ORDER),
        order_note=tr(ORDER_NOTE if tile else LIBRARY_NOTE),
        writes=(Write("D", np.arange(copies), source="x", index=index.ravel()), *product.writes()),
        reads=product.reads(),
        matmuls=(MatMul("w", "D", "C", rest),),
        readings=_readings(index, product),
        captions=_captions(s, part, index, product),
        source=kernel_source(block),
        next_sources=(product.source(),),
    )


def _tensors(s: ConvShape, part: Part, x: np.ndarray, w: np.ndarray, columns: np.ndarray) -> tuple[Tensor, ...]:
    """Returns input, output, data matrix and filters; `columns` as in Product."""
    pad = (
        s.pad_h * (part.h == 0),
        s.pad_w * (part.w == 0),
        s.after[0] * (part.h + part.H == s.H),
        s.after[1] * (part.w + part.W == s.W),
    )
    notes = {
        "x": part_note((0, part.C, s.C), (part.h, part.H, s.H), (part.w, part.W, s.W), plane="channel"),
        "w": part_note((0, part.K, s.K), (0, w.shape[1], s.CRS)),
        "y": part_note((0, part.K, s.K), (part.p, part.P, s.P), (part.q, part.Q, s.Q), plane="plane"),
    }
    crs, size = w.shape[1], len(columns)
    return (
        Tensor("x", "x", tr("input"), "input", part.C, part.H, part.W, x.ravel(), (0, part.h, part.w),
               notes["x"], plane_name=tr("channel"), pad=pad),
        Tensor("y", "y", tr("output"), "output", part.K, part.P, part.Q, None, (0, part.p, part.q), notes["y"],
               plane_name=tr("filter")),
        Tensor("D", "D", tr("data matrix (workspace)"), "workspace", 1, crs, size, note=_matrix_note(s, part),
               partial=(crs, size) != (s.CRS, s.PQ), col_index=None if size == s.PQ else columns),
        Tensor("w", "w", tr("filters"), "filter", 1, part.K, crs, w.ravel(), note=notes["w"]),
    )  # fmt: skip


def _groups(x: Tensor, D: Tensor, with_sums: bool) -> tuple[Group, ...]:
    """Returns the groups: the product is placed as it is written, the data matrix above the output, filters at its left.

    The input is in the corner beside the data matrix if it fits. Matrices that are too wide to be side by side are folded
    into bands."""
    sums = (Group((("sum",),), "registers"),) if with_sums else ()
    if D.rows + D.cols > MAX_ABREAST:
        return Group((("x", "y"),)), *sums, Group((("D",),), "workspace"), Group((("w", "C"),))
    if x.planes == 1 and max(x.rows, x.cols) <= D.rows and not any(x.pad):
        return Group((("x", "D"), ("w", "C")), table=True), *sums, Group((("y",),))
    return Group((("x", "y"),)), *sums, Group((("", "D"), ("w", "C")), table=True)


def _captions(s: ConvShape, part: Part, index: np.ndarray, product: Product) -> Captions:
    kind, copied = captions.copies(s, part, index)
    kinds, multiplied = product.captions()
    args = np.pad(copied, ((0, 0), (0, multiplied.shape[1] - copied.shape[1])))
    return Captions(captions.templates(s, part), np.append(kind, kinds), np.concatenate([args, multiplied]))


def _readings(index: np.ndarray, product: Product) -> tuple[Reading, ...]:
    """Returns the number of values moved and of multiply-adds so far, in the visible part."""
    crs, copies = index.shape
    counts = {
        tr("values loaded"): ((index >= 0).sum(axis=0), lambda step: step.loaded),
        tr("values stored"): (np.full(copies, crs), lambda step: len(step.stores)),
        tr("multiply-adds"): (np.zeros(copies, int), lambda step: step.added),
    }
    return tuple(
        Reading(label, np.cumsum(np.append(copied, [count(step) for step in product.steps])), "predicted")
        for label, (copied, count) in counts.items()
    )


def _matrix_note(s: ConvShape, part: Part) -> str:
    notes = [
        decimal(f"{s.CRS:,} × {s.PQ:,}"),
        trn("each pixel copied up to {n} time", "each pixel copied up to {n} times", copies_per_pixel(s)),
    ]
    if s.N > 1:
        notes.insert(0, tr("image 0 of {n}", n=s.N))
    rows, columns = part.C * s.R * s.S, part.P * part.Q
    if (rows, columns) != (s.CRS, s.PQ):
        notes.append(tr("part {size}", size=decimal(f"{rows:,} × {columns:,}")))
    return ", ".join(notes)
