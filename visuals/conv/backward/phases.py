"""The gradient of the input by phases as a scene: each phase is a matrix product without holes.

Pixels with the same remainders by the stride are read through the same taps. The scene shows the product of each phase,
tile by tile along its sum, and the store to every u-th row and v-th column, as kernels/conv/cuda/24_dinput_implicit_gemm.cu.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product as pairs

import numpy as np

from kernels.conv.shape import ConvShape
from kernels.i18n import mark, tr
from visuals.conv.backward import frame
from visuals.conv.backward.links import Links
from visuals.scene.parts import Annotation, Captions, Group, MatMul, Reading, Tensor, product
from visuals.scene.recorder import Recorder
from visuals.scene.scene import Scene

RUNG = "conv-dinput/implicit-gemm"
OF_PIXEL = mark("phase of pixel ({h}, {w}), taps: {taps}")
OF_OUTPUT = mark("phase of output ({h}, {w}), taps: {taps}")  # in a transposed convolution
MAX_NAMED = 4  # taps in the title of a phase
MAX_PHASES = 9  # with more, each product is too small to see
NOTE = mark(
    "One phase after another. On the GPU the blocks of all phases run at the same time. Tiles are copied while earlier "
    "ones are multiplied."
)


@dataclass(frozen=True)
class Phase:
    """The pixels of image 0 whose first row is `h` and first column `w`, and the taps that read them."""

    links: Links
    number: int
    h: int
    w: int

    @cached_property
    def pixels(self) -> np.ndarray:
        """Returns int64[pixels]: flat in H, W."""
        s = self.links.s
        rows, columns = np.arange(self.h, s.H, s.u), np.arange(self.w, s.W, s.v)
        return (rows[:, None] * s.W + columns).ravel()

    @cached_property
    def taps(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the positions (r, t) of the taps, in the kernel's order. A tap belongs to the phase if the stride
        divides its distance from the first pixel."""
        s = self.links.s
        r, t = (
            np.flatnonzero((first + pad - np.arange(taps) * dilation) % stride == 0)
            for first, pad, taps, dilation, stride in (
                (self.h, s.pad_h, s.R, s.dilation_h, s.u),
                (self.w, s.pad_w, s.S, s.dilation_w, s.v),
            )
        )
        return np.repeat(r, len(t)), np.tile(t, len(r))

    @cached_property
    def index(self) -> np.ndarray:
        """Returns int64[K*taps, pixels]: the output (flat in K, P, Q) that each element of the data matrix is; -1 where
        it is outside."""
        s, (r, t) = self.links.s, self.taps
        h, w = np.divmod(self.pixels, s.W)
        p, q = self.links.rows[h].T[r], self.links.columns[w].T[t]  # [taps, pixels]
        output = np.where((p >= 0) & (q >= 0), p * s.Q + q, -1)
        k = np.arange(s.K)[:, None, None]
        return np.where(output >= 0, k * s.PQ + output, -1).reshape(-1, len(h))

    @cached_property
    def filters(self) -> np.ndarray:
        """Returns int64[C, K*taps]: the element of w (flat in K, C, R, S) of each factor."""
        s = self.links.s
        tap = np.array([self.links.tap(r, t) for r, t in zip(*self.taps, strict=True)], int)
        k, c = np.arange(s.K)[:, None], np.arange(s.C)[:, None, None]
        return ((k * s.C + c) * s.R * s.S + tap).reshape(s.C, -1)

    def name(self, tensor: str) -> str:
        return f"{tensor}{self.number}"


def phases_of(links: Links) -> list[Phase]:
    s = links.s
    starts = pairs(range(min(s.u, s.H)), range(min(s.v, s.W)))
    return [Phase(links, n, h, w) for n, (h, w) in enumerate(starts)]


def kinds_of(s: ConvShape) -> frame.Kinds:
    """Returns the kinds of steps. {0} {1} first pixel, {2} taps, {3} pixels of each map; {0} {1} first and last term."""
    width = 4 if s.stride == (1, 1) and s.H * s.W % 4 == 0 else 1
    filters = tr("The block copies terms {0} to {1} of the [filters](filter) into shared memory.")
    data = tr(
        "It copies the [gradients](input) under the same taps. Of these {2} elements, {3} are outside the output: they become 0."
    )
    start = tr("Phase of pixel ({0}, {1}): {3} pixels of each channel. Taps that read them: {2} of {n}.", n=s.R * s.S)
    if s.stride == (1, 1):
        start = tr("The stride is 1, so all {3} pixels of a channel are one phase. Each is read through all {2} taps.")
    empty = tr(
        "Phase of pixel ({0}, {1}): {3} pixels of each channel. No tap reads them, so there is nothing to multiply."
    )
    return {
        "start": ("vertical = find_axis", start),
        "empty": ("vertical = find_axis", empty),
        "filters": ("source + (size_t)m * filter_area", filters),
        "data": ("output_gradient + (unsigned)(windows", data),
        "barrier": ("__syncthreads();", tr("All threads of the block wait until both tiles are complete.")),
        "multiply": (
            "multiply(sum",
            tr("Each element of the [result](output) gets the products of terms {0} to {1}. No factor is a hole."),
        ),
        "store": (
            f"store<{width}>(input_gradient",
            tr(
                "The [sums](output) are stored to every row {0} + i·{u} and column {1} + j·{v} of the gradient.",
                u=s.u,
                v=s.v,
            ),
        ),
    }


