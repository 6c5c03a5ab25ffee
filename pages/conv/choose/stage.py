"""The stage of the story on choosing: one algorithm at its lesson's small shape, measured at the shape in the URL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from kernels.conv.shape import ConvShape
from kernels.ladders import find
from kernels.model.rung import Rung
from pages.conv import address as conv_address
from pages.conv import controls as conv_controls
from pages.conv import scenes
from pages.conv.choose.address import LADDER
from pages.conv.fft import address as fft
from pages.conv.implicit import address as implicit
from pages.conv.winograd import address as winograd
from pages.parts import run
from pages.parts.chapters import OpenChapter
from pages.parts.query import chosen
from pages.parts.sizes import Sizes
from pages.parts.stage import Stage
from pages.parts.tiles import SelectedRung
from visuals.conv.inputs import Inputs
from visuals.scene.scene import Scene

WATCH = "watch"  # the URL parameter: one of ALGORITHMS


@dataclass(frozen=True)
class Watched:
    """What a lesson shows when it opens: its kernel, the tile sizes, the shape and its scene."""

    rung: Rung
    tiles: Mapping[str, int]
    shape: ConvShape
    scene: Scene | None


def _direct() -> Watched:
    return _in_order("conv/direct", scenes.direct)


def _im2col() -> Watched:
    return _in_order("conv/im2col-gemm", scenes.im2col)


def _in_order(rung: str, scene: Callable[[Inputs, str], tuple[Scene, str]]) -> Watched:
    query = conv_address.DEFAULT
    return Watched(find(rung), find(rung).default_tiles, query.shape, scene(query.inputs(), "explaining")[0])


def _implicit() -> Watched:
    query, watched = implicit.read({})
    scene, _ = implicit.scene(query.inputs(), watched.rung.name, tuple(watched.tiles.items()))
    return Watched(watched.rung, watched.tiles, query.shape, scene)


def _winograd(kernel: str = "2x2") -> Watched:
    query, watched = conv_address.DEFAULT, winograd.watched_kernel(kernel, {})
    return Watched(watched.rung, watched.tiles, query.shape, winograd.scene(query.inputs(), watched)[0])


def _fft() -> Watched:
    query, rung = conv_address.DEFAULT, fft.RUNGS["fft-tiled"]
    scene, _ = fft.scene(query.inputs(), SelectedRung(rung, rung.default_tiles), fft.PADDINGS[0])
    return Watched(rung, rung.default_tiles, query.shape, scene)


ALGORITHMS = {
    "direct": _direct,
    "im2col": _im2col,
    "implicit": _implicit,
    "winograd": _winograd,
    "winograd-steps": partial(_winograd, "4x4-steps"),
    "fft": _fft,
}


def draw(chapter: OpenChapter, real: ConvShape) -> None:
    """Draws the stage with the strip of all rungs of the ladder. `real` is the shape where times count."""
    watched = ALGORITHMS[chosen(WATCH, ALGORITHMS)]()
    settings = run.options(LADDER, watched.shape, (watched.rung.name, watched.tiles), visible=False)
    sizes = Sizes(conv_controls.name, lambda _: real)
    Stage("choose", watched.scene, settings, watched.rung, sizes, chapter=chapter).draw()
