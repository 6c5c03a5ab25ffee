"""Pooling as a scene: forward and backward on the same stage, over the same links.

x and dx have one place on the stage, y and dy another. Forward, a window reads pixels and writes an output. Backward, the
gradient of that output goes back to the same pixels: scattered with atomics, of which the colliding ones are counted, or
gathered without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from kernels.i18n import mark, tr
from kernels.ladders import find
from kernels.model.program import Launch, Program, Tiles
from kernels.pooling import common, reference
from kernels.pooling.shape import AvgPoolShape, GlobalShape, MaxPoolShape, PoolShape
from visuals.pooling import captions, patches, planes, steps
from visuals.pooling.links import Links, kept, windows
from visuals.scene.fold import folded, repeats
from visuals.scene.parts import Annotation, Captions, Group, Reading, Source, Sum, Tensor
from visuals.scene.recorder import Recorder, part_note
from visuals.scene.scene import Scene
from visuals.scene.source import resources, source_of

ORDER = mark("window by window")
PIXELS = mark("pixel by pixel")
THREADS = mark("thread by thread")
WARPS = mark("warp by warp")
NOTE = mark("On a GPU all threads of a warp run this at the same time, and the warps in an order of the scheduler’s.")
ATOMIC_NOTE = mark(
    "On a GPU all threads of a warp run this at the same time. The hardware chooses the order of atomic additions to one "
    "float. So the last digits of a sum may differ from run to run."
)
MIN_FOLDED_PIXELS = 8  # a plane with fewer pixels is shown one by one


@dataclass(frozen=True)
class Plan:
    """How a rung is shown. `record(recorder, shape, tiles, **inputs)`; `kinds` of its steps, those of the zero kernel first
    if there is one; the tensor in registers, if any, with its title."""

    record: Callable[..., None]
    kinds: Mapping[str, tuple[str, str]]
    order: str
    step_name: str
    register: str = ""
    register_title: str = ""
    scatters: bool = False


def _plain(record: Callable[..., None]) -> Callable[..., None]:
    """Returns a recorder of steps that takes the tile sizes too, which it does not need."""
    return lambda r, s, tiles, **inputs: record(r, s, **inputs)


_WINDOW, _PIXEL, _THREAD, _WARP = mark("window"), mark("pixel"), mark("thread"), mark("warp")
_PATCH, _SUMS = mark("pixels of x"), mark("sums of dx")
PLANS: dict[str, Plan] = {
    "max-pool/window": Plan(_plain(steps.max_window), captions.MAX_WINDOW, ORDER, _WINDOW),
    "max-pool/patch": Plan(patches.max_patch, captions.MAX_PATCH, THREADS, _THREAD, "patch", _PATCH),
    "max-pool-backward/scatter": Plan(
        _plain(steps.max_scatter), captions.ZERO | captions.MAX_SCATTER, ORDER, _WINDOW, scatters=True
    ),
    "max-pool-backward/gather": Plan(_plain(steps.max_gather), captions.MAX_GATHER, PIXELS, _PIXEL),
    "max-pool-backward/gather-patch": Plan(
        patches.max_gather_patch, captions.MAX_GATHER_PATCH, THREADS, _THREAD, "sums", _SUMS
    ),
    "avg-pool/window": Plan(_plain(steps.avg_window), captions.AVG_WINDOW, ORDER, _WINDOW),
    "avg-pool/patch": Plan(patches.avg_patch, captions.AVG_PATCH, THREADS, _THREAD, "patch", _PATCH),
    "avg-pool-backward/scatter": Plan(
        _plain(steps.avg_scatter), captions.ZERO | captions.AVG_SCATTER, ORDER, _WINDOW, scatters=True
    ),
    "avg-pool-backward/gather": Plan(_plain(steps.avg_gather), captions.AVG_GATHER, PIXELS, _PIXEL),
    "avg-pool-backward/gather-patch": Plan(
        patches.avg_gather_patch, captions.AVG_GATHER_PATCH, THREADS, _THREAD, "sums", _SUMS
    ),
    "global-avg-pool/plane": Plan(
        planes.global_plane, captions.GLOBAL_PLANE, PIXELS, _PIXEL, "sum", mark("one sum per thread")
    ),
    "global-avg-pool/warp": Plan(
        planes.global_warp, captions.GLOBAL_WARP, WARPS, mark("step"), "sums", mark("one column per lane")
    ),
    "global-avg-pool/streaming": Plan(
        planes.global_warp, captions.GLOBAL_WARP, WARPS, mark("step"), "sums", mark("one column per lane")
    ),
    "global-avg-pool-backward/pixel": Plan(planes.global_spread, captions.GLOBAL_SPREAD, WARPS, _WARP),
    "global-avg-pool-backward/four-pixels": Plan(planes.global_spread_four, captions.GLOBAL_FOUR, WARPS, _WARP),
}


def pool_scene(rung: str, s: PoolShape | GlobalShape, tiles: Tiles, inputs: Mapping[str, np.ndarray]) -> Scene:
    """Returns the scene of one of our rungs at its inputs by name, float32 (index: int32), finite. RuleError if the rung
    cannot run the shape."""
    found, plan = find(rung), PLANS[rung]
    tiles = found.check(s, tiles)
    program = found.build(s, tiles)
    shown = {kind: template for kind, (_, template) in plan.kinds.items() if kind != "folded"}
    kinds = {kind: (n, tr(template)) for n, (kind, template) in enumerate(shown.items())}
    r = Recorder(kinds)
    plan.record(r, s, tiles, **inputs)
    tensors = _tensors(program, s, tiles, plan, inputs)
    source, next_sources = _sources(program, plan, r)
    digest = blake2b(b"".join(np.ascontiguousarray(a).tobytes() for a in inputs.values()), digest_size=6).hexdigest()
    scene = Scene(
        key=f"{rung} {s} {','.join(f'{name}={value}' for name, value in tiles.items())} {digest}",
        title=tr(found.title),
        tensors=tuple(tensors.values()),
        groups=_groups(tensors, plan),
        steps=r.steps,
        step_name=tr(plan.step_name),
        order_name=tr(plan.order),
        order_note=tr(ATOMIC_NOTE if plan.scatters else NOTE),
        writes=r.writes(),
        reads=r.reads(),
        captions=r.captions(),
        readings=_readings(rung, r),
        source=source,
        next_sources=next_sources,
        lanes=r.lanes(),
        sums=() if plan.scatters else (_sum(rung, s, inputs),),
        annotations=(_outputs_of_pixels(rung, s, inputs),) if plan.scatters and isinstance(s, PoolShape) else (),
        finite=plan.register != "patch",
    )
    if rung == "global-avg-pool/plane" and isinstance(s, GlobalShape) and s.area > MIN_FOLDED_PIXELS:
        return _fold_pixels(scene, kinds)
    return scene


def _fold_pixels(scene: Scene, kinds: Mapping[str, tuple[int, str]]) -> Scene:
    """Returns the scene with the pixels between the first two and the last as one step."""
    runs = repeats(scene.captions.kind, [list(kinds).index("pixel")])
    pixel = scene.captions.args[:, 0]
    template = tr(captions.GLOBAL_PLANE["folded"][1])
    return folded(scene, runs, template, lambda run: (pixel[run[0]], pixel[run[1]]))


# -- tensors -----------------------------------------------------------------------------------------
TITLES = {
    "x": mark("x"),
    "y": mark("y"),
    "index": mark("index"),
    "dx": mark("dx: gradient of x"),
    "dy": mark("dy: gradient of y"),
}


def _tensors(program: Program, s, tiles: Tiles, plan: Plan, inputs: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """Returns the tensors by name: those of the program, and the registers. Only the padding of an average is
    zeros, so only it is drawn."""
    out = {}
    for b in program.buffers:
        role = "workspace" if b.name == "index" else b.role
        count, rows, cols = _planes(b.shape)
        values = np.ravel(inputs[b.name]).astype(np.float32) if b.name in inputs else None
        axes = ((0, count, count), (0, rows, rows), (0, cols, cols))
        pad = _padding(s) if b.name == "x" and isinstance(s, AvgPoolShape) else (0, 0, 0, 0)
        out[b.name] = Tensor(
            b.name,
            b.name,
            tr(TITLES[b.name]),
            role,
            count,
            rows,
            cols,
            values,
            note=part_note(*axes, plane="plane"),
            plane_name="plane" if count > 1 else "",
            pad=pad,
        )
    if plan.register:
        size = _register_size(s, tiles, plan)
        role = "input" if plan.register == "patch" else "workspace"
        out[plan.register] = Tensor(plan.register, plan.register, tr(plan.register_title), role, 1, *size)
    return out


def _planes(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Returns planes, rows and columns of a buffer: [N, C] has one plane."""
    planes, rows, cols = (1, *shape) if len(shape) == 2 else (shape[0] * shape[1], *shape[2:])
    return planes, rows, cols