def phases_scene(
    s: ConvShape, tiles: Mapping[str, int], inputs: Mapping[str, np.ndarray], title: str = OF_PIXEL
) -> Scene:
    """Returns the scene of image 0 of inputs dy [N,K,P,Q] and w [K,C,R,S]. `title`: OF_PIXEL or OF_OUTPUT."""
    found, links = frame.run(RUNG, s, tiles, inputs), Links(s)
    phases, kinds = phases_of(links), kinds_of(s)
    BK = dict(found.program.launch().defines)["BK"]
    r = frame.recorder(kinds)
    upto = {phase.number: [] for phase in phases}
    for phase in phases:
        _phase(r, phase, found, BK, upto)
    tensors = [tensor for phase in phases for tensor in _tensors(phase)]
    groups = [Group((("dx", "dy", "w"),)), *(_group(phase, title) for phase in phases if phase.index.size)]
    return frame.assemble(
        found,
        r,
        kinds,
        [0],
        [*_images(found), *tensors],
        groups,
        tr(NOTE),
        matmuls=tuple(_matmul(phase, upto[phase.number], r.steps) for phase in phases if phase.index.size),
        annotations=(_phase_notes(links, phases),),
        readings=(Reading(tr("multiply-adds"), r.so_far("added"), "predicted"),),
    )


def _phase(r: Recorder, phase: Phase, found: frame.Run, BK: int, upto: dict) -> None:
    """Adds the steps of one phase, and to `upto` how many terms its sums have after each step so far."""
    s, terms, done = found.s, phase.index.shape[0], 0
    taps, pixels = len(phase.taps[0]), phase.pixels
    r.step("start" if terms else "empty", phase.h, phase.w, taps, len(pixels))
    for first in range(0, terms, BK):
        last = min(first + BK, terms)
        k = np.arange(first, last)
        r.step("filters", first, last - 1, 0, 0)
        cells = np.arange(s.C)[:, None] * terms + k
        r.copy(phase.name("A"), "w", phase.filters[:, k], cells)
        outside = int((phase.index[k] < 0).sum())
        _count(r, upto, phase, done)
        r.step("data", first, last - 1, phase.index[k].size, outside)
        r.copy(phase.name("D"), "dy", phase.index[k], k[:, None] * len(pixels) + np.arange(len(pixels)))
        _count(r, upto, phase, done)
        r.step("barrier", 0, 0, 0, 0)
        _count(r, upto, phase, done)
        done = last
        r.step("multiply", first, last - 1, 0, 0, added=s.C * len(pixels) * len(k))
        r.put(phase.name("C"), _product(phase, found, done))
        r.look(phase.name("A"), cells)
        r.look(phase.name("D"), k[:, None] * len(pixels) + np.arange(len(pixels)))
    _count(r, upto, phase, done)
    r.step("store", phase.h, phase.w, 0, 0)
    target = np.arange(s.C)[:, None] * s.H * s.W + pixels
    stored = found["dx"][0].ravel()[target]
    if terms:
        r.put(phase.name("C"), stored)
        r.copy("dx", phase.name("C"), np.arange(target.size), target)
    else:
        r.put("dx", stored, target)
    _count(r, upto, phase, done)


def _matmul(phase: Phase, upto: list[int], steps: int) -> MatMul:
    left, right, out = (phase.name(t) for t in ("A", "D", "C"))
    return MatMul(left, right, out, upto=np.array(upto + [upto[-1]] * (steps - len(upto))))


def _count(r: Recorder, upto: dict, phase: Phase, done: int) -> None:
    upto[phase.number] += [done] * (r.steps - len(upto[phase.number]))


def _product(phase: Phase, found: frame.Run, done: int) -> np.ndarray:
    gradient = np.append(found["dy"][0].ravel(), np.float32(0))[phase.index[:done]]
    return found["w"].ravel()[phase.filters[:, :done]] @ gradient


# -- tensors ---------------------------------------------------------------------------------------------
def _images(found: frame.Run) -> list[Tensor]:
    s = found.s
    return [
        frame.image("dx", tr("gradient of the input"), "output", s.C, (s.H, s.W), plane_name=tr("channel")),
        frame.image(
            "dy", tr("gradient of the output"), "input", s.K, (s.P, s.Q), found["dy"][0], plane_name=tr("filter")
        ),
        frame.filters("w", tr("filters"), s, values=found["w"]),
    ]


def _tensors(phase: Phase) -> list[Tensor]:
    terms, pixels = phase.index.shape
    if not terms:
        return []
    channels = phase.links.s.C
    found = (
        frame.matrix(phase.name("A"), tr("filters"), "filter", (channels, terms)),
        frame.matrix(phase.name("D"), tr("data matrix"), "workspace", (terms, pixels)),
        frame.matrix(phase.name("C"), tr("sums"), "output", (channels, pixels)),
    )
    return [replace(tensor, note="") for tensor in found]  # several products: their cells need the space


def _group(phase: Phase, title: str) -> Group:
    rows = product(*(phase.name(t) for t in ("A", "D", "C")))
    return Group(rows, "shared", tr(title, h=phase.h, w=phase.w, taps=_taps(phase)), table=True)


def _taps(phase: Phase) -> str:
    """Returns the taps of a phase, or how many they are: "(0, 0), (0, 2)", "16"."""
    taps = [f"({r}, {t})" for r, t in zip(*phase.taps, strict=True)]
    return ", ".join(taps) if len(taps) <= MAX_NAMED else str(len(taps))


def _phase_notes(links: Links, phases: list[Phase]) -> Annotation:
    """Returns a note on each pixel: its phase."""
    s = links.s
    numbers = np.zeros((s.H * s.W, 3), int)
    for phase in phases:
        numbers[phase.pixels] = phase.h, phase.w, len(phase.taps[0])
    text = tr("Phase of pixel ({0}, {1}): read through {2} taps.")
    return Annotation("dx", Captions((text,), np.zeros(s.C * s.H * s.W, int), np.tile(numbers, (s.C, 1))))
