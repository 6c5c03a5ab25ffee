"""The URL of the FFT lesson: cut of the image into transforms and their padding. Also the resulting arrays."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import streamlit as st

from kernels.conv import fft, fft_tiled
from kernels.conv.presets import CONV_GRID
from kernels.conv.shape import ConvShape
from kernels.i18n import cached, decimal, mark, tr, trn
from kernels.ladders import find
from kernels.model.program import RuleError
from kernels.model.rung import Rung
from pages.conv import address as conv_address
from pages.conv import controls as conv_controls
from pages.parts.query import chosen
from pages.parts.tiles import SelectedRung
from visuals import units
from visuals.conv.fft.arrays import PAD, TOO_SMALL, Arrays, arrays_of, cut_of
from visuals.conv.fft.butterfly import butterfly_scene
from visuals.conv.fft.charts import tile_name
from visuals.conv.fft.notes import discarded_share
from visuals.conv.fft.scene import fft_scene, shown
from visuals.conv.fft.sum_of_waves import waves_scene
from visuals.conv.inputs import Inputs, outputs
from visuals.conv.watched import smaller
from visuals.scene.scene import MAX_CACHED_SCENES, Scene

PAGE, LADDER, RUNG = "conv/fft/page.py", conv_address.ladder("fft"), fft.RUNGS[0]
RUNGS = {rung.name.partition("/")[2]: rung for rung in (RUNG, fft_tiled.RUNG)}  # by the URL parameter "rung"
TILES = {tile_name(tile): tile for tile in RUNG.tiles["FFT_TILE"]}
SPECTRA = [str(n) for n in RUNG.tiles["SPECTRA"]]
PADDINGS = (PAD, TOO_SMALL)
REAL = CONV_GRID["grid-11x11-c64-h56"]  # a large filter: there the FFT is the fastest
EXPLAINING, PHASES, BUTTERFLIES, WAVES = "explaining", "phases", "butterflies", "waves"
ORDERS = {
    EXPLAINING: mark("the steps of the kernel: rows, columns, products, and back"),
    PHASES: mark("the same steps; the spectra show phases instead of magnitudes"),
    WAVES: mark("one row as a sum of waves, and the filter as one product for each wave: the idea, in one dimension"),
    BUTTERFLIES: mark("the transform of 8 numbers of one row: the idea; cuFFT’s kernels are not shown"),
}
CHIPS = conv_controls.CHIPS | {REAL.key: "11×11, N=32"}


# -- settings in the URL ---------------------------------------------------------------------------
def tiles() -> dict[str, int]:
    return {"FFT_TILE": TILES[chosen("transform", TILES)], "SPECTRA": int(chosen("SPECTRA", SPECTRA))}


def rung() -> Rung:
    """Returns the FFT whose kernels are on the stage."""
    return RUNGS[chosen("rung", RUNGS)]


def watched() -> SelectedRung:
    return SelectedRung(RUNG, tiles()) if rung() is RUNG else SelectedRung(rung(), rung().default_tiles)


def padding() -> str:
    return chosen("room", PADDINGS)


def controls(inputs: Inputs) -> None:
    """Draws the controls for cut and padding, and the sizes derived from them."""
    with st.container(key="params_tiles", horizontal=True):
        size = chosen("transform", TILES) if rung() is RUNG else tr(rung().title)
        current = tr("transform: {size} · {room}", size=size, room=padding())
        with st.container(key="chips_transform", width="content"), st.popover(current, key="transform_chooser"):
            _pills("rung", tr("kernel"), list(RUNGS))
            if rung() is RUNG:
                _pills("transform", tr("size of a transform"), list(TILES))
                _pills("SPECTRA", "SPECTRA", SPECTRA)
            _pills("room", tr("space for the window"), PADDINGS)
        st.html(f'<p class="kt-derived">{_derived(inputs)}</p>')


def _pills(name: str, label: str, choices) -> None:
    st.session_state[name] = chosen(name, choices)
    st.pills(label, choices, default=choices[0], required=True, key=name, bind="query-params")


def direct_flops(s: ConvShape) -> str:
    """Returns HTML for the line of the shape: what direct convolution would execute."""
    return tr("direct convolution: <b>{flops}</b> FLOPs", flops=units.count(s.flops))


def _derived(inputs: Inputs) -> str:
    """Returns derived sizes as HTML; "" if the filter does not fit into a transform."""
    s, tile = inputs.shape, tile_of(inputs.shape, watched())
    if too_large(inputs, tile):
        return ""
    cut = cut_of(s, tile, padding())
    count = int(cut["down"]) * int(cut["across"])
    size = f"{cut['rows']}×{cut['columns']}"
    facts = [
        trn(
            "<b>{n}</b> transform of <b>{size}</b> per channel",
            "<b>{n}</b> transforms of <b>{size}</b> per channel",
            count,
            size=size,
        ),
        tr(
            "<b>{taps}</b> taps become <b>{n}</b> numbers",
            taps=f"{s.R}×{s.S}",
            n=decimal(f"{int(cut['rows']) * int(cut['columns']):,}"),
        ),
    ]
    if s.stride != (1, 1):
        facts.append(tr("the stride discards <b>{share}</b> of the pixels", share=units.share(discarded_share(s))))
    return " · ".join(facts)


# -- arrays and scene ------------------------------------------------------------------------------
def tile_of(s: ConvShape, selected: SelectedRung) -> int:
    """Returns the rows of a transform, 0 for whole images or if the filter does not fit."""
    if selected.rung is RUNG:
        return selected.tiles["FFT_TILE"]
    size = fft_tiled.size_of(s, selected.tiles)
    return size if size >= max(s.span_h, s.span_w) else 0


def too_large(inputs: Inputs, tile: int) -> bool:
    """Returns whether the filter is too large for a transform of that size."""
    return 0 < tile < max(inputs.shape.span_h, inputs.shape.span_w)


def tile_too_small(s: ConvShape, selected: SelectedRung) -> bool:
    """Returns whether the filter does not fit into the transforms of a kernel."""
    tile = tile_of(s, selected)
    return 0 < tile < max(s.span_h, s.span_w) or (selected.rung is not RUNG and not tile)


@lru_cache(maxsize=MAX_CACHED_SCENES // 2)
def arrays(inputs: Inputs, tile: int, padding: str) -> Arrays:
    """Returns the arrays of image 0 and filter 0, with all channels counted."""
    s, maps = inputs.shape, len(inputs.planes())
    times = np.bincount(np.arange(s.C) % maps, minlength=maps)
    return arrays_of(s, inputs.x(1, maps)[0], inputs.w(1, maps)[0], tile, padding, times)


def expected(inputs: Inputs) -> np.ndarray:
    """Returns float32 [P, Q]: the output of image 0 and filter 0 by the definition."""
    return outputs(inputs, 1, inputs.shape.P, inputs.shape.Q)[0]


@cached(MAX_CACHED_SCENES)
def _scene(inputs: Inputs, name: str, tiles: tuple[tuple[str, int], ...], padding: str, order: str) -> Scene:
    if order in (WAVES, BUTTERFLIES):
        a = arrays(inputs, tile_of(inputs.shape, SelectedRung(find(name), dict(tiles))), padding)
        return waves_scene(a) if order == WAVES else butterfly_scene(a)
    return fft_scene(inputs, name, dict(tiles), padding, order == PHASES)


def scene(inputs: Inputs, selected: SelectedRung, padding: str, order: str = EXPLAINING) -> tuple[Scene | None, str]:
    """Returns the scene in one of ORDERS, or None, and the reason why it differs from the settings or cannot run."""
    s, rung, tiles = inputs.shape, selected.rung, dict(selected.tiles)
    rules, reasons = list(rung.rules(s, tiles)), []
    if rules:
        title = tr(rung.title)
        reasons.append(tr("{kernel} cannot run with these settings: {rules}.", kernel=title, rules="; ".join(rules)))
    if s.groups > 1:
        return None, " ".join(reasons)
    if tile_too_small(s, selected):
        rung, tiles = RUNG, RUNG.default_tiles
        reasons.append(tr("The stage shows a transform of the whole image instead."))
    try:
        found = _scene(inputs, rung.name, tuple(tiles.items()), padding, order)
    except RuleError as error:  # no compiler here for these tile sizes
        reasons.append(str(error))
        found = _scene(inputs, rung.name, tuple(rung.default_tiles.items()), padding, order)
    if order in (EXPLAINING, PHASES):
        reasons.append(smaller(s.with_(K=1), shown(s)))
    return found, " ".join(filter(None, reasons))
