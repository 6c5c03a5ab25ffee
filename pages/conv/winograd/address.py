"""The URL of the Winograd lesson: the kernel on the stage and its tile sizes. Also builds its scene."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import streamlit as st

from kernels.conv.presets import CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.conv.winograd import tiles_of
from kernels.i18n import cached, mark, tr, trn
from kernels.ladders import find
from kernels.model.preset import Preset
from kernels.model.program import RuleError
from pages.conv import address as conv_address
from pages.parts import sources
from pages.parts import tiles as tile_sizes
from pages.parts.address import Fields
from pages.parts.controls import Link, option
from pages.parts.query import chosen
from pages.parts.text import note
from visuals import units
from visuals.conv.inputs import Inputs
from visuals.conv.watched import smaller
from visuals.conv.winograd.derive import derive_scene
from visuals.conv.winograd.part import NONFUSED, reads_per_pixel, why_not
from visuals.conv.winograd.scene import first_tile, fused_scene, nested_scene, shown, steps_scene
from visuals.scene.scene import MAX_CACHED_SCENES, Scene, required

# As in every convolution lesson, but with a picture whose numbers can be followed.
DEFAULT = replace(conv_address.DEFAULT, picture="numbers")
FIELDS = Fields(
    "winograd",
    {name: replace(field, default=DEFAULT.params()[name]) for name, field in conv_address.FIELDS.by_name.items()},
    conv_address.FIELDS.fix,
)
CHIPS = {
    "toy": "Toy 8×8",
    "resnet50-res2-3x3-n1": "res2 3×3",
    "resnet50-res3-3x3-n1": "res3",
    "resnet50-res4-3x3-n1": "res4",
    "resnet50-res5-3x3-n1": "res5",
    "resnet50-res2-3x3-n32": "res2, N=32",
    "resnet50-res4-3x3-n32": "res4, N=32",
    "resnet50-res5-3x3-n32": "res5, N=32",
    "vgg-conv1_2": "VGG conv1_2",
    "lenet-conv1": "LeNet conv1 (5×5)",
    "toy-causal-rows": mark("Toy 8×8, zeros above"),
}
PARAMETER = "kernel"  # the URL parameter
KERNELS = {
    "2x2": ("conv/winograd-2x2", 2, mark("2×2, fused")),
    "4x4": ("conv/winograd-4x4", 4, mark("4×4, fused")),
    "2x2-steps": (NONFUSED, 2, mark("2×2, in steps")),
    "4x4-steps": (NONFUSED, 4, mark("4×4, in steps")),
    "6x6-steps": (NONFUSED, 6, mark("6×6, in steps")),
}
EXPLAINING, DERIVE, NESTED = "explaining", "derive", "nested"
ORDERS = {
    EXPLAINING: mark("the steps of the kernel, one tile after another"),
    DERIVE: mark("one row of a tile, in one dimension: where the matrices come from"),
    NESTED: mark("one tile and one filter, row by row: each transform is two products of matrices"),
}
NO_FUSED_6X6 = mark("There is no fused 6×6 kernel: the sums of its 64 positions do not fit into a block’s registers.")


@dataclass(frozen=True)
class Watched(tile_sizes.SelectedRung):
    """The kernel on the stage, with m of its F(m×m, 3×3)."""

    m: int
    label: str


def watched_kernel(kernel: str, tiles: Mapping[str, int]) -> Watched:
    """Returns one of KERNELS. `tiles`, by name, override the default tile sizes."""
    name, m, label = KERNELS[kernel]
    rung = find(name)
    return Watched(rung, rung.default_tiles | dict(tiles) | ({"M": m} if "M" in rung.tiles else {}), m, label)


def read_watched() -> Watched:
    """Returns the kernel and tile sizes in the URL. Tile sizes that the kernel does not have are ignored."""
    kernel = chosen(PARAMETER, KERNELS)
    return watched_kernel(kernel, sources.chosen_tiles(find(KERNELS[kernel][0])))


def chooser() -> None:
    """Draws the choosers of the kernel and its tile sizes, bound to the URL."""
    watched = read_watched()
    with (
        st.container(key="chips_kernel", horizontal=True),
        st.popover(tr("kernel: {kernel}", kernel=tr(watched.label)), key="kernel_chooser"),
    ):
        option(PARAMETER, list(KERNELS))
        st.caption(f"{tr(watched.rung.title)}: {tr(watched.rung.idea)} {tr(NO_FUSED_6X6)}")
        for name, choices in watched.rung.tiles.items():
            if name != "M" and len(choices) > 1:
                option(name, [str(c) for c in choices])


def derived(watched: Watched, s: ConvShape) -> str:
    """Returns HTML: the tiles of a map, and how often they read a pixel on average."""
    if why_not(s, watched.m):
        return tr("no tiles at this shape")
    m, T, count = watched.m, watched.m + 2, tiles_of(s, watched.m)
    tiles = trn(
        "<b>{n}</b> tile of <b>{T}×{T}</b> pixels",
        "<b>{n}</b> tiles of <b>{T}×{T}</b> pixels, one every <b>{m}</b> pixels",
        count,
        T=T,
        m=m,
    )
    return f"{tiles} · " + tr("a pixel is read <b>{ratio}×</b> on average", ratio=units.ratio(reads_per_pixel(s, m)))


def main_file(watched: Watched, s: ConvShape) -> str:
    """Returns the source file of a fused kernel, which runs after the transform of the filters; "" for the steps."""
    if watched.rung.name == NONFUSED:
        return ""
    return watched.rung.build(s, watched.rung.default_tiles).launch(1).source


def supported_presets() -> list[Preset]:
    """Returns the presets that Winograd can run."""
    return [preset for preset in CONV_PRESETS.values() if not why_not(preset.shape, 2)]


@cached(MAX_CACHED_SCENES)
def _scene(inputs: Inputs, kernel: str, m: int, tiles: tuple[tuple[str, int], ...], order: str) -> Scene:
    if order == DERIVE:
        return derive_scene(m, *first_tile(inputs, m), inputs.shape.flip)
    if order == NESTED:
        return nested_scene(inputs, m)
    if kernel == NONFUSED:
        return steps_scene(inputs, dict(tiles))
    return fused_scene(inputs, m, dict(tiles))


def scene(inputs: Inputs, watched: Watched, order: str = EXPLAINING) -> tuple[Scene | None, str]:
    """Returns the scene, and why it is not that of these settings ("" if it is), or (None, rule) if a rule forbids the shape. `order` is
    one of ORDERS."""
    if reason := why_not(inputs.shape, watched.m):
        return None, reason
    try:
        found = _scene(inputs, watched.rung.name, watched.m, tuple(watched.tiles.items()), order)
    except RuleError as error:  # no compiler here for these tile sizes
        sizes = watched.rung.default_tiles | {"M": watched.m}
        return _scene(inputs, watched.rung.name, watched.m, tuple(sizes.items()), order), str(error)
    return found, smaller(inputs.shape, shown(inputs.shape, watched.m)) if order == EXPLAINING else ""


def scene_at(params: Mapping[str, str]) -> Scene:
    """Returns the scene of the page at `params`, provided that the shape can run."""
    query = conv_address.query_of(FIELDS.read(params)[0])
    kernel = params.get(PARAMETER, next(iter(KERNELS)))
    tiles = {n: int(params[n]) for n in find(KERNELS[kernel][0]).tiles if n in params}
    return required(scene(query.inputs(), watched_kernel(kernel, tiles), params.get("order", EXPLAINING)))


def draw_refusal(shape: ConvShape, reason: str, link: Link) -> None:
    """Draws, in place of the stage, the broken rule and links to presets that keep it."""
    note(
        tr(
            "Winograd cannot run {shape}: {reason}. The other kernels below still can. Presets that Winograd can run:",
            shape=shape,
            reason=reason,
        )
    )
    with st.container(key="chips_fitting", horizontal=True):
        for preset in supported_presets():
            link(preset, preset.label)