def _padding(s: PoolShape) -> tuple[int, int, int, int]:
    """Returns the padding that is drawn round x: top, left, bottom, right, as far as the windows reach."""
    below = (s.P - 1) * s.u + s.dilation_h * (s.R - 1) + 1 - s.pad_h - s.H
    right = (s.Q - 1) * s.v + s.dilation_w * (s.S - 1) + 1 - s.pad_w - s.W
    return s.pad_h, s.pad_w, max(0, below), max(0, right)


def _register_size(s, tiles: Tiles, plan: Plan) -> tuple[int, int]:
    if isinstance(s, GlobalShape):
        return (1, s.planes) if plan.register == "sum" else (min(tiles["PLANES"], s.planes), planes.LANES)
    if plan.register == "patch":
        return common.patch_of(s, tiles)
    down, across = common.strides_of(s, tiles)
    return down * s.u, across * s.v


def _groups(tensors: Mapping[str, Tensor], plan: Plan) -> tuple[Group, ...]:
    """Returns the regions: x or dx, then y or dy with the indices, always at the same places; then registers."""
    pixels = next(name for name in ("x", "dx") if name in tensors)
    outputs = tuple(name for name in ("y", "dy", "index") if name in tensors)
    groups = [Group(((pixels,), outputs), "global", tr("global memory"))]
    if plan.register:
        groups.append(Group(((plan.register,),), "registers", tr("registers")))
    return tuple(groups)


