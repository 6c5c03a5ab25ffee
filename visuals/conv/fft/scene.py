"""The kernels of the FFT as scenes, compiled from what they did on a small picture: with cuFFT, and in tiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from kernels.conv import fft, fft_tiled, reference
from kernels.conv.shape import ConvShape
from kernels.engines.emulator.watch.recording import record
from kernels.i18n import tr
from kernels.ladders import find
from kernels.model.program import Launch, RuleError
from visuals.conv.direct.scene import arrays
from visuals.conv.fft.arrays import TOO_SMALL, small_cut
from visuals.conv.fft.spectra import note, product_note, spectrum_of, with_spectrum
from visuals.conv.fft.views import MAX_BLOCKS, grid, tiled_view, whole_view
from visuals.conv.inputs import Inputs
from visuals.conv.watched import watched
from visuals.scene.compiler.compile import compile_scene, watched_names
from visuals.scene.compiler.program import every_block
from visuals.scene.parts import Annotation, Captions
from visuals.scene.recorder import part_note
from visuals.scene.scene import Scene

WHOLE, IN_TILES = "conv/fft", "conv/fft-tiled"  # the rungs


def shown(s: ConvShape) -> ConvShape:
    """Returns the convolution on the stage: one image and one filter, fewer channels and pixels of a large one."""
    return watched(s).with_(K=1)


def fft_scene(inputs: Inputs, rung: str, tiles: Mapping[str, int], padding: str, phases: bool = False) -> Scene:
    """Returns the scene of `shown` of the inputs' shape. With `phases`, the spectra show phases instead of magnitudes. RuleError names a
    rule that the shape breaks, or that these tile sizes cannot be compiled."""
    s, found, of = shown(inputs.shape), find(rung), fft if rung == WHOLE else fft_tiled
    for rule in found.rules(s, dict(tiles)):
        raise RuleError(rule)
    cut = of.cut(s, dict(tiles))
    cut = small_cut(s, cut, tiled=bool(tiles["FFT_TILE"]) or of is fft_tiled) if padding == TOO_SMALL else cut
    given, view = arrays(inputs, s), whole_view(s, cut) if rung == WHOLE else tiled_view(s, cut)
    names = watched_names(view)
    with np.errstate(all="ignore"):
        recorded = record(of.program(s, dict(tiles), cut), given, watched_blocks, lambda _: names)
    sizes = ",".join(f"{name}={value}" for name, value in {**tiles, **s.params()}.items())
    key = f"{rung} {padding} {'phases ' * phases}{sizes}"
    scene = compile_scene(recorded, view, key, tr(found.title), tensors=_tensors(s, inputs.shape.K))
    if padding == TOO_SMALL:
        scene = _with_correct(scene, reference.conv(s, **given)[0])
    if rung == WHOLE:
        scene = replace(scene, annotations=(*scene.annotations, _dense_note(scene, s)))
    return _with_spectra(scene, s, int(cut["rows"]), rung, phases)


def _with_spectra(scene: Scene, s: ConvShape, T: int, rung: str, phases: bool) -> Scene:
    """Returns the scene with one tensor for both parts of a spectrum. `T`: the side of a tile."""
    cells, size = (None, (0, 0)) if rung == WHOLE else (grid(T), (T, T // 2 + 1))
    left, right, out = (spectrum_of(scene, name, cells, size) for name in ("XWY" if rung == WHOLE else "VUZ"))
    notes = [note(left), note(right)]
    if len(left.final) == len(right.final) == s.C * len(out.final):  # one transform, all channels
        notes.append(product_note(out, left, right, rung == WHOLE))
    for of in (left, right, out):
        scene = with_spectrum(scene, of, phases)
    return replace(scene, annotations=(*scene.annotations, *notes))


def _dense_note(scene: Scene, s: ConvShape) -> Annotation:
    """Returns what is said of the pixels that are transformed back: whether their windows wrap around."""
    d = scene.tensor("d")
    row, column = np.divmod(np.arange(d.size) % (d.rows * d.cols), d.cols)
    wraps = (row + s.span_h > d.rows) | (column + s.span_w > d.cols)
    texts = (
        tr("Divided by {0} it is {1}, the output at this position of the filter."),
        tr("The window wraps around the end of the array, so this value is wrong, except by chance."),
    )
    size = np.full(d.size, d.rows * d.cols)
    return Annotation("d", Captions(texts, wraps.astype(int), np.stack([size, scene.cells("d") / size], axis=1)))


def _with_correct(scene: Scene, y: np.ndarray) -> Scene:
    """Returns the scene of too small a transform with the output that is right beside it."""
    right = replace(
        scene.tensor("y"),
        name="right",
        symbol=tr("correct"),
        title=tr("correct y"),
        values=y.astype(np.float32).ravel(),
    )
    first, *groups = scene.groups
    first = replace(first, rows=((*first.rows[0], "right"), *first.rows[1:]))
    return replace(scene, tensors=(*scene.tensors, right), groups=(first, *groups))


def watched_blocks(launch: Launch) -> tuple[int, ...]:
    """Returns every block of the copies, the first blocks of a product, and the first block of transforms."""
    blocks = every_block(launch)
    if launch.entry in ("fft_multiply", "fft_tiled_product"):
        return blocks[:MAX_BLOCKS]
    return blocks[:1] if "tiled" in launch.entry else blocks


def _tensors(s: ConvShape, filters: int) -> dict[str, dict[str, Any]]:
    """Returns what the tensors in global memory say of their sizes. `filters`: how many there are, of which one is shown."""
    x, w, y = (
        part_note(*((0, size, size) for size in extents), plane="channel")
        for extents in ((s.C, s.H, s.W), (s.C, s.R, s.S), (s.K, s.P, s.Q))
    )
    channel = tr("channel") if s.C > 1 else ""
    return {
        "x": {"note": x, "plane_name": channel},
        "w": {"note": tr("{taps}, filter 0 of {n}", taps=w, n=filters) if filters > 1 else w, "plane_name": channel},
        "y": {"note": y},
    }