# -- links -------------------------------------------------------------------------------------------
def _sum(rung: str, s, inputs: Mapping[str, np.ndarray]) -> Sum:
    """Returns what each result is the sum of: the links, forward or from the other end."""
    links, factors = links_of(rung, s, inputs)
    if "x" in inputs:
        owner = np.repeat(np.arange(len(links.start) - 1), links.counts)
        return Sum("y", "x", links.start, links.cells, factors[owner])
    back = links.reversed(s.pixels)
    return Sum("dx", "dy", back.start, back.cells, factors[back.cells])


def _outputs_of_pixels(rung: str, s: PoolShape, inputs: Mapping[str, np.ndarray]) -> Annotation:
    """Returns notes on dx while it grows: which outputs add to each pixel."""
    back = links_of(rung, s, inputs)[0].reversed(s.pixels)
    most = max(1, int(back.counts.max()))
    cells = np.full((s.pixels, most), -1)
    for pixel in range(s.pixels):
        cells[pixel, : back.counts[pixel]] = back.of(pixel)
    texts = (
        tr("No output adds to this pixel."),
        tr("One output adds to this pixel."),
        tr("Outputs that add to this pixel: {0}."),
    )
    captions = Captions(texts, np.minimum(back.counts, 2), back.counts[:, None])
    return Annotation("dx", captions, {"dy": cells})


def links_of(rung: str, s, inputs: Mapping[str, np.ndarray]) -> tuple[Links, np.ndarray]:
    """Returns (the pixels that each output reads or took, the factor of each output), the same forward and backward."""
    if isinstance(s, GlobalShape):
        links = Links(np.arange(s.planes + 1) * s.area, np.arange(s.pixels))
        return links, np.full(s.planes, 1 / s.area, np.float32)
    if isinstance(s, MaxPoolShape):
        index = inputs["index"] if "index" in inputs else reference.maxima(s, inputs["x"])[1]
        return kept(s, index), np.ones(s.outputs, np.float32)
    assert isinstance(s, AvgPoolShape)
    return windows(s), np.float32(1) / steps.divisors(s)


# -- sources and readings ----------------------------------------------------------------------------
def _sources(program: Program, plan: Plan, r: Recorder) -> tuple[Source, tuple[Source, ...]]:
    """Returns the source of the first launch and those that follow: the zero kernel is one step."""
    lit = [line for kind, (line, _) in plan.kinds.items() if kind != "folded"]
    kinds = r.marks()

    def source(launch: Launch, since: int, first_kind: int, part: np.ndarray) -> Source:
        own = lit[first_kind:] if since else lit[: first_kind or len(lit)]
        return source_of(launch.source, own, part - (first_kind if since else 0), detail=resources(launch), since=since)

    first, *later = program.launches
    if not later:
        return source(first, 0, 0, kinds), ()
    return source(first, 0, 1, kinds[:1]), (source(later[0], 1, 1, kinds[1:]),)


def _readings(rung: str, r: Recorder) -> tuple[Reading, ...]:
    """Returns the counters that a rung is about: pixels loaded, or atomic additions and those that collide."""
    if rung.startswith(("max-pool/", "avg-pool/", "global-avg-pool/")):
        return (Reading(tr("pixels loaded"), r.so_far("loads"), "predicted"),)
    if rung.startswith("global"):
        return ()
    return (
        Reading(tr("atomic additions"), r.so_far("atomics"), "predicted"),
        Reading(tr("of these, to a pixel that has one already"), r.so_far("again"), "predicted"),
    )
